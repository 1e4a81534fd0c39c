package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/controller/writer"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

// dispatch has a verdict carried out.
func (l *loop) dispatch(v *lifecycle.Verdict, now time.Time) {
	uid := v.Workload.Object.UID
	if v.Action == lifecycle.Prioritize {
		l.prioritize(v.Workload.Object, v.Priority)
		return
	}
	if v.Action == lifecycle.Wait {
		if v.Status != nil {
			l.reasons.note(v.Workload.Object, v.Reason, v.Message, now)
		}
		if v.Create == nil && len(v.Delete) == 0 {
			return
		}
	} else {
		l.reasons.remove(uid)
	}
	if v.Create != nil {
		l.creating++
	}
	on := judged{object: v.Workload.Object}
	if v.PreemptedBy != "" {
		on.preemptor = l.known.workload(v.PreemptedBy)
	}
	if !l.reasons.hold(uid, held{waits: v.Action == lifecycle.Wait, then: func(before, after *kueue.Workload) {
		if after != nil && before.ResourceVersion == on.object.ResourceVersion {
			// Nothing but the reason has changed since the verdict.
			on.object = after
		}
		l.carryOut(v, on)
	}}) {
		l.carryOut(v, on)
	}
}

// judged are the versions that a verdict is meant for. The State goes on to newer
// ones while it is carried out.
type judged struct {
	object *kueue.Workload
	// preemptor is the Workload that another one has to stop for; nil if there is none.
	preemptor *kueue.Workload
}

// carryOut starts the writes of a verdict.
func (l *loop) carryOut(v *lifecycle.Verdict, on judged) {
	l.start(urgencyOf(v), func(ctx context.Context) settle {
		began := l.now()
		o := l.perform(ctx, v, on)
		took := l.now().Sub(began)
		return func(now time.Time) {
			l.pace(took, now)
			l.report.acted()
			l.reasons.acted()
			if v.Create != nil {
				l.creating--
			}
			if o.workload != nil {
				l.showVerdict(v, on.object, o.workload, now)
			}
			l.settle(on.object, o, now)
		}
	})
}

func urgencyOf(v *lifecycle.Verdict) urgency {
	switch {
	case v.Action == lifecycle.Evict, v.Action == lifecycle.Release, v.Action == lifecycle.Deactivate, v.Action == lifecycle.Finish:
		return freeing
	case v.Action == lifecycle.Wait && v.Create == nil: // requests that nobody needs keep room
		return freeing
	}
	return acting
}

// outcome is what became of the writes of one verdict.
type outcome struct {
	// workload is what was written of it; nil if nothing was.
	workload *kueue.Workload
	// removed says that it, or the job that takes it along, was deleted.
	removed bool
	created *autoscaling.ProvisioningRequest
	deleted []*autoscaling.ProvisioningRequest
	// refused says why the API server will not take the request however often it is
	// asked.
	refused string
	// unknown says that the Workload may have been written or not.
	unknown bool
	err     error
}

// perform does the writes of a verdict in an order in which a crash after any of
// them is mended by the next process: the status first, then what follows from it.
func (l *loop) perform(ctx context.Context, v *lifecycle.Verdict, on judged) (o outcome) {
	object := on.object
	switch {
	case v.Action == lifecycle.Deactivate:
		o.workload, o.err = l.deactivate(ctx, object)
	case v.Action == lifecycle.Remove:
		o.err = l.delete(ctx, object, v.Job)
		o.removed = o.err == nil
	case v.Action != lifecycle.Wait && v.Status != nil:
		o.workload, o.err = writer.ApplyStatus(ctx, l.client, object, v.Status)
	}
	if o.err != nil {
		o.unknown = !definite(o.err)
		return o
	}
	l.announce(v, object)
	if on.preemptor != nil {
		l.event(on.preemptor, corev1.EventTypeNormal, "PreemptedWorkload", v.Preemption)
	}
	for _, r := range v.Delete {
		if err := l.client.Delete(ctx, r, client.Preconditions{UID: &r.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			o.err = fmt.Errorf("deleting ProvisioningRequest %s/%s: %w", r.Namespace, r.Name, err)
			return o
		}
		o.deleted = append(o.deleted, r)
	}
	if v.Create == nil {
		return o
	}
	o.created, o.err = l.create(ctx, v.Create, object)
	if errors.Is(o.err, errLeftover) {
		l.event(object, corev1.EventTypeNormal, "WaitingForDeletion", o.err.Error())
	}
	if apierrors.IsInvalid(o.err) || apierrors.IsForbidden(o.err) || errors.Is(o.err, errForeign) {
		l.event(object, corev1.EventTypeWarning, "FailedCreate", o.err.Error())
		o.refused, o.err = o.err.Error(), nil
	}
	return o
}

// settle takes the outcome of a verdict into the State.
func (l *loop) settle(object *kueue.Workload, o outcome, now time.Time) {
	uid := object.UID
	for _, r := range o.deleted {
		if l.known.objects[r.UID] != nil {
			l.state.Deleted(r, now)
		}
	}
	if o.created != nil && !l.deleted[o.created.UID] {
		l.set(o.created)
	}
	have := l.known.workload(uid)
	switch {
	case have == nil:
		l.retries.forget(uid)
		l.settled(object, nil)
	case o.unknown:
		l.log.Info("A write has an unknown outcome", "workload", client.ObjectKeyFromObject(object), "error", o.err.Error())
		l.retries.later(uid, now, func(time.Time) { l.reread(object) })
	case o.err != nil && isStale(o.err) && have.ResourceVersion != object.ResourceVersion:
		// What it was stale against is here.
		l.settled(object, nil)
	case errors.Is(o.err, errLeftover):
		l.log.Info("A name is still taken", "workload", client.ObjectKeyFromObject(object), "error", o.err.Error())
		l.retries.soon(now, func(time.Time) { l.settled(object, o.workload) })
	case o.err != nil:
		l.failed(object, o.err)
		l.retries.later(uid, now, func(time.Time) { l.settled(object, o.workload) })
	case o.refused != "":
		if o.workload != nil {
			l.set(o.workload)
		}
		if end := l.state.Refused(uid, o.refused, now); end != nil {
			l.dispatch(end, now)
			return
		}
		l.settled(object, nil)
	case o.removed:
		l.retries.forget(uid)
		l.state.Settle(uid, going(have, now))
	default:
		l.retries.forget(uid)
		l.settled(object, o.workload)
	}
}

// going is a Workload that was deleted, before the informer tells so. Until its
// finalizers and its job are gone it would be deleted again in every cycle.
func going(w *kueue.Workload, now time.Time) *kueue.Workload {
	w = w.DeepCopy()
	w.DeletionTimestamp = new(metav1.NewTime(now))
	return w
}

// failed writes down a failure, unless what it stumbled on is about to be told.
func (l *loop) failed(object *kueue.Workload, err error) {
	if !isStale(err) {
		l.log.Error(err, "A write failed", "workload", client.ObjectKeyFromObject(object))
	}
}

// settled tells the State how a Workload stands after a verdict: as it was written,
// unless the informer has brought a newer version. Nil says that nothing was.
func (l *loop) settled(object, written *kueue.Workload) {
	if before := l.known.workload(object.UID); written != nil && before != nil {
		// What the informer brings later is no news any more.
		if l.known.set(written) {
			l.show(before, written)
			l.finalize(written)
		}
		written = l.known.workload(object.UID)
	}
	l.state.Settle(object.UID, written)
}

// reread finds out what became of a write whose answer never came. Until then the
// quota that it may have given stays given.
func (l *loop) reread(object *kueue.Workload) {
	l.start(freeing, func(ctx context.Context) settle {
		have := &kueue.Workload{}
		err := l.live.Get(ctx, client.ObjectKeyFromObject(object), have)
		return func(now time.Time) {
			switch {
			case client.IgnoreNotFound(err) != nil:
				l.log.Error(err, "Reading the outcome of a write failed", "workload", client.ObjectKeyFromObject(object))
				l.retries.later(object.UID, now, func(time.Time) { l.reread(object) })
				return
			case err != nil || have.UID != object.UID:
				l.settled(object, nil)
			default:
				have.ManagedFields = nil
				l.settled(object, have)
			}
		}
	})
}

// prioritize writes the priority of a Workload, whatever else is written of it: only its
// UID has to be the same.
func (l *loop) prioritize(object *kueue.Workload, priority int32) {
	l.start(trailing, func(ctx context.Context) settle {
		began := l.now()
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: object.Name, Namespace: object.Namespace}}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"priority":%d}}`, object.UID, priority)
		err := l.client.Patch(ctx, w, client.RawPatch(types.MergePatchType, patch))
		w.ManagedFields = nil
		took := l.now().Sub(began)
		return func(now time.Time) {
			l.pace(took, now)
			switch {
			case l.known.workload(object.UID) == nil:
				return
			case err != nil:
				l.failed(object, err)
				l.retries.later(object.UID, now, func(time.Time) { l.state.Prioritized(object.UID) })
				return
			}
			l.set(w)
			l.state.Prioritized(object.UID)
		}
	})
}

// deactivate writes to a Workload's spec: its condition says why it must not run. The
// eviction follows from it.
func (l *loop) deactivate(ctx context.Context, object *kueue.Workload) (*kueue.Workload, error) {
	w := object.DeepCopy()
	w.Spec.Active = new(false)
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	if err := l.client.Patch(ctx, w, patch); err != nil {
		return nil, fmt.Errorf("deactivating Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	w.ManagedFields = nil
	return w, nil
}

// delete deletes a Workload, or the job that takes it along. Kueue's finalizer is
// taken from it as from all that wait to be let go.
func (l *loop) delete(ctx context.Context, w *kueue.Workload, job *metav1.OwnerReference) error {
	object, uid := client.Object(w), w.UID
	if job != nil {
		object = &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: job.APIVersion, Kind: job.Kind},
			ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: w.Namespace},
		}
		uid = job.UID
	}
	// A conflict says that another one has its name: this one is gone.
	err := l.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil
	}
	what := "Workload"
	if job != nil {
		what = job.Kind
	}
	return fmt.Errorf("deleting %s %s/%s: %w", what, w.Namespace, object.GetName(), err)
}

// definite says that an error came from the API server, which so refused the
// write; after any other the write may have taken effect.
func definite(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

// isStale says that an object has changed or gone since it was read: the informer
// is about to tell.
func isStale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// announce tells users of the steps that they wait for.
func (l *loop) announce(v *lifecycle.Verdict, object *kueue.Workload) {
	switch v.Action {
	case lifecycle.Reserve:
		l.event(object, corev1.EventTypeNormal, v.Reason, v.Message)
		if len(v.Status.AdmissionChecks) == 0 {
			l.event(object, corev1.EventTypeNormal, "Admitted",
				fmt.Sprintf("Admitted by ClusterQueue %s, wait time since reservation was 0s", v.Status.Admission.ClusterQueue))
		}
	case lifecycle.Admit, lifecycle.Finish, lifecycle.Remove:
		l.event(object, corev1.EventTypeNormal, v.Reason, v.Message)
	case lifecycle.Evict:
		if v.Reason == kueue.WorkloadEvictedByPreemption {
			l.event(object, corev1.EventTypeNormal, "Preempted", v.Message)
		}
		l.event(object, corev1.EventTypeNormal, "EvictedDueTo"+v.Reason, v.Message)
	case lifecycle.Deactivate:
		l.event(object, corev1.EventTypeWarning, v.Reason, v.Message)
	}
}

const (
	// eventsPerSecond and eventsAtOnce bound the Events of steps that went well. An
	// Event costs the API server half of what the step itself does, and conditions
	// say the same; warnings are few and always told.
	eventsPerSecond = 10
	eventsAtOnce    = 500
)

// event leaves an Event to the recorder, which never waits.
func (l *loop) event(object *kueue.Workload, kind, reason, message string) {
	if kind == corev1.EventTypeNormal && !l.eventRate.AllowN(l.now(), 1) {
		return
	}
	l.recorder.Eventf(object, nil, kind, reason, reason, "%s", provisioning.Clip(message, provisioning.NoteLimit))
}
