package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// loop is the queue controller. Only one run is under way at a time.
type loop struct {
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
	capacity Capacity
	now      func() time.Time

	picture picture
	report  reportWriter
	pending *pendingWriter

	// unsettled are Workloads whose last write has an unknown outcome. Until it
	// is known, no quota is given out: it may be gone already.
	unsettled map[client.ObjectKey]bool

	// wantsCapacity says that some pending Workload would be judged anew if the
	// machines changed.
	wantsCapacity atomic.Bool
}

// Reconcile runs one cycle.
func (l *loop) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := l.settle(ctx); err != nil {
		return reconcile.Result{}, err
	}
	// Until it is known who waits for machines, every change of them counts: one
	// that comes while this run looks must lead to another.
	l.wantsCapacity.Store(true)
	snapshot, err := l.snapshot(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	verdicts := queueing.Cycle(snapshot)
	l.wantsCapacity.Store(waitForCapacity(verdicts))

	errs := []error{l.apply(ctx, verdicts), l.unfinalize(ctx, snapshot)}
	reasonsLeft, err := l.applyReasons(ctx, snapshot.Now, verdicts)
	errs = append(errs, err)
	statusesLeft, err := l.applyReport(ctx, snapshot)
	errs = append(errs, err)

	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: soonest(snapshot.Now, queueing.WakeAt(verdicts), reasonsLeft, statusesLeft)}, nil
}

// settle finds out what became of writes whose answer never came.
func (l *loop) settle(ctx context.Context) error {
	for key := range l.unsettled {
		w := &kueue.Workload{}
		switch err := l.live.Get(ctx, key, w); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		default:
			l.picture.workloads.wrote(w)
		}
		delete(l.unsettled, key)
	}
	return nil
}

func waitForCapacity(verdicts []queueing.Verdict) bool {
	for i := range verdicts {
		if verdicts[i].Action == queueing.Wait && verdicts[i].Reason == queueing.ReasonWaitingForCapacity {
			return true
		}
	}
	return false
}

// soonest is the time from now to the earliest of the times, of which zero means
// never; at least a millisecond, since zero would mean never to the caller too.
func soonest(now time.Time, times ...time.Time) time.Duration {
	var out time.Duration
	for _, t := range times {
		if t.IsZero() {
			continue
		}
		if d := max(t.Sub(now), time.Millisecond); out == 0 || d < out {
			out = d
		}
	}
	return out
}
