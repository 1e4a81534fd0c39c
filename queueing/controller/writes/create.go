package writes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/checks"
)

// create creates the templates first: a request whose templates are missing fails for good.
// All names follow from the Workload and the attempt, so that doing it twice is harmless.
func (w *Writer) create(ctx context.Context, request *checks.Request, owner *kueue.Workload) (*autoscaling.ProvisioningRequest, error) {
	r := request.Object
	var templates []*corev1.PodTemplate
	for _, t := range request.Templates {
		created, err := w.createTemplate(ctx, owner, r.Name, t)
		if err != nil {
			return nil, fmt.Errorf("creating PodTemplate %s/%s: %w", t.Namespace, t.Name, err)
		}
		templates = append(templates, created)
	}
	created, err := w.createOwn(ctx, owner, r.Name, r, &autoscaling.ProvisioningRequest{})
	if err != nil {
		return nil, fmt.Errorf("creating ProvisioningRequest %s/%s: %w", r.Namespace, r.Name, err)
	}
	own := created.(*autoscaling.ProvisioningRequest)
	own.ManagedFields = nil
	if request.Adopts {
		for _, t := range templates {
			if err := w.adopt(ctx, own, t); client.IgnoreNotFound(err) != nil {
				return own, fmt.Errorf("making ProvisioningRequest %s/%s the owner of PodTemplate %s: %w", r.Namespace, r.Name, t.Name, err)
			}
		}
	}
	for _, name := range request.Superseded {
		t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Namespace}}
		if err := w.Client.Delete(ctx, t); client.IgnoreNotFound(err) != nil {
			return own, fmt.Errorf("deleting PodTemplate %s/%s of the last attempt: %w", t.Namespace, t.Name, err)
		}
	}
	return own, nil
}

// createTemplate creates a template. One that the Workload has already is of an attempt that
// was cut short, perhaps for other flavors, and is brought up to date: no request uses it
// yet.
func (w *Writer) createTemplate(ctx context.Context, owner *kueue.Workload, request string, want *corev1.PodTemplate) (*corev1.PodTemplate,
	error) {
	have := &corev1.PodTemplate{}
	created, err := w.createOwn(ctx, owner, request, want, have)
	if err != nil || created != have {
		out, _ := created.(*corev1.PodTemplate)
		return out, err
	}
	updated := have.DeepCopy()
	updated.Template = want.Template
	return updated, w.Client.Patch(ctx, updated, client.MergeFrom(have))
}

// adopt makes a request the owner of a template in place of its Workload.
func (w *Writer) adopt(ctx context.Context, r *autoscaling.ProvisioningRequest, t *corev1.PodTemplate) error {
	owned := t.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r, requestKind)}
	return w.Client.Patch(ctx, owned, client.MergeFrom(t))
}

var requestKind = autoscaling.SchemeGroupVersion.WithKind("ProvisioningRequest")

var (
	// errForeign: another owner's object has the name of one to create.
	errForeign = errors.New("an object of this name exists that Muster did not create; delete or rename it")
	// ErrLeftover: the object of that name is of a Workload or an attempt that is over, and
	// about to go.
	ErrLeftover = errors.New("an object of the same name, whose owner was deleted, still exists; waiting until it is gone")
)

// createOwn creates an object of a request unless the Workload owns it already, and returns the stored object. An object of the same name
// with another owner is not used, since its spec may differ. The existing object is read into have, past the cache.
func (w *Writer) createOwn(ctx context.Context, owner *kueue.Workload, request string, object, have client.Object) (client.Object, error) {
	object = object.DeepCopyObject().(client.Object)
	err := w.Client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return object, err
	}
	if err := w.Live.Get(ctx, client.ObjectKeyFromObject(object), have); err != nil {
		return nil, err
	}
	switch controller := metav1.GetControllerOf(have); {
	case metav1.IsControlledBy(have, owner) && have.GetDeletionTimestamp().IsZero():
		return have, nil
	case controller != nil && controller.Kind == "Workload" && controller.Name == owner.Name,
		controller != nil && controller.Kind == requestKind.Kind && controller.Name == request:
		return nil, ErrLeftover
	}
	return nil, errForeign
}
