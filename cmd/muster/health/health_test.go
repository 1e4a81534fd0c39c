package health

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/deploy"
)

// manifests returns the objects that this version installs.
func manifests(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// edit replaces a field of the object of that name in the cluster; nil deletes the object.
func edit(t *testing.T, objects []*unstructured.Unstructured, kind, name string,
	change func(*unstructured.Unstructured)) (out []client.Object) {
	t.Helper()
	found := false
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			if found = true; change == nil {
				continue
			}
			o = o.DeepCopy()
			change(o)
		}
		out = append(out, o)
	}
	if !found {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return out
}

func set(value any, path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

func TestWhatIsInstalledIsComparedWithWhatIsNeeded(t *testing.T) {
	objects := manifests(t)
	const crd, policy, binding = "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
	for name, tc := range map[string]struct {
		kind, object string
		change       func(*unstructured.Unstructured)
		want         string
	}{
		"all of it":                    {policy, "muster-quotas", func(*unstructured.Unstructured) {}, ""},
		"what the API server defaults": {crd, "nodegroups.muster.dev", set("None", "spec", "conversion", "strategy"), ""},
		"a CRD is missing":             {crd, "nodegroups.muster.dev", nil, crd + " nodegroups.muster.dev is missing"},
		"a policy is missing":          {policy, "muster-quotas", nil, policy + " muster-quotas is missing"},
		"a binding is missing":         {binding, "muster-jobs-start", nil, binding + " muster-jobs-start is missing"},
		"a policy fails open":          {policy, "muster-jobs-start", set("Sometimes", "spec", "failurePolicy"), policy + " muster-jobs-start differs at spec.failurePolicy"},
		"a policy lacks a rule":        {policy, "muster-jobs-start", set([]any{}, "spec", "validations"), policy + " muster-jobs-start differs at spec.validations"},
		"the account is another": {policy, "muster-rights-pods", func(o *unstructured.Unstructured) {
			*o = *deploy.Names{Namespace: "other", ServiceAccount: "muster"}.In([]*unstructured.Unstructured{o})[0]
		}, policy + " muster-rights-pods differs at spec.matchConditions"},
		"a binding of other namespaces, which Muster writes": {binding, "muster-jobs-owners", set(map[string]any{}, "spec", "matchResources"), ""},
		"a CRD of an older version": {crd, "nodegroups.muster.dev", func(o *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
			unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec",
				"properties", "queueTimeout")
			set(versions, "spec", "versions")(o)
		}, "properties.spec.properties.queueTimeout"},
		"the CRD of a cluster-autoscaler": {crd, "provisioningrequests.autoscaling.x-k8s.io", func(o *unstructured.Unstructured) {
			set([]any{map[string]any{"name": "v1", "served": true}}, "spec", "versions")(o)
		}, ""},
		"one that is too old": {crd, "provisioningrequests.autoscaling.x-k8s.io", func(o *unstructured.Unstructured) {
			set([]any{map[string]any{"name": "v1beta1", "served": true}}, "spec", "versions")(o)
		}, "does not serve v1"},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(edit(t, objects, tc.kind, tc.object, tc.change)...).Build()
			err := Installed(kube, objects)(t.Context())
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%v, want no error", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v, want an error that says %q", err, tc.want)
			}
		})
	}
}

// TestRightsAreThoseThatAreGranted by the roles, from the rules where they are listed, else one
// by one.
func TestRightsAreThoseThatAreGranted(t *testing.T) {
	asked := 0
	answer := func(rules []authorizationv1.ResourceRule, allow func(*authorizationv1.ResourceAttributes) bool) client.Client {
		return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				switch o := o.(type) {
				case *authorizationv1.SelfSubjectRulesReview:
					o.Status.ResourceRules = rules
				case *authorizationv1.SelfSubjectAccessReview:
					asked++
					o.Status.Allowed = allow(o.Spec.ResourceAttributes)
				}
				return nil
			},
		}).Build()
	}
	all := []authorizationv1.ResourceRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	for name, tc := range map[string]struct {
		kube client.Client
		want []string
		asks bool
	}{
		"all, by the rules":         {answer(all, nil), nil, false},
		"all, by another authority": {answer(nil, func(*authorizationv1.ResourceAttributes) bool { return true }), nil, true},
		"all but bookings": {answer(nil, func(a *authorizationv1.ResourceAttributes) bool {
			return a.Resource != "nodes" || a.Verb != "patch"
		}), []string{"may not patch nodes: ", "service account muster-system/muster"}, true},
		"none": {answer(nil, func(*authorizationv1.ResourceAttributes) bool { return false }), []string{"and ", " more: "}, true},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			check, err := Rights(tc.kube, deploy.Namespace, deploy.ServiceAccount, manifests(t))
			if err != nil {
				t.Fatal(err)
			}
			err = check(t.Context())
			if (err != nil) != (len(tc.want) > 0) || asked > 0 != tc.asks {
				t.Errorf("%v after %d questions", err, asked)
			}
			for _, want := range tc.want {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

// TestAWatchAnswersByItsLastCheck and repeats it sooner after a failure.
func TestAWatchAnswersByItsLastCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks, broken := 0, true
		w := NewWatch("installed", func(context.Context) error {
			if looks++; broken {
				return errors.New("a policy is missing")
			}
			return nil
		}, clock.RealClock{})
		if w.Ready(nil) == nil {
			t.Error("it is ready before the first check")
		}
		go func() { _ = w.Start(ctx) }()
		<-time.After(again / 2)
		if err := w.Ready(nil); err == nil || looks != 1 {
			t.Errorf("after %d looks: %v, want the error of the first", looks, err)
		}
		broken = false
		<-time.After(again)
		if err := w.Ready(nil); err != nil || looks != 2 {
			t.Errorf("after %d looks: %v, want none after the second", looks, err)
		}
		broken = true
		<-time.After(often / 2)
		if err := w.Ready(nil); err != nil {
			t.Errorf("%v before the next check", err)
		}
		<-time.After(often)
		if err := w.Ready(nil); err == nil {
			t.Error("it stays ready without the policy")
		}
		cancel()
		synctest.Wait()
	})
}

func TestALoopInOneStepForMinutesIsUnhealthy(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Now())
	p := NewWatchdog(c)
	p.Of("queues")(func() {
		if err := p.Healthy(nil); err != nil {
			t.Errorf("at once: %v", err)
		}
		c.SetTime(c.Now().Add(stuck + time.Second))
		if err := p.Healthy(nil); err == nil || !strings.Contains(err.Error(), "the loop of the queues has been in one step for 2m1s") {
			t.Errorf("after minutes: %v", err)
		}
	})
	c.SetTime(c.Now().Add(time.Hour))
	if err := p.Healthy(nil); err != nil {
		t.Errorf("at rest: %v", err)
	}
}

// TestADecisionThatNeverEndsIsUnhealthy also where it is not the Probe's own.
func TestADecisionThatNeverEndsIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		turn := make(chan struct{}, 1)
		turn <- struct{}{}
		watchdog := NewWatchdog(clock.RealClock{})
		probe := &Probe{Stepping: watchdog.Of("provisioner"), Clock: clock.RealClock{}, Decide: func(f func()) {
			<-turn
			f()
			turn <- struct{}{}
		}}
		go func() { _ = probe.Start(ctx) }()
		<-time.After(time.Hour)
		if err := watchdog.Healthy(nil); err != nil {
			t.Errorf("while all goes on: %v", err)
		}
		<-turn // a decision that does not end
		<-time.After(stuck + time.Minute)
		if err := watchdog.Healthy(nil); err == nil {
			t.Error("a decision has not ended for minutes, and the process is healthy")
		}
		turn <- struct{}{}
		synctest.Wait()
		if err := watchdog.Healthy(nil); err != nil {
			t.Errorf("after its end: %v", err)
		}
		cancel()
	})
}

// TestCachesThatWereSyncedStaySo: a kind that comes later must not take muster out of service while its cache fills.
func TestCachesThatWereSyncedStaySo(t *testing.T) {
	synced := false
	check := Synced(func(context.Context) bool { return synced })
	for _, step := range []struct {
		name         string
		synced, want bool
	}{{"at the start", false, false}, {"filled", true, true}, {"another kind comes", false, true}} {
		synced = step.synced
		if err := check(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)); (err == nil) != step.want {
			t.Errorf("%s: %v, want ready: %v", step.name, err, step.want)
		}
	}
}
