package deploy

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestADryRunMayWriteOnlyWhatItTells: its manifests give no right to more, and nothing of them acts.
func TestADryRunMayWriteOnlyWhatItTells(t *testing.T) {
	all, err := Manifests(Provisioning)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := DryRun(all)
	if err != nil {
		t.Fatal(err)
	}
	var written, bound []string
	for _, o := range objects {
		name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		bound = append(bound, name)
	}
	for _, o := range objects {
		if o.GroupVersionKind().Group == "admissionregistration.k8s.io" {
			t.Errorf("%s %s acts", o.GetKind(), o.GetName())
		}
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" || !slices.Contains(bound, o.GetName()) {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			if slices.ContainsFunc(r.Verbs, func(verb string) bool { return !slices.Contains(reads, verb) }) {
				written = append(written, r.Resources...)
			}
		}
	}
	for _, resource := range DryRunWrites {
		if !slices.Contains(written, resource) {
			t.Errorf("there is no right to write %s", resource)
		}
	}
	for _, resource := range written {
		if !slices.Contains(slices.Concat(DryRunWrites, []string{"tokenreviews", "subjectaccessreviews"}), resource) {
			t.Errorf("there is a right to write %s", resource)
		}
	}
}
