package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestEveryPolicyHasItsWebhook, which is called for what the policy matches, and is in the way
// of nothing.
func TestEveryPolicyHasItsWebhook(t *testing.T) {
	for _, halves := range [][]Half{Halves, {Provisioning}, {Queueing}} {
		objects, err := Manifests(halves...)
		if err != nil {
			t.Fatal(err)
		}
		policies, err := policiesAmong(objects)
		if err != nil {
			t.Fatal(err)
		}
		fitted, err := ByWebhook.By(objects)
		if err != nil {
			t.Fatal(err)
		}
		var configuration admissionv1.MutatingWebhookConfiguration
		for _, o := range fitted {
			if strings.HasPrefix(o.GetKind(), "MutatingAdmissionPolicy") {
				t.Errorf("%v: %s %s is still there", halves, o.GetKind(), o.GetName())
			}
			if o.GetKind() == "MutatingWebhookConfiguration" {
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &configuration); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(configuration.Webhooks) != len(policies) || len(policies) == 0 {
			t.Fatalf("%v: %d policies have %d webhooks", halves, len(policies), len(configuration.Webhooks))
		}
		for i, w := range configuration.Webhooks {
			p := policies[i]
			if w.Name != p.WebhookName() || *w.ClientConfig.Service.Path != p.WebhookPath() {
				t.Errorf("webhook %s at %s is not that of %s", w.Name, *w.ClientConfig.Service.Path, p.Name)
			}
			if *w.FailurePolicy != admissionv1.Ignore || *w.SideEffects != admissionv1.SideEffectClassNone || *w.TimeoutSeconds > 2 {
				t.Errorf("%s: failurePolicy %s, sideEffects %s, timeoutSeconds %d", w.Name, *w.FailurePolicy, *w.SideEffects, *w.TimeoutSeconds)
			}
			if w.NamespaceSelector == nil || len(w.NamespaceSelector.MatchExpressions) == 0 {
				t.Errorf("%s is called in all namespaces", w.Name)
			}
			if diff := cmp.Diff(p.Spec.MatchConditions, w.MatchConditions); diff != "" || len(w.MatchConditions) == 0 {
				t.Errorf("%s has other conditions than its policy: (-want +got):\n%s", w.Name, diff)
			}
			for j, r := range w.Rules {
				if diff := cmp.Diff(p.Spec.MatchConstraints.ResourceRules[j].RuleWithOperations, r); diff != "" {
					t.Errorf("%s has another rule than its policy: (-want +got):\n%s", w.Name, diff)
				}
			}
		}
	}
}

// TestPoliciesUseWhatAWebhookHas: a webhook has no place for the rest of what a policy may say.
func TestPoliciesUseWhatAWebhookHas(t *testing.T) {
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := DefaultNames.Policies(objects)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		if bound := p.Binding.Spec.MatchResources; bound != nil &&
			(bound.ObjectSelector != nil || bound.ResourceRules != nil || bound.ExcludeResourceRules != nil) {
			t.Errorf("%s: the binding selects by more than the namespace", p.Name)
		}
		if m := p.Spec.MatchConstraints; m.NamespaceSelector != nil || m.ExcludeResourceRules != nil || slices.ContainsFunc(m.ResourceRules,
			func(r admissionv1.NamedRuleWithOperations) bool { return len(r.ResourceNames) > 0 }) {
			t.Errorf("%s: matchConstraints has a namespaceSelector, excludeResourceRules or resourceNames", p.Name)
		}
		for _, c := range p.Spec.MatchConditions {
			if strings.Contains(c.Expression, "params") || strings.Contains(c.Expression, "variables") {
				t.Errorf("%s: condition %s reads params or variables", p.Name, c.Name)
			}
		}
		// Its mutations are evaluated by muster, which has neither.
		texts := []string{}
		for _, v := range p.Spec.Variables {
			texts = append(texts, v.Expression)
		}
		for _, m := range p.Spec.Mutations {
			if m.JSONPatch != nil {
				texts = append(texts, m.JSONPatch.Expression)
			} else {
				texts = append(texts, m.ApplyConfiguration.Expression)
			}
		}
		for _, text := range texts {
			if strings.Contains(text, "authorizer") || strings.Contains(text, "namespaceObject") {
				t.Errorf("%s: a mutation reads the authorizer or the namespace: %s", p.Name, text)
			}
		}
	}
}

// TestOldVersionsGetAllButThePolicies that they lack.
func TestOldVersionsGetAllButThePolicies(t *testing.T) {
	all, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	names := func(m Mutations) (out []string) {
		objects, err := m.By(all)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			out = append(out, o.GetKind()+" "+o.GetName())
		}
		return out
	}
	want := names(ByPolicies)
	if len(want) != len(all) {
		t.Errorf("%d of %d objects are for policies", len(want), len(all))
	}
	want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, "MutatingAdmissionPolicy") })
	if diff := cmp.Diff(want, names(ByControllers)); diff != "" {
		t.Errorf("for controllers: (-want +got):\n%s", diff)
	}
	want = append(want, "Service muster-webhook", "ClusterRole muster-webhook", "ClusterRoleBinding muster-webhook",
		"MutatingWebhookConfiguration muster")
	if diff := cmp.Diff(want, names(ByWebhook)); diff != "" {
		t.Errorf("for a webhook: (-want +got):\n%s", diff)
	}
}
