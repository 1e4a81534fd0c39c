package deploy

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestEveryKindAndPolicyIsOfOneHalf: a file that neither half claims would be installed
// with the half that does not use it and may not have its kinds.
func TestEveryKindAndPolicyIsOfOneHalf(t *testing.T) {
	for _, folder := range []string{crds, policies} {
		entries, err := fs.ReadDir(files, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if file := path.Join(folder, e.Name()); ownerOf(file) == "" {
				t.Errorf("%s is of neither half: add it to owned", file)
			}
		}
	}
}

// TestADenialIsForbidden, as that of Kueue's webhooks, which tools know; the API's own default
// is Invalid.
func TestADenialIsForbidden(t *testing.T) {
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, o := range objects {
		validations, _, err := unstructured.NestedSlice(o.Object, "spec", "validations")
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range validations {
			judged++
			if reason := v.(map[string]any)["reason"]; reason != "Forbidden" {
				t.Errorf("%s: spec.validations[%d] has the reason %v, want Forbidden", o.GetName(), i, reason)
			}
		}
	}
	if judged == 0 {
		t.Error("no policy denies anything")
	}
}

func TestEveryClaimedFileIsThere(t *testing.T) {
	for half, patterns := range owned {
		for _, pattern := range patterns {
			if found, err := fs.Glob(files, pattern); err != nil || len(found) == 0 {
				t.Errorf("%s claims %s, which matches no file (%v)", half, pattern, err)
			}
		}
	}
}

// TestBothHalvesTogetherAreAll and nothing is there twice.
func TestBothHalvesTogetherAreAll(t *testing.T) {
	names := func(halves ...Half) (out []string) {
		objects, err := Manifests(halves...)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			out = append(out, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
		}
		return out
	}
	all, shared := names(Halves...), names()
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
		t.Errorf("%d objects have only %d names", len(all), len(once))
	}
	sum := shared
	for _, half := range Halves {
		for _, name := range names(half) {
			if !slices.Contains(shared, name) {
				sum = append(sum, name)
			}
		}
	}
	slices.Sort(sum)
	if !slices.Equal(sum, all) {
		t.Errorf("the halves have %d objects, both together %d", len(sum), len(all))
	}
}

// TestTheQueueingHalfAloneMayWatchWhatItDecidesBy: with another provisioner in the cluster, the rights of Muster's own are missing.
// Without the right to watch nodes, Workloads that request a topology would never start.
func TestTheQueueingHalfAloneMayWatchWhatItDecidesBy(t *testing.T) {
	objects, err := Manifests(Queueing)
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]bool{}
	for _, o := range objects {
		var role rbacv1.ClusterRole
		if o.GetKind() != "ClusterRole" || o.GetName() != "muster-queueing" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				may[resource] = may[resource] || slices.Contains(rule.Verbs, "list") && slices.Contains(rule.Verbs, "watch")
			}
		}
	}
	for _, resource := range []string{
		"admissionchecks", "capacitypolicies", "clusterqueues", "cohorts", "deviceclasses", "jobs", "limitranges", "localqueues", "namespaces", "nodes",
		"pods", "priorityclasses", "provisioningrequestconfigs", "provisioningrequests", "resourceclaimtemplates", "resourceflavors", "resourcequotas",
		"runtimeclasses", "statefulsets", "topologies", "workloadpriorityclasses", "workloads",
	} {
		if !may[resource] {
			t.Errorf("it may not watch %s", resource)
		}
	}
}

// TestMusterMayReadWhatItChecks and nothing else of its kinds: /readyz compares all CRDs and
// policies with its own.
func TestMusterMayReadWhatItChecks(t *testing.T) {
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" || strings.Contains(o.GetKind(), "AdmissionPolicy") {
			want[o.GetName()] = true
		}
		if o.GetKind() != "ClusterRole" || o.GetName() != "muster-health" {
			continue
		}
		rules, _, err := unstructured.NestedSlice(o.Object, "rules")
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			names, _, err := unstructured.NestedStringSlice(rule.(map[string]any), "resourceNames")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				got[name] = true
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("run `make generate`: rbac/health.yaml is for others (-there +granted)\n%s", diff)
	}
}

// TestUsersHaveRightsForAllKinds of the CRDs: to read them with view, and to edit them as batch
// admins. No role of the cluster's own gives away quota or machines.
func TestUsersHaveRightsForAllKinds(t *testing.T) {
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	const view, edit, admin = "rbac.authorization.k8s.io/aggregate-to-view", "rbac.authorization.k8s.io/aggregate-to-edit",
		"rbac.authorization.k8s.io/aggregate-to-admin"
	const batchUser, batchAdmin = "rbac.kueue.x-k8s.io/batch-user", "rbac.kueue.x-k8s.io/batch-admin"
	granted := map[string]map[string]bool{}
	for _, o := range objects {
		role := &rbacv1.ClusterRole{}
		if o.GetKind() != "ClusterRole" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		for label := range role.Labels {
			if granted[label] == nil {
				granted[label] = map[string]bool{}
			}
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							granted[label][verb+" "+resource+"."+group] = true
						}
					}
				}
			}
		}
	}
	for _, o := range objects {
		kind := o.GetName()
		if o.GetKind() != "CustomResourceDefinition" || ForSimulation(o) {
			continue
		}
		for _, label := range []string{view, edit, admin, batchAdmin} {
			if !granted[label]["get "+kind] || !granted[label]["list "+kind] || !granted[label]["watch "+kind] {
				t.Errorf("%s does not read %s", label, kind)
			}
		}
		if !granted[batchAdmin]["create "+kind] || !granted[batchAdmin]["patch "+kind] || !granted[batchAdmin]["delete "+kind] {
			t.Errorf("%s does not edit %s", batchAdmin, kind)
		}
		for _, label := range []string{view, edit, admin, batchUser} {
			for _, verb := range []string{"create", "update", "patch", "delete"} {
				if granted[label][verb+" "+kind] {
					t.Errorf("%s may %s %s", label, verb, kind)
				}
			}
		}
	}
	// The manager's role for kinds of jobs is generated from them.
	kinds := 0
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" || o.GetName() != "muster-job-kinds" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				kind := resource + "." + rule.APIGroups[0]
				if strings.Contains(resource, "/") {
					continue
				}
				kinds++
				for label, verb := range map[string]string{view: "list", edit: "create", admin: "delete", batchUser: "patch", batchAdmin: "update"} {
					if !granted[label][verb+" "+kind] || label == view && granted[label]["create "+kind] {
						t.Errorf("%s does not %s %s, or creates them by view", label, verb, kind)
					}
				}
			}
		}
	}
	if kinds < 14 {
		t.Errorf("%d kinds of jobs were looked at", kinds)
	}
	if !granted[batchUser]["create jobs.batch"] || !granted[edit]["create jobsets.jobset.x-k8s.io"] || granted[view]["create jobs.batch"] {
		t.Error("those that run jobs may not, or others may")
	}
}

// TestTheChartKnowsTheHalfOfEachFile of roles and policies: it reads the files, and leaves out those
// of a half that is off.
func TestTheChartKnowsTheHalfOfEachFile(t *testing.T) {
	text, err := os.ReadFile("charts/muster/templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), `define "muster.owners" -}}`)
	table, _, _ = strings.Cut(table, "{{- end }}")
	owners := map[string]string{}
	if err := yaml.Unmarshal([]byte(table), &owners); err != nil {
		t.Fatal(err)
	}
	// What is left out on request, whichever halves are on.
	parts := map[string]Half{"kwok": Provisioning, "dashboard": "", "queueing-dashboard": Queueing, "users": ""}
	for _, folder := range []string{rbac, policies} {
		entries, err := fs.ReadDir(files, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			file := path.Join(folder, e.Name())
			owner := owners[strings.TrimPrefix(file, "charts/muster/files/")]
			got := Half(owner)
			if half, isPart := parts[owner]; isPart {
				got = half
			}
			if want := ownerOf(file); got != want {
				t.Errorf("in charts/muster/templates/_helpers.tpl, %s is of %q, want %q", file, got, want)
			}
		}
	}
}
