package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/config"
)

// The policies for Jobs that name no queue, in the namespaces of the bindings of
// their names: defaultPolicy gives them the LocalQueue called default. Where all Jobs
// are to queue, unnamedPolicy suspends them and ownersPolicy has only controllers say
// that something else queues them.
const (
	defaultPolicy = "muster-jobs-default-queue"
	unnamedPolicy = "muster-jobs-unnamed"
	ownersPolicy  = "muster-jobs-owners"
)

// queuedOwners are the kinds that queue as a whole with the Jobs that their
// controllers make: such Jobs need no queue of their own. A CronJob is none of them.
// The policies have the same list.
var queuedOwners = []string{
	"jobset.x-k8s.io/JobSet",
	"kubeflow.org/MPIJob",
	"ray.io/RayCluster",
	"ray.io/RayJob",
	"trainer.kubeflow.org/TrainJob",
	"workload.codeflare.dev/AppWrapper",
}

// isQueued reports whether a Job is in Muster's hands: it names a queue, or its
// namespace is one whose Jobs queue even without.
func (r *reconciler) isQueued(ctx context.Context, job *batchv1.Job) (bool, error) {
	if job.Labels[QueueLabel] != "" {
		return true, nil
	}
	if r.unnamed == nil {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: job.Namespace}, namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !r.unnamed.Matches(labels.Set(namespace.Labels)) {
		return false, nil
	}
	part, err := r.isPartOfAQueued(ctx, job)
	return !part, err
}

// isPartOfAQueued reports whether the Job is one of an object that queues as a whole.
// A user may write any owner into a Job: one that does not exist excuses nothing. It
// is looked for once, since it was there before the Job or never.
func (r *reconciler) isPartOfAQueued(ctx context.Context, job *batchv1.Job) (bool, error) {
	claimed := metav1.GetControllerOf(job)
	if claimed == nil {
		return false, nil
	}
	kind := schema.FromAPIVersionAndKind(claimed.APIVersion, claimed.Kind)
	if !slices.Contains(queuedOwners, kind.Group+"/"+kind.Kind) {
		return false, nil
	}
	var known owner
	if r.remember(job.UID, func(m *memory) { known = m.owner }); known.uid == claimed.UID {
		return known.exists, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err := r.live.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: claimed.Name}, object)
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("reading %s %s/%s, which is said to control Job %s: %w", claimed.Kind, job.Namespace, claimed.Name, job.Name, err)
	}
	known = owner{uid: claimed.UID, exists: err == nil && object.UID == claimed.UID}
	r.remember(job.UID, func(m *memory) { m.owner = known })
	return known.exists, nil
}

// unnamedSelector is nil where only Jobs that name a queue are queued.
func unnamedSelector(c config.Config) (labels.Selector, error) {
	if !c.ManageJobsWithoutQueueName {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(c.ManagedJobsNamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("managedJobsNamespaceSelector: %w; correct it", err)
	}
	return selector, nil
}

// binder has the policies for Jobs without a queue act in the namespaces that the
// configuration selects. So kube-apiserver itself selects them, and the configuration
// is the only place that names them. It changes bindings that are there and makes
// none: the right to make them would be one to change any object of the cluster.
type binder struct {
	client client.Client
	config config.Config
}

// nowhere selects no namespace: all have the label.
var nowhere = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
	{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpDoesNotExist},
}}

// Start makes the bindings select, and returns. A binding may be missing whose policy
// is not needed: without that of the default queue, no Job goes there.
func (b *binder) Start(ctx context.Context) error {
	managed, unnamed, all := b.config.ManagedJobsNamespaceSelector, nowhere, b.config.ManageJobsWithoutQueueName
	if all {
		unnamed = managed
	}
	for _, x := range []struct {
		binding    client.Object
		namespaces *metav1.LabelSelector
		needed     bool
	}{
		{&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: defaultPolicy}}, managed, false},
		{&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: unnamedPolicy}}, unnamed, all},
		{&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: ownersPolicy}}, unnamed, all},
	} {
		switch err := b.bind(ctx, x.binding, x.namespaces); {
		case err == nil || isMissing(err) && !x.needed:
		case isMissing(err):
			return fmt.Errorf("manageJobsWithoutQueueName is true, which needs Kubernetes 1.36 and deploy/policies/jobs.yaml; install them, or set it to false: %w", err)
		default:
			return err
		}
	}
	return nil
}

// bind has a binding select the namespaces.
func (b *binder) bind(ctx context.Context, binding client.Object, namespaces *metav1.LabelSelector) error {
	patch, err := json.Marshal([]map[string]any{{
		"op": "add", "path": "/spec/matchResources", "value": &admissionv1.MatchResources{NamespaceSelector: namespaces},
	}})
	if err != nil {
		return fmt.Errorf("encoding the namespaces of the binding of policy %s: %w", binding.GetName(), err)
	}
	if err := b.client.Patch(ctx, binding, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("muster")); err != nil {
		return fmt.Errorf("selecting the namespaces of the binding of policy %s: %w", binding.GetName(), err)
	}
	return nil
}

func isMissing(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
