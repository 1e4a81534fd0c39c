package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
)

// policiesInForce returns when the admission policies are in force. kube-apiserver enforces them a moment after they exist, each type by
// itself; a queued Job that is created in that moment would start. For up to 5 s after one of Kueue's kinds is installed, kube-apiserver
// refuses objects of that kind, because it cannot determine whether to mutate them.
func policiesInForce(ctx context.Context, config *rest.Config) error {
	if err := quotasInForce(ctx, config); err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	queues, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, probe := range []func(context.Context) (bool, error){
		func(ctx context.Context) (bool, error) { return jobsAreSuspended(ctx, kube) },
		func(ctx context.Context) (bool, error) { return flavorsAreFinalized(ctx, queues) },
	} {
		if err := await(ctx, probe); err != nil {
			return err
		}
	}
	return nil
}

// quotasInForce returns when the validating policies act.
func quotasInForce(ctx context.Context, config *rest.Config) error {
	queues, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) (bool, error) { return quotasAreJudged(ctx, queues) })
}

func await(ctx context.Context, probe func(context.Context) (bool, error)) error {
	for {
		acts, err := probe(ctx)
		if acts {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the admission policies to act: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// probeName is of objects that are not kept.
const probeName = "muster-policy-probe"

// suspendPolicy suspends queued Jobs, and its binding has the same name.
const suspendPolicy = "muster-jobs-suspend"

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// jobsAreSuspended reports whether a queued Job is suspended at its creation, or would be if its namespace were managed.
func jobsAreSuspended(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	probe := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: probeName, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "probe"}}}
	probe.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "probe", Image: "probe"}},
	}
	made, err := kube.BatchV1().Jobs(metav1.NamespaceDefault).Create(ctx, probe, dryRun)
	if err != nil || made.Spec.Suspend != nil && *made.Spec.Suspend {
		return err == nil, err
	}
	managed, err := isManaged(ctx, kube, metav1.NamespaceDefault)
	return err == nil && !managed, err
}

// isManaged reports whether the policy that suspends queued Jobs, or the webhook in its place, acts in a namespace. Muster writes into it
// which namespaces its settings select.
func isManaged(ctx context.Context, kube kubernetes.Interface, namespace string) (bool, error) {
	ns, err := kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	selected := &metav1.LabelSelector{}
	hooks, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, deploy.WebhookConfiguration, metav1.GetOptions{})
	switch {
	case err == nil:
		suspends := &deploy.Policy{}
		suspends.Name = suspendPolicy
		for _, w := range hooks.Webhooks {
			if w.Name == suspends.WebhookName() && w.NamespaceSelector != nil {
				selected = w.NamespaceSelector
			}
		}
	case apierrors.IsNotFound(err):
		binding, err := kube.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, suspendPolicy, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if m := binding.Spec.MatchResources; m != nil && m.NamespaceSelector != nil {
			selected = m.NamespaceSelector
		}
	default:
		return false, err
	}
	selector, err := metav1.LabelSelectorAsSelector(selected)
	return err == nil && selector.Matches(labels.Set(ns.Labels)), err
}

func flavorsAreFinalized(ctx context.Context, queues dynamic.Interface) (bool, error) {
	made, err := queues.Resource(kueue.SchemeGroupVersion.WithResource("resourceflavors")).Create(ctx,
		queueObject("ResourceFlavor", probeName, nil), dryRun)
	return err == nil && slices.Contains(made.GetFinalizers(), kueue.ResourceInUseFinalizerName), err
}

func quotasAreJudged(ctx context.Context, queues dynamic.Interface) (bool, error) {
	bad := map[string]any{"fairSharing": map[string]any{"weight": "-1"}}
	_, err := queues.Resource(kueue.SchemeGroupVersion.WithResource("cohorts")).Create(ctx, queueObject("Cohort", probeName, bad), dryRun)
	return apierrors.IsForbidden(err), err
}

func queueObject(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind(kind))
	o.SetName(name)
	return o
}
