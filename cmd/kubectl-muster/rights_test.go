package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	// What explain tells users with no more rights, and what a Job gets beside its own.
	read = append(read, view.Right{Verb: "list", Resource: "events"},
		view.Right{Verb: "get", Resource: "workloadpriorityclasses.kueue.x-k8s.io"},
		view.Right{Verb: "get", Resource: "runtimeclasses.node.k8s.io"})

	if diff := cmp.Diff(inOrder(read), inOrder(granted(t, "muster-explain"))); diff != "" {
		t.Errorf("deploy/rbac/explain.yaml grants other rights than are used (-used +granted):\n%s", diff)
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
