package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	applyadmissionv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/config"
)

// unnamedPolicy suspends Jobs that name no queue at their creation. It does so in
// the namespaces of the binding of its name, which is there only where an
// administrator wants such Jobs queued.
const unnamedPolicy = "muster-jobs-unnamed"

// queuedOwners are the API groups of controllers that queue as a whole: the Jobs
// that they make need no queue of their own. A CronJob is none of them. The
// policies have the same list.
var queuedOwners = []string{
	"apps",
	"jobset.x-k8s.io",
	"kubeflow.org",
	"leaderworkerset.x-k8s.io",
	"ray.io",
	"sparkoperator.k8s.io",
	"trainer.kubeflow.org",
	"workload.codeflare.dev",
}

// isQueued says that a Job is in Muster's hands: it names a queue, or its
// namespace is one whose Jobs queue even without.
func (r *reconciler) isQueued(ctx context.Context, job *batchv1.Job) (bool, error) {
	if job.Labels[QueueLabel] != "" {
		return true, nil
	}
	if r.unnamed == nil || isPartOfAQueued(job) {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: job.Namespace}, namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return r.unnamed.Matches(labels.Set(namespace.Labels)), nil
}

func isPartOfAQueued(job *batchv1.Job) bool {
	owner := metav1.GetControllerOf(job)
	if owner == nil {
		return false
	}
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return slices.Contains(queuedOwners, group)
}

// unnamedSelector is nil where only Jobs that name a queue are queued.
func unnamedSelector(c config.Config) (labels.Selector, error) {
	if !c.ManageJobsWithoutQueueName {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(unnamedNamespaces(c))
	if err != nil {
		return nil, fmt.Errorf("managedJobsNamespaceSelector: %w; correct it", err)
	}
	return selector, nil
}

// unnamedNamespaces leaves out by default those that the cluster itself needs to
// get going: a Job there that waited for a queue could be what the queue waits for.
func unnamedNamespaces(c config.Config) *metav1.LabelSelector {
	if c.ManagedJobsNamespaceSelector != nil {
		return c.ManagedJobsNamespaceSelector
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem, "muster-system"},
	}}}
}

// binder puts the policy for Jobs without a queue into force, or takes it out, as
// the configuration says. So kube-apiserver itself selects the namespaces, and
// the configuration is the only place that names them.
type binder struct {
	client client.Client
	config config.Config
}

// Start makes the binding be or be gone, and returns.
func (b *binder) Start(ctx context.Context) error {
	if !b.config.ManageJobsWithoutQueueName {
		binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: unnamedPolicy}}
		if err := b.client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("deleting MutatingAdmissionPolicyBinding %s, since manageJobsWithoutQueueName is false: %w", unnamedPolicy, err)
		}
		return nil
	}
	selector := applymetav1.LabelSelector()
	namespaces := unnamedNamespaces(b.config)
	selector.WithMatchLabels(namespaces.MatchLabels)
	for _, e := range namespaces.MatchExpressions {
		selector.WithMatchExpressions(applymetav1.LabelSelectorRequirement().WithKey(e.Key).WithOperator(e.Operator).WithValues(e.Values...))
	}
	binding := applyadmissionv1.MutatingAdmissionPolicyBinding(unnamedPolicy).WithSpec(applyadmissionv1.MutatingAdmissionPolicyBindingSpec().
		WithPolicyName(unnamedPolicy).
		WithMatchResources(applyadmissionv1.MatchResources().WithNamespaceSelector(selector)))
	err := b.client.Apply(ctx, binding, client.FieldOwner("muster"), client.ForceOwnership)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("manageJobsWithoutQueueName is true, which needs the mutating policies of Kubernetes 1.36; set it to false: %w", err)
	}
	if err != nil {
		return fmt.Errorf("applying MutatingAdmissionPolicyBinding %s: %w", unnamedPolicy, err)
	}
	return nil
}
