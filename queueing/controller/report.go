package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing"
)

// reportEvery is how often the status of one queue is written at most.
const reportEvery = time.Second

// reportWriter spaces the status writes of queues and checks.
type reportWriter struct {
	last map[types.UID]time.Time
}

// applyReport writes the statuses that have changed. It returns when to go on
// with those that were written a moment ago; zero if there are none.
func (l *loop) applyReport(ctx context.Context, s *queueing.Snapshot) (time.Time, error) {
	report := queueing.MakeReport(s)
	run := &reportRun{loop: l, now: s.Now, last: map[types.UID]time.Time{}}
	for _, cq := range s.ClusterQueues {
		want := cq.DeepCopy()
		want.Status = report.ClusterQueues[cq.Name]
		if run.write(ctx, cq, want, equality.Semantic.DeepEqual(cq.Status, want.Status)) {
			l.picture.clusterQueues.wrote(want)
		}
	}
	for _, lq := range s.LocalQueues {
		want := lq.DeepCopy()
		want.Status = report.LocalQueues[client.ObjectKeyFromObject(lq)]
		if run.write(ctx, lq, want, equality.Semantic.DeepEqual(lq.Status, want.Status)) {
			l.picture.localQueues.wrote(want)
		}
	}
	for _, ac := range s.Checks {
		status, ours := report.Checks[ac.Name]
		if !ours {
			continue
		}
		want := ac.DeepCopy()
		want.Status = status
		if run.write(ctx, ac, want, equality.Semantic.DeepEqual(ac.Status, want.Status)) {
			l.picture.checks.wrote(want)
		}
	}
	l.report.last = run.last
	return run.again, errors.Join(run.errs...)
}

// reportRun is one pass over all statuses.
type reportRun struct {
	loop  *loop
	now   time.Time
	last  map[types.UID]time.Time
	again time.Time
	errs  []error
}

// write updates the status of have to that of want, if they differ and the last
// write is long enough ago, and says whether it did; want is then the answer. It
// is an update and not a patch, so that counts of zero are written down too.
func (r *reportRun) write(ctx context.Context, have, want client.Object, same bool) bool {
	uid := have.GetUID()
	last, written := r.loop.report.last[uid]
	if written {
		r.last[uid] = last
	}
	if same {
		return false
	}
	if due := last.Add(reportEvery); written && r.now.Before(due) {
		if r.again.IsZero() || due.Before(r.again) {
			r.again = due
		}
		return false
	}
	if err := r.loop.client.Status().Update(ctx, want); err != nil {
		if ignoreStale(err) != nil {
			r.errs = append(r.errs, fmt.Errorf("writing the status of %T %s: %w", have, client.ObjectKeyFromObject(have), err))
		}
		return false
	}
	r.last[uid] = r.now
	return true
}
