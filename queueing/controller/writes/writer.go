package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// Writer writes to the API server. Its methods may be called at once.
type Writer struct {
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time

	// eventRate bounds the Events.
	eventRate *rate.Limiter
}

// NewWriter returns a Writer that records no Events yet.
func NewWriter(c client.Client, live client.Reader) *Writer {
	return &Writer{Client: c, Live: live, Now: time.Now, eventRate: rate.NewLimiter(eventsPerSecond, eventsAtOnce)}
}

// Judged are the versions that a verdict is meant for. The queues go on to newer ones while
// it is carried out.
type Judged struct {
	Object *kueue.Workload
	// Preemptor is the Workload that another one has to stop for; nil if there is none.
	Preemptor *kueue.Workload
}

// Outcome is what became of the writes of one verdict.
type Outcome struct {
	// Workload is what was written of it; nil if nothing was.
	Workload *kueue.Workload
	// Removed says that it, or the job that takes it along, was deleted.
	Removed bool
	Created *autoscaling.ProvisioningRequest
	Deleted []*autoscaling.ProvisioningRequest
	// Refused says why the API server will not accept the request however often it is
	// created.
	Refused string
	// Unknown says that the Workload may have been written or not.
	Unknown bool
	Err     error
}

// CarryOut executes the writes of a verdict, the status first. A crash after any of them is repaired by the next process, since the other
// writes follow from the status.
func (w *Writer) CarryOut(ctx context.Context, v *lifecycle.Verdict, on Judged) (o Outcome) {
	object := on.Object
	switch {
	case v.Action == lifecycle.Deactivate:
		o.Workload, o.Err = w.deactivate(ctx, object)
	case v.Action == lifecycle.Remove:
		o.Err = w.delete(ctx, object, v.Job)
		o.Removed = o.Err == nil
	case v.Action != lifecycle.Wait && v.Status != nil:
		o.Workload, o.Err = ApplyStatus(ctx, w.Client, object, v.Status)
	}
	if o.Err != nil {
		o.Unknown = !isDefinite(o.Err)
		return o
	}
	w.announce(ctx, v, object)
	if on.Preemptor != nil {
		w.Event(on.Preemptor, corev1.EventTypeNormal, "PreemptedWorkload", v.Preemption)
	}
	for _, r := range v.Delete {
		if err := w.Client.Delete(ctx, r, client.Preconditions{UID: &r.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			o.Err = fmt.Errorf("deleting ProvisioningRequest %s/%s: %w", r.Namespace, r.Name, err)
			return o
		}
		o.Deleted = append(o.Deleted, r)
	}
	if v.Create == nil {
		return o
	}
	o.Created, o.Err = w.create(ctx, v.Create, object)
	if errors.Is(o.Err, ErrLeftover) {
		w.Event(object, corev1.EventTypeNormal, "WaitingForDeletion", o.Err.Error())
	}
	if apierrors.IsInvalid(o.Err) || apierrors.IsForbidden(o.Err) || errors.Is(o.Err, errForeign) {
		w.Event(object, corev1.EventTypeWarning, "FailedCreate", o.Err.Error())
		o.Refused, o.Err = o.Err.Error(), nil
	}
	return o
}

// Prioritize writes the priority of a Workload, whatever else is written of it: only its UID
// has to be the same.
func (w *Writer) Prioritize(ctx context.Context, object *kueue.Workload, priority int32) (*kueue.Workload, error) {
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: object.Name, Namespace: object.Namespace}}
	err := w.Client.Patch(ctx, out, client.RawPatch(types.MergePatchType, workload.PriorityPatch(object, priority)))
	out.ManagedFields = nil
	return out, err
}

// Annotate writes an annotation of an object.
func (w *Writer) Annotate(ctx context.Context, object client.Object, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		return err
	}
	return w.Client.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch))
}

// RemoveFinalizer removes Kueue's finalizer from an object.
func (w *Writer) RemoveFinalizer(ctx context.Context, object client.Object) error {
	released := object.DeepCopyObject().(client.Object)
	controllerutil.RemoveFinalizer(released, kueue.ResourceInUseFinalizerName)
	return w.Client.Patch(ctx, released, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
}

// deactivate writes the spec of a Workload: its condition says why it must not run. The
// eviction follows from it.
func (w *Writer) deactivate(ctx context.Context, object *kueue.Workload) (*kueue.Workload, error) {
	out := object.DeepCopy()
	out.Spec.Active = new(false)
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	if err := w.Client.Patch(ctx, out, patch); err != nil {
		return nil, fmt.Errorf("deactivating Workload %s/%s: %w", out.Namespace, out.Name, err)
	}
	out.ManagedFields = nil
	return out, nil
}

// delete deletes a Workload, or the job that takes it along. Kueue's finalizer is removed
// from it as from all objects that wait for that.
func (w *Writer) delete(ctx context.Context, workload *kueue.Workload, job *metav1.OwnerReference) error {
	object, uid, kind := client.Object(workload), workload.UID, "Workload"
	if job != nil {
		object = &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: job.APIVersion, Kind: job.Kind},
			ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: workload.Namespace},
		}
		uid, kind = job.UID, job.Kind
	}
	// A conflict says that another one has its name: this one is gone.
	err := w.Client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("deleting %s %s/%s: %w", kind, workload.Namespace, object.GetName(), err)
}

// isDefinite reports whether an error came from the API server, which so refused the write;
// after any other the write may have taken effect.
func isDefinite(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

// IsStale reports whether an object has changed or gone since it was read: the informer is
// about to say so.
func IsStale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// announce records the Events of the steps that users wait for.
func (w *Writer) announce(ctx context.Context, v *lifecycle.Verdict, object *kueue.Workload) {
	logVerdict(ctx, v, object)
	switch v.Action {
	case lifecycle.Reserve:
		w.Event(object, corev1.EventTypeNormal, v.Reason, v.Message)
		if len(v.Status.AdmissionChecks) == 0 {
			w.Event(object, corev1.EventTypeNormal, "Admitted",
				fmt.Sprintf("Admitted by ClusterQueue %s, wait time since reservation was 0s", v.Status.Admission.ClusterQueue))
		}
	case lifecycle.Admit, lifecycle.Finish, lifecycle.Remove:
		w.Event(object, corev1.EventTypeNormal, v.Reason, v.Message)
	case lifecycle.Evict:
		if v.Reason == kueue.WorkloadEvictedByPreemption {
			w.Event(object, corev1.EventTypeNormal, "Preempted", v.Message)
		}
		w.Event(object, corev1.EventTypeNormal, "EvictedDueTo"+v.Reason, v.Message)
	case lifecycle.Deactivate:
		w.Event(object, corev1.EventTypeWarning, v.Reason, v.Message)
	}
}

const (
	// eventsPerSecond and eventsAtOnce bound the Events of steps that went well. An Event
	// costs the API server half of what the step itself does, and conditions say the same;
	// warnings are few and always recorded.
	eventsPerSecond = 10
	eventsAtOnce    = 500
)

// Event leaves an Event to the recorder, which never waits.
func (w *Writer) Event(object client.Object, kind, reason, message string) {
	if kind == corev1.EventTypeNormal && !w.eventRate.AllowN(w.Now(), 1) {
		return
	}
	w.Recorder.Eventf(object, nil, kind, reason, reason, "%s", text.Clip(message, text.NoteLimit))
}
