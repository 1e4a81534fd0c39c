package deploy

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Mutations says what changes objects as they are created and updated: suspends queued Jobs,
// cordons nodes, sends pods to their booking.
type Mutations string

const (
	// ByPolicies is kube-apiserver itself, by mutating admission policies.
	ByPolicies Mutations = "policies"
	// ByWebhook is muster, called by kube-apiserver.
	ByWebhook Mutations = "webhook"
	// ByControllers is muster, a moment later, as far as that is possible.
	ByControllers Mutations = "controllers"
)

const (
	// WebhookConfiguration is the name of the MutatingWebhookConfiguration.
	WebhookConfiguration = "muster"
	// inAPIServer is an annotation of policies that a webhook cannot stand in for.
	inAPIServer = "muster.dev/in-api-server"
	// webhookService is the Service in webhook/webhook.yaml.
	webhookService = "muster-webhook"
	// webhookSeconds bounds how long a request waits for a webhook that does not answer.
	webhookSeconds = 2
)

// Policy is a mutating admission policy with its binding.
type Policy struct {
	admissionv1.MutatingAdmissionPolicy
	Binding admissionv1.MutatingAdmissionPolicyBinding
}

// WebhookPath is where the webhook serves the mutations of the policy.
func (p *Policy) WebhookPath() string { return "/mutate/" + p.Name }

// WebhookName is the name of the webhook for the policy.
func (p *Policy) WebhookName() string {
	return strings.TrimPrefix(p.Name, "muster-") + ".webhook.muster.dev"
}

// Policies returns the mutating admission policies among manifests that a webhook can stand in
// for, in their order.
func (n Names) Policies(objects []*unstructured.Unstructured) ([]*Policy, error) {
	return policiesAmong(n.In(objects))
}

func policiesAmong(objects []*unstructured.Unstructured) (out []*Policy, err error) {
	for _, o := range objects {
		if o.GetAnnotations()[inAPIServer] != "" {
			continue
		}
		switch o.GetKind() {
		case "MutatingAdmissionPolicy":
			p := &Policy{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p.MutatingAdmissionPolicy); err != nil {
				return nil, fmt.Errorf("reading policy %s: %w", o.GetName(), err)
			}
			out = append(out, p)
		case "MutatingAdmissionPolicyBinding":
			i := slices.IndexFunc(out, func(p *Policy) bool { return p.Name == o.GetName() })
			if i < 0 {
				return nil, fmt.Errorf("binding %s comes before the policy of its name; put it behind", o.GetName())
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out[i].Binding); err != nil {
				return nil, fmt.Errorf("reading binding %s: %w", o.GetName(), err)
			}
		}
	}
	return out, nil
}

// By leaves in the objects what is for mutations made in that way: all that Manifests returns is
// for policies.
func (m Mutations) By(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if m == ByPolicies {
		return objects, nil
	}
	out := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(o.GetKind(), "MutatingAdmissionPolicy")
	})
	if m == ByControllers {
		return out, nil
	}
	policies, err := policiesAmong(objects)
	if err != nil {
		return nil, err
	}
	text, err := files.ReadFile("webhook/webhook.yaml")
	if err != nil {
		return nil, err
	}
	beside, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("deploy/webhook: %w", err)
	}
	configuration, err := runtime.DefaultUnstructuredConverter.ToUnstructured(webhooks(policies))
	if err != nil {
		return nil, fmt.Errorf("encoding the webhooks: %w", err)
	}
	unstructured.RemoveNestedField(configuration, "metadata", "creationTimestamp")
	return append(append(out, beside...), &unstructured.Unstructured{Object: configuration}), nil
}

// webhooks has kube-apiserver call muster where a policy would match, by the policy's own rules,
// selectors and conditions. failurePolicy is Ignore in all: without an answer an object passes
// as it is.
func webhooks(policies []*Policy) *admissionv1.MutatingWebhookConfiguration {
	out := &admissionv1.MutatingWebhookConfiguration{}
	out.APIVersion, out.Kind, out.Name = admissionv1.SchemeGroupVersion.String(), "MutatingWebhookConfiguration", WebhookConfiguration
	for _, p := range policies {
		reinvocation, match := p.Spec.ReinvocationPolicy, p.Spec.MatchConstraints
		var namespaces *metav1.LabelSelector
		if bound := p.Binding.Spec.MatchResources; bound != nil {
			namespaces = bound.NamespaceSelector
		}
		w := admissionv1.MutatingWebhook{
			Name: p.WebhookName(),
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: Namespace, Name: webhookService, Path: new(p.WebhookPath()), Port: new(int32(443)),
			}},
			FailurePolicy: new(admissionv1.Ignore), SideEffects: new(admissionv1.SideEffectClassNone), TimeoutSeconds: new(int32(webhookSeconds)),
			AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &reinvocation,
			MatchPolicy: match.MatchPolicy, ObjectSelector: match.ObjectSelector, NamespaceSelector: OutsideSystem(namespaces),
			MatchConditions: p.Spec.MatchConditions,
		}
		for _, r := range match.ResourceRules {
			w.Rules = append(w.Rules, r.RuleWithOperations)
		}
		out.Webhooks = append(out.Webhooks, w)
	}
	return out
}

// OutsideSystem narrows a selector, nil for all namespaces, to those that are neither the cluster's own nor Muster's, whose pods must start
// without the webhook.
func OutsideSystem(namespaces *metav1.LabelSelector) *metav1.LabelSelector {
	out := &metav1.LabelSelector{}
	if namespaces != nil {
		out = namespaces.DeepCopy()
	}
	out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem, Namespace},
	})
	return out
}
