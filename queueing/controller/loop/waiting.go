package loop

import (
	"context"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/reasons"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// next is what follows once the reason of a Workload was written.
type next struct {
	// start takes the versions on both sides of that write; after is nil if there was none.
	start func(before, after *kueue.Workload)
	// waits: the Workload waits on for the same reason.
	waits bool
}

// explain starts as many writes of reasons as may be, and returns when to go on.
func (l *Loop) explain(now time.Time) time.Time {
	for r := l.reasons.Next(now); r != nil; r = l.reasons.Next(now) {
		object := l.known.workload(r.Workload)
		if object == nil || workload.HasQuota(object) || workload.IsFinished(object) {
			continue
		}
		if _, underWay := l.explaining[r.Workload]; underWay {
			l.reasons.Again(r, now)
			continue
		}
		status := workload.Waiting(object, l.state.Requested(r.Workload), r.Reason, r.Message, now)
		if status == nil {
			continue
		}
		l.reasons.Spend()
		l.explaining[r.Workload] = nil
		l.start(writes.Paced, object.Namespace, func(ctx context.Context) writes.Done {
			began := l.now()
			written, err := writes.ApplyStatus(ctx, l.writer.Client, object, status)
			took := l.now().Sub(began)
			return func(now time.Time) {
				l.reasons.Took(took, now)
				l.reasons.Done()
				l.explained(r, object, written, err, now)
			}
		})
	}
	return l.reasons.WakeAt(now)
}

// explained takes in that a reason was written, or was not, and starts what waits for that.
func (l *Loop) explained(r *reasons.Reason, before, written *kueue.Workload, err error, now time.Time) {
	waiting := l.explaining[r.Workload]
	delete(l.explaining, r.Workload)
	switch {
	case l.known.workload(r.Workload) == nil:
		// The Workload is gone.
	case err == nil:
		l.set(written)
		l.reasons.Written(r.Workload, now)
	default:
		if !writes.IsStale(err) {
			l.log.Error(err, "Writing why a Workload waits failed")
		}
		if !slices.ContainsFunc(waiting, func(n next) bool { return !n.waits }) {
			l.reasons.Again(r, now)
		}
	}
	for _, n := range waiting {
		n.start(before, written)
	}
}
