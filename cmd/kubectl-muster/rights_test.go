package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/deploy"
)

// TestTheRoleIsWhatThePluginReads, and not more.
func TestTheRoleIsWhatThePluginReads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "muster.yaml")
	all := "apiVersion: config.muster.dev/v1alpha1\nkind: Configuration\nqueueing: {namespaceQuota: true}\n"
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := view.LoadSettings(file)
	if err != nil {
		t.Fatal(err)
	}
	var read []view.Right
	for _, k := range append(settings.Kinds(), view.ClusterKinds[0]) {
		read = append(read, view.Right{Verb: "list", Resource: k.Resource.String()})
	}
	read = append(read, view.Right{Verb: "list", Resource: "multikueueconfigs.kueue.x-k8s.io"})
	for _, k := range explainedKinds {
		read = append(read, view.Right{Verb: "get", Resource: k.resource.String()}, view.Right{Verb: "list", Resource: k.resource.String()})
	}
	// history gets ConfigMaps. explain lists events, and gets the objects that complete the pod template of a Job.
	read = append(read, view.Right{Verb: "get", Resource: "configmaps"}, view.Right{Verb: "list", Resource: "events"},
		view.Right{Verb: "get", Resource: "workloadpriorityclasses.kueue.x-k8s.io"},
		view.Right{Verb: "get", Resource: "runtimeclasses.node.k8s.io"})

	if diff := cmp.Diff(inOrder(read), inOrder(granted(t, "muster-explain"))); diff != "" {
		t.Errorf("deploy/charts/muster/files/rbac/explain.yaml grants other rights than are used (-used +granted):\n%s", diff)
	}
}

// granted are the rights of a ClusterRole that Muster brings along.
func granted(t *testing.T, name string) (out []view.Right) {
	objects, err := deploy.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" || o.GetName() != name {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						out = append(out, view.Right{Verb: verb, Resource: schema.GroupResource{Group: group, Resource: resource}.String()})
					}
				}
			}
		}
	}
	return out
}

// inOrder are the rights as text, each once.
func inOrder(rights []view.Right) []string {
	out := make([]string, len(rights))
	for i, r := range rights {
		out[i] = r.String()
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestMissingRightsTakeOneLine, below what the caller requested; -o wide has all of them, and the commands that grant them.
func TestMissingRightsTakeOneLine(t *testing.T) {
	missing := []view.Right{{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "pods"}, {Verb: "list", Resource: "namespaces"}}
	w := waiting("train", 4, func(w *kueue.Workload) {
		condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadQuotaReservedReasonWaitingForQuota, "16 more needed")
	})
	p := pictureOf(missing, flavor("h100"), team("team", nil, "h100=8"), w)
	lines, _ := p.Recorded()
	for name, a := range map[string]answer{
		"explain": explanation{p.ExplainWorkload(w)}, "queue": recordedAnswer{lines, "default", missing},
	} {
		var narrow strings.Builder
		if err := a.print(newPrinter(&narrow, asTable)); err != nil {
			t.Fatal(err)
		}
		text := narrow.String()
		last := strings.TrimSpace(text[strings.LastIndex(strings.TrimSpace(text), "\n"):])
		if strings.Count(text, "rights") != 1 || !strings.HasSuffix(last, "(-o wide names the missing rights).") {
			t.Errorf("%s: the rights take more than the last line:\n%s", name, text)
		}
		lacks(t, printed(t, a), "list nodes, list pods, list namespaces in all namespaces", "--clusterrole=muster-explain")
	}
	o := &options{output: asTable}
	if err := o.lacks("the queues", missing); strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "you may not read the queues: list nodes and 2 more") {
		t.Error(err)
	}
	if o.output = asWide; !strings.Contains(o.lacks("the queues", missing).Error(), "list namespaces") {
		t.Error("-o wide does not name all rights")
	}
}
