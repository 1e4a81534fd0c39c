package app

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/dispatch"
	dispatchcontroller "github.com/muster-dev/muster/queueing/dispatch/controller"
)

// TestDispatcherMayHandleAllKinds of jobs that may run in other clusters, here and in a worker, and no Secret of a worker.
func TestDispatcherMayHandleAllKinds(t *testing.T) {
	rulesOf := func(t *testing.T, objects []*unstructured.Unstructured) (out []rbacv1.PolicyRule) {
		for _, o := range objects {
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			out = append(out, role.Rules...) // other kinds have none
		}
		return out
	}
	t.Run("snapshot", func(t *testing.T) {
		objects, err := deploy.Decode([]byte(deploy.DispatcherWorker))
		if err != nil {
			t.Fatal(err)
		}
		rules := rulesOf(t, objects)
		for _, kind := range view.DefaultSettings().Kinds() {
			for _, verb := range []string{"list", "watch"} {
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.APIGroups, kind.Resource.Group) && slices.Contains(r.Resources, kind.Resource.Resource) &&
						slices.Contains(r.Verbs, verb)
				}) {
					t.Errorf("no rule has %s of %s", verb, kind.Resource)
				}
			}
		}
	})
	t.Run("forwarded", func(t *testing.T) {
		objects, err := deploy.Decode([]byte(deploy.DispatcherCopies))
		if err != nil {
			t.Fatal(err)
		}
		rules := rulesOf(t, objects)
		for _, kind := range delegable() {
			f, ok := kind.(dispatchcontroller.Forwarder)
			for _, verb := range []string{"list", "watch"} {
				if ok && f.Forwards() && !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.Resources, strings.ToLower(kind.GroupVersionKind().Kind)+"s") && slices.Contains(r.Verbs, verb)
				}) {
					t.Errorf("no rule has %s of %s", verb, kind.GroupVersionKind().Kind)
				}
			}
		}
	})
	for name, c := range map[string]struct{ text, verb string }{
		"manager": {deploy.DispatcherCopies, "get"},
		"status":  {deploy.DispatcherCopies, "patch"},
		"worker":  {deploy.DispatcherWorker, "create"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := deploy.Decode([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			rules := rulesOf(t, objects)
			for _, kind := range delegable() {
				gvk := kind.GroupVersionKind()
				resource := strings.ToLower(gvk.Kind) + "s"
				if name == "status" {
					if gvk.Kind == "StatefulSet" || gvk.Kind == "LeaderWorkerSet" {
						continue // its own controller writes its status here, too
					}
					resource += "/status"
				}
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.APIGroups, gvk.Group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, c.verb)
				}) {
					t.Errorf("no rule has %s of %s in %s", c.verb, resource, gvk.Group)
				}
			}
			for _, r := range rules {
				if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Resources, "*") {
					t.Errorf("a rule has %v", r.Resources)
				}
			}
		})
	}
}

// TestAWorkerLetsAManagerHaveItsOwnLease alone: the leader of its Muster has one beside it.
func TestAWorkerLetsAManagerHaveItsOwnLease(t *testing.T) {
	out := &strings.Builder{}
	cmd := newDispatcherManifestsCommand()
	cmd.SetOut(out)
	cmd.SetArgs([]string{"--worker", "--namespace", "ml", "--origin", "east"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode([]byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		var role rbacv1.Role
		if o.GetKind() != "Role" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			if !slices.Equal(r.Verbs, []string{"create"}) && !slices.Equal(r.ResourceNames, []string{dispatch.LeaseName("east")}) ||
				role.Namespace != "ml" {
				t.Errorf("in namespace %s it may %v %v named %v", role.Namespace, r.Verbs, r.Resources, r.ResourceNames)
			}
		}
	}
	if !strings.Contains(out.String(), "muster-manager-east") {
		t.Error("it has no Lease")
	}
}
