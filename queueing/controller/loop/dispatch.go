package loop

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

// dispatch starts the writes of a verdict. While the reason of its Workload is being
// written, it waits for that: it would meet another version than it is meant for.
func (l *Loop) dispatch(v *lifecycle.Verdict, now time.Time) {
	uid := v.Workload.Object.UID
	if v.Action == lifecycle.Prioritize {
		l.prioritize(v.Workload.Object, v.Priority)
		return
	}
	if v.Action == lifecycle.Wait {
		if v.Status != nil {
			l.reasons.Set(v.Workload.Object, v.Reason, v.Message, now)
		}
		if v.Create == nil && len(v.Delete) == 0 {
			return
		}
	} else {
		l.reasons.Remove(uid)
	}
	if v.Create != nil {
		l.creating++
	}
	on := writes.Judged{Object: v.Workload.Object}
	if v.PreemptedBy != "" {
		on.Preemptor = l.known.workload(v.PreemptedBy)
	}
	if _, underWay := l.explaining[uid]; !underWay {
		l.carryOut(v, on)
		return
	}
	l.explaining[uid] = append(l.explaining[uid], next{waits: v.Action == lifecycle.Wait, start: func(before, after *kueue.Workload) {
		if after != nil && before.ResourceVersion == on.Object.ResourceVersion {
			// Nothing but the reason has changed since the verdict.
			on.Object = after
		}
		l.carryOut(v, on)
	}})
}

// carryOut starts the writes of a verdict.
func (l *Loop) carryOut(v *lifecycle.Verdict, on writes.Judged) {
	l.start(urgencyOf(v), v.Workload.Object.Namespace, func(ctx context.Context) writes.Done {
		began := l.now()
		o := l.writer.CarryOut(ctx, v, on)
		took := l.now().Sub(began)
		return func(now time.Time) {
			l.reasons.Took(took, now)
			l.reasons.Acted()
			l.report.acted()
			if v.Create != nil {
				l.creating--
			}
			if o.Workload != nil {
				l.showVerdict(v, on.Object, o.Workload, now)
			}
			l.carriedOut(on.Object, o, now)
		}
	})
}

func urgencyOf(v *lifecycle.Verdict) writes.Urgency {
	switch {
	case v.Action == lifecycle.Evict, v.Action == lifecycle.Release, v.Action == lifecycle.Deactivate, v.Action == lifecycle.Finish:
		return writes.Freeing
	case v.Action == lifecycle.Wait && v.Create == nil: // requests that nothing needs hold capacity
		return writes.Freeing
	}
	return writes.Acting
}

// carriedOut takes the outcome of a verdict into the State.
func (l *Loop) carriedOut(object *kueue.Workload, o writes.Outcome, now time.Time) {
	uid := object.UID
	for _, r := range o.Deleted {
		if l.known.objects[r.UID] != nil {
			l.state.Deleted(r, now)
		}
	}
	if o.Created != nil && !l.deleted[o.Created.UID] {
		l.set(o.Created)
	}
	have := l.known.workload(uid)
	switch {
	case have == nil:
		l.retries.forget(uid)
		l.settle(object, nil)
	case o.Unknown:
		l.log.Info("A write has an unknown outcome", "workload", client.ObjectKeyFromObject(object), "error", o.Err.Error())
		l.retries.later(uid, now, func(time.Time) { l.reread(object) })
	case o.Err != nil && writes.IsStale(o.Err) && have.ResourceVersion != object.ResourceVersion:
		// What it was stale against is here.
		l.settle(object, nil)
	case errors.Is(o.Err, writes.ErrLeftover):
		l.log.Info("A name is still taken", "workload", client.ObjectKeyFromObject(object), "error", o.Err.Error())
		l.retries.soon(now, func(time.Time) { l.settle(object, o.Workload) })
	case o.Err != nil:
		l.failed(object, o.Err)
		l.retries.later(uid, now, func(time.Time) { l.settle(object, o.Workload) })
	case o.Refused != "":
		if o.Workload != nil {
			l.set(o.Workload)
		}
		if end := l.state.RejectRequest(uid, o.Refused, now); end != nil {
			l.dispatch(end, now)
			return
		}
		l.settle(object, nil)
	case o.Removed:
		l.retries.forget(uid)
		l.state.Settle(uid, deleting(have, now))
	default:
		l.retries.forget(uid)
		l.settle(object, o.Workload)
	}
}

// deleting is a Workload that was deleted, before the informer says so. Until its finalizers
// and its job are gone it would be deleted again in every cycle.
func deleting(w *kueue.Workload, now time.Time) *kueue.Workload {
	w = w.DeepCopy()
	w.DeletionTimestamp = new(metav1.NewTime(now))
	return w
}

// failed logs a failure, unless the informer is about to bring its cause.
func (l *Loop) failed(object *kueue.Workload, err error) {
	if !writes.IsStale(err) {
		l.log.Error(err, "A write failed", "workload", client.ObjectKeyFromObject(object))
	}
}

// settle ends the wait for a verdict: the State goes on with the Workload as it was written,
// unless the informer has brought a newer version. Nil says that nothing was written.
func (l *Loop) settle(object, written *kueue.Workload) {
	if before := l.known.workload(object.UID); written != nil && before != nil {
		// What the informer brings later is nothing new any more.
		if l.known.set(written) {
			l.show(before, written)
			l.finalize(written)
		}
		written = l.known.workload(object.UID)
	}
	l.state.Settle(object.UID, written)
}

// reread finds out what became of a write whose answer never came. Until then the quota that
// it may have reserved stays reserved.
func (l *Loop) reread(object *kueue.Workload) {
	l.start(writes.Freeing, object.Namespace, func(ctx context.Context) writes.Done {
		have := &kueue.Workload{}
		err := l.writer.Live.Get(ctx, client.ObjectKeyFromObject(object), have)
		return func(now time.Time) {
			switch {
			case client.IgnoreNotFound(err) != nil:
				l.log.Error(err, "Reading the outcome of a write failed", "workload", client.ObjectKeyFromObject(object))
				l.retries.later(object.UID, now, func(time.Time) { l.reread(object) })
				return
			case err != nil || have.UID != object.UID:
				l.settle(object, nil)
			default:
				have.ManagedFields = nil
				l.settle(object, have)
			}
		}
	})
}

// prioritize starts the write of a Workload's priority.
func (l *Loop) prioritize(object *kueue.Workload, priority int32) {
	l.start(writes.Trailing, object.Namespace, func(ctx context.Context) writes.Done {
		began := l.now()
		w, err := l.writer.Prioritize(ctx, object, priority)
		took := l.now().Sub(began)
		return func(now time.Time) {
			l.reasons.Took(took, now)
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
