package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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

// The policies for Jobs that name no queue, in the namespaces of the bindings of their
// names: defaultPolicy gives them the LocalQueue called default. Where all jobs are to be
// queued, unqueuedPolicy suspends them, and ownersPolicy lets only controllers claim an
// owner that is queued as a whole.
const (
	defaultPolicy  = "muster-jobs-default-queue"
	unqueuedPolicy = "muster-jobs-unnamed"
	ownersPolicy   = "muster-jobs-owners"
)

// queuedOwners are the kinds that are queued as a whole, with the jobs that their
// controllers create: such jobs need no queue of their own. A CronJob is not one of them.
// The policies have the same list.
var queuedOwners = []string{
	"jobset.x-k8s.io/JobSet",
	"kubeflow.org/MPIJob",
	"ray.io/RayCluster",
	"ray.io/RayJob",
	"trainer.kubeflow.org/TrainJob",
	"workload.codeflare.dev/AppWrapper",
}

// isQueued reports whether a job is to be queued: it names a queue, or all jobs of its
// namespace are queued.
func (r *reconciler) isQueued(ctx context.Context, job client.Object) (bool, error) {
	if job.GetLabels()[QueueLabel] != "" {
		return true, nil
	}
	if r.unqueued == nil {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: job.GetNamespace()}, namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !r.unqueued.Matches(labels.Set(namespace.Labels)) {
		return false, nil
	}
	part, err := r.isPartOfQueued(ctx, job)
	return !part, err
}

// isPartOfQueued reports whether an object that is queued as a whole controls the job. A
// user may write any owner into a job: one that does not exist excuses nothing. It is
// looked for once, since it existed before the job or never.
func (r *reconciler) isPartOfQueued(ctx context.Context, job client.Object) (bool, error) {
	claimed := metav1.GetControllerOf(job)
	if claimed == nil {
		return false, nil
	}
	kind := schema.FromAPIVersionAndKind(claimed.APIVersion, claimed.Kind)
	if !slices.Contains(queuedOwners, kind.Group+"/"+kind.Kind) {
		return false, nil
	}
	var known owner
	if r.remember(job.GetUID(), func(m *memory) { known = m.owner }); known.uid == claimed.UID {
		return known.exists, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err := r.live.Get(ctx, client.ObjectKey{Namespace: job.GetNamespace(), Name: claimed.Name}, object)
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("reading %s %s/%s, the claimed controller of %s: %w", claimed.Kind, job.GetNamespace(), claimed.Name,
			r.name(job), err)
	}
	known = owner{uid: claimed.UID, exists: err == nil && object.UID == claimed.UID}
	r.remember(job.GetUID(), func(m *memory) { m.owner = known })
	return known.exists, nil
}

// unqueuedSelector is nil where only jobs that name a queue are queued.
func unqueuedSelector(c config.Config) (labels.Selector, error) {
	if !c.ManageJobsWithoutQueueName {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(c.ManagedJobsNamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("managedJobsNamespaceSelector: %w; correct it", err)
	}
	return selector, nil
}

// binder lets the policies for Jobs without a queue act in the namespaces that the
// configuration selects. So kube-apiserver itself selects them, and the configuration is
// the only place that names them. It changes existing bindings and creates none: the right
// to create them would be one to change any object of the cluster.
type binder struct {
	client client.Client
	config config.Config
	// webhook reports whether a webhook does what the mutating policies would do.
	webhook bool
}

// Namespaces returns the namespaces in which policies act, by the name of the policy.
func Namespaces(c config.Config) map[string]*metav1.LabelSelector {
	managed, unqueued := c.ManagedJobsNamespaceSelector, nowhere
	if c.ManageJobsWithoutQueueName {
		unqueued = managed
	}
	return map[string]*metav1.LabelSelector{defaultPolicy: managed, unqueuedPolicy: unqueued, ownersPolicy: unqueued}
}

// nowhere selects no namespace, since all have the label.
var nowhere = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
	{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpDoesNotExist},
}}

// Start writes the selectors of the bindings, and returns. A binding may be missing whose
// policy is not needed: without that of the default queue, no Job goes there.
func (b *binder) Start(ctx context.Context) error {
	namespaces, all := Namespaces(b.config), b.config.ManageJobsWithoutQueueName
	for _, x := range []struct {
		binding client.Object
		needed  bool
	}{
		{&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: defaultPolicy}}, false},
		{&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: unqueuedPolicy}}, all && !b.webhook},
		{&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: ownersPolicy}}, all},
	} {
		switch err := b.bind(ctx, x.binding, namespaces[x.binding.GetName()]); {
		case err == nil || isMissing(err) && !x.needed:
		case isMissing(err):
			return fmt.Errorf("manageJobsWithoutQueueName is true, which needs the policies in deploy/policies/jobs.yaml: install them, in a "+
				"cluster without mutating admission policies with the webhook (`muster manifests --webhook`, --webhook-bind-address), "+
				"or set it to false: %w", err)
		default:
			return err
		}
	}
	return nil
}

// bind lets a binding select the namespaces.
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
