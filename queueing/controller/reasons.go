package controller

import (
	"context"
	"errors"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/writer"
)

const (
	// reasonsPerSecond and reasonsBurst bound the writes that only explain why
	// Workloads wait. Every admission changes what is free, and with it the text
	// of all that wait; writes are the budget of the whole cluster.
	reasonsPerSecond = 20
	reasonsBurst     = 100
	// refreshAfter is how long a text stays at least once its reason has been
	// told, unless the reason itself changes.
	refreshAfter = 10 * time.Second
)

// pendingWriter spaces the writes of reasons.
type pendingWriter struct {
	limit *rate.Limiter
	last  map[types.UID]time.Time
}

func newPendingWriter() *pendingWriter {
	return &pendingWriter{limit: rate.NewLimiter(reasonsPerSecond, reasonsBurst), last: map[types.UID]time.Time{}}
}

// applyReasons tells pending Workloads why they wait, in the order of the
// verdicts: the heads of the queues first. It returns when to go on with those
// that it left; zero if it left none.
func (l *loop) applyReasons(ctx context.Context, now time.Time, verdicts []queueing.Verdict) (time.Time, error) {
	p := l.pending
	var again time.Time
	later := func(t time.Time) {
		if again.IsZero() || t.Before(again) {
			again = t
		}
	}
	last := make(map[types.UID]time.Time, len(p.last))
	var errs []error
	for i := range verdicts {
		v := &verdicts[i]
		if v.Action != queueing.Wait || v.Reason == "" {
			continue
		}
		uid := v.Workload.Object.UID
		if t, ok := p.last[uid]; ok {
			last[uid] = t
		}
		if v.Status == nil {
			continue
		}
		if due := last[uid].Add(refreshAfter); sameReason(v) && now.Before(due) {
			later(due)
			continue
		}
		if !p.limit.AllowN(now, 1) {
			later(now.Add(time.Second))
			continue
		}
		w, err := writer.ApplyStatus(ctx, l.client, v.Workload.Object, v.Status)
		if err != nil {
			errs = append(errs, ignoreStale(err))
			continue
		}
		l.picture.workloads.wrote(w)
		last[uid] = now
	}
	p.last = last
	return again, errors.Join(errs...)
}

// sameReason says that only the text of the reason is new.
func sameReason(v *queueing.Verdict) bool {
	c := apimeta.FindStatusCondition(v.Workload.Object.Status.Conditions, kueue.WorkloadQuotaReserved)
	return c != nil && c.Reason == v.Reason
}
