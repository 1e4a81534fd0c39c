package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/writer"
)

// dispatch has a verdict carried out.
func (l *loop) dispatch(v *queueing.Verdict, now time.Time) {
	uid := v.Workload.Object.UID
	if v.Action == queueing.Wait {
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
	object := v.Workload.Object
	if !l.reasons.hold(uid, func(before, after *kueue.Workload) {
		if after != nil && before.ResourceVersion == object.ResourceVersion {
			// Nothing but the reason has changed since the verdict.
			object = after
		}
		l.carryOut(v, object)
	}) {
		l.carryOut(v, object)
	}
}

// carryOut starts the writes of a verdict on a version of its Workload.
func (l *loop) carryOut(v *queueing.Verdict, object *kueue.Workload) {
	l.start(urgencyOf(v), func(ctx context.Context) settle {
		began := l.now()
		o := l.perform(ctx, v, object)
		took := l.now().Sub(began)
		return func(now time.Time) {
			l.pace(took, now)
			l.report.acted(now)
			if v.Create != nil {
				l.creating--
			}
			if o.workload != nil {
				l.showVerdict(v, object, o.workload, now)
			}
			l.settle(object, o, now)
		}
	})
}

func urgencyOf(v *queueing.Verdict) urgency {
	switch v.Action {
	case queueing.Evict, queueing.Release, queueing.Deactivate:
		return freeing
	}
	return acting
}

// outcome is what became of the writes of one verdict.
type outcome struct {
	// workload is what was written of it; nil if nothing was.
	workload *kueue.Workload
	created  *autoscaling.ProvisioningRequest
	deleted  []*autoscaling.ProvisioningRequest
	// refused says why the API server will not take the request however often it is
	// asked.
	refused string
	// unknown says that the Workload may have been written or not.
	unknown bool
	err     error
}

// perform does the writes of a verdict in an order in which a crash after any of
// them is mended by the next process: the status first, then what follows from it.
func (l *loop) perform(ctx context.Context, v *queueing.Verdict, object *kueue.Workload) (o outcome) {
	switch {
	case v.Action == queueing.Deactivate:
		o.workload, o.err = l.deactivate(ctx, object)
	case v.Action != queueing.Wait && v.Status != nil:
		o.workload, o.err = writer.ApplyStatus(ctx, l.client, object, v.Status)
	}
	if o.err != nil {
		o.unknown = !definite(o.err)
		return o
	}
	l.announce(v, object)
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
	case o.err != nil:
		if !isStale(o.err) {
			l.log.Error(o.err, "A write failed", "workload", client.ObjectKeyFromObject(object))
		}
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
	default:
		l.retries.forget(uid)
		l.settled(object, o.workload)
	}
}

// settled tells the State how a Workload stands after a verdict: as it was written,
// unless the informer has brought a newer version. Nil says that nothing was.
func (l *loop) settled(object, written *kueue.Workload) {
	if written != nil && l.known.workload(object.UID) != nil {
		l.known.set(written)
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
			case apierrors.IsNotFound(err):
				l.settled(object, nil)
			case err != nil:
				l.log.Error(err, "Reading the outcome of a write failed", "workload", client.ObjectKeyFromObject(object))
				l.retries.later(object.UID, now, func(time.Time) { l.reread(object) })
			case have.UID != object.UID:
				l.settled(object, nil)
			default:
				have.ManagedFields = nil
				l.settled(object, have)
			}
		}
	})
}

// create makes the templates first: a request whose templates are missing fails
// for good. All names follow from the Workload and the attempt, so that doing it
// twice is harmless.
func (l *loop) create(ctx context.Context, request *queueing.Request, w *kueue.Workload) (*autoscaling.ProvisioningRequest, error) {
	for _, t := range request.Templates {
		if _, err := l.createOwn(ctx, w, t, &corev1.PodTemplate{}); err != nil {
			return nil, fmt.Errorf("creating PodTemplate %s/%s: %w", t.Namespace, t.Name, err)
		}
	}
	r := request.Object
	created, err := l.createOwn(ctx, w, r, &autoscaling.ProvisioningRequest{})
	if err != nil {
		return nil, fmt.Errorf("creating ProvisioningRequest %s/%s: %w", r.Namespace, r.Name, err)
	}
	own := created.(*autoscaling.ProvisioningRequest)
	own.ManagedFields = nil
	for _, name := range request.Superseded {
		t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Namespace}}
		if err := l.client.Delete(ctx, t); client.IgnoreNotFound(err) != nil {
			return own, fmt.Errorf("deleting PodTemplate %s/%s of the last attempt: %w", t.Namespace, t.Name, err)
		}
	}
	return own, nil
}

var (
	// errForeign: the name of an object to create is taken by somebody else's.
	errForeign = errors.New("an object of this name exists that Muster did not make; delete or rename it")
	// errLeftover: the object of that name is of a deleted Workload and about to go.
	errLeftover = errors.New("that of a deleted Workload of the same name is still there")
)

// createOwn creates an object unless the Workload has it already, and returns it as
// it is. What has its name but another owner is not used: it may ask for something
// else. The one that exists is read into have, past the cache.
func (l *loop) createOwn(ctx context.Context, w *kueue.Workload, object, have client.Object) (client.Object, error) {
	object = object.DeepCopyObject().(client.Object)
	err := l.client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return object, err
	}
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(object), have); err != nil {
		return nil, err
	}
	switch owner := metav1.GetControllerOf(have); {
	case metav1.IsControlledBy(have, w):
		return have, nil
	case owner != nil && owner.Kind == "Workload" && owner.Name == w.Name:
		return nil, errLeftover
	}
	return nil, errForeign
}

// deactivate is the one write to a Workload's spec: a check said that it must
// not run. The eviction follows from it.
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
func (l *loop) announce(v *queueing.Verdict, object *kueue.Workload) {
	switch v.Action {
	case queueing.Reserve:
		l.event(object, corev1.EventTypeNormal, v.Reason, v.Message)
		if len(v.Status.AdmissionChecks) == 0 {
			l.event(object, corev1.EventTypeNormal, "Admitted",
				fmt.Sprintf("Admitted by ClusterQueue %s, wait time since reservation was 0s", v.Status.Admission.ClusterQueue))
		}
	case queueing.Admit:
		l.event(object, corev1.EventTypeNormal, v.Reason, v.Message)
	case queueing.Evict:
		if v.Reason == kueue.WorkloadEvictedByPreemption {
			l.event(object, corev1.EventTypeNormal, "Preempted", v.Message)
		}
		l.event(object, corev1.EventTypeNormal, "EvictedDueTo"+v.Reason, v.Message)
	case queueing.Deactivate:
		l.event(object, corev1.EventTypeWarning, v.Reason, v.Message)
	}
}

// event leaves an Event to the recorder, which drops what is too much and never
// waits.
func (l *loop) event(object *kueue.Workload, kind, reason, message string) {
	l.recorder.Eventf(object, nil, kind, reason, reason, "%s", provisioning.Clip(message, provisioning.NoteLimit))
}
