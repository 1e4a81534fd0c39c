package deploy

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// DryRunWrites are the resources that a muster with --dry-run may write: its lease, what it
// reports in events and statuses, and the NodeGroups of the clouds' groups that it finds.
var DryRunWrites = []string{
	"leases", "events", "nodegroups", "nodegroups/status", "capacitypolicies/status", "provisioningrequests/status",
}

// reads are the verbs that change nothing.
var reads = []string{"get", "list", "watch"}

// DryRun returns those of the manifests that a muster with --dry-run needs: no admission
// policies, since they would act, and of all rights to write only those that it uses. Roles
// that the manifests bind to no account are for people, and stay.
func DryRun(objects []*unstructured.Unstructured) (out []*unstructured.Unstructured, err error) {
	bound := map[string]bool{}
	for _, o := range objects {
		if name, isBinding, _ := unstructured.NestedString(o.Object, "roleRef", "name"); isBinding {
			bound[name] = true
		}
	}
	for _, o := range objects {
		switch kind := o.GetKind(); {
		case o.GroupVersionKind().Group == "admissionregistration.k8s.io":
			continue
		case (kind == "ClusterRole" || kind == "Role") && bound[o.GetName()]:
			if o, err = observing(o); err != nil {
				return nil, err
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// observing is a role without the rights to write what a dry run does not.
func observing(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var role rbacv1.ClusterRole // a Role has the same rules
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	var rules []any
	for _, r := range role.Rules {
		told := func(resource string) bool {
			return slices.Contains(DryRunWrites, resource) || strings.HasSuffix(resource, "reviews") // a review changes nothing
		}
		if len(r.NonResourceURLs) == 0 && !slices.ContainsFunc(r.Resources, told) {
			r.Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool { return !slices.Contains(reads, verb) })
		}
		if len(r.Verbs) == 0 {
			continue
		}
		rule, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&r)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		rules = append(rules, rule)
	}
	out := o.DeepCopy()
	if err := unstructured.SetNestedSlice(out.Object, rules, "rules"); err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return out, nil
}
