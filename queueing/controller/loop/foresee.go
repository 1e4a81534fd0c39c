package loop

import (
	"fmt"
	"runtime/debug"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// forecastEvery is how often a forecast is made at most.
	forecastEvery = time.Minute
	// restShare is how many times as long as it worked a forecast rests, again and again until
	// it is done: forecasts cost a two-hundredth of a core at any time, also where one for thousands
	// of Workloads takes many seconds of work.
	restShare = 199
	// leastWork is how long a forecast works at least until it rests.
	leastWork = 2 * time.Millisecond
	// atOnce is how long a Workload takes to start without waiting. Workloads that do not wait say nothing about the accuracy of
	// forecasts.
	atOnce = 10 * time.Second
)

// forecaster makes forecasts for all that wait, and keeps account of their accuracy.
type forecaster struct {
	history forecast.History
	account forecast.AccuracyTracker
	// next is when the next one may be made; zero while one is under way.
	next     time.Time
	underWay bool
}

// follow takes in how a Workload has changed; before is nil when it is seen first.
func (f *forecaster) follow(before, now *kueue.Workload) {
	if before == nil {
		f.history.Arrived(now)
	}
	if workload.IsAdmitted(now) {
		f.account.Started(now.UID, apimeta.FindStatusCondition(now.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time)
	}
	if !isExpected(now) {
		f.account.Forget(now.UID)
	}
	if workload.IsFinished(now) && (before == nil || !workload.IsFinished(before)) {
		over := *now
		if before != nil {
			// Finished Workloads may come without their pods.
			over.Spec = before.Spec
		}
		f.history.Observe(&over)
	}
}

// isExpected reports whether a Workload waits for its start.
func isExpected(w *kueue.Workload) bool {
	return !workload.IsAdmitted(w) && !workload.IsFinished(w) && workload.IsActive(w)
}

// foresee starts a forecast when it is time and a Workload waits, beside the loop and on a
// copy of all that it needs. It returns when it is time next.
func (l *Loop) foresee(now time.Time) time.Time {
	f := &l.forecast
	if f.underWay || now.Before(f.next) {
		return f.next
	}
	f.next = now.Add(forecastEvery)
	if !l.known.some(func(o client.Object) bool { w, ok := o.(*kueue.Workload); return ok && isExpected(w) }) {
		l.metrics.Accuracy(f.account.Accuracy(), f.account.Tracked())
		l.metrics.Expected(nil)
		l.publishStandings(nil)
		return f.next
	}
	f.underWay, f.next = true, time.Time{}
	l.beside(l.prepare(now))
	return f.next
}

// prepare copies what a forecast needs. For 10,000 pending Workloads that takes the loop some 20 ms.
func (l *Loop) prepare(now time.Time) func() writes.Done {
	began := l.now()
	state, history := forecast.Copy(l.state), l.forecast.history.Copy()
	return func() (out writes.Done) {
		defer func() {
			if p := recover(); p != nil {
				err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				out = func(time.Time) { l.withoutForecasts(err) }
			}
		}()
		p := &pacer{now: l.now, rest: l.rest, since: began}
		report, _ := forecast.Paced(state, history, now, forecast.Horizon, p.pause)
		took := p.worked()
		return func(time.Time) { l.foreseen(&report, now, took) }
	}
}

// pacer spreads work over time.
type pacer struct {
	now  func() time.Time
	rest func(time.Duration)
	// since is when the work began that no rest has followed yet, and before is how long
	// was worked until then.
	since  time.Time
	before time.Duration
}

// pause rests for the work that was done, once it is enough to be worth it. A forecast is never ended.
func (p *pacer) pause() bool {
	if work := p.now().Sub(p.since); work >= leastWork {
		p.rest(restShare * work)
		p.before += work
		p.since = p.now()
	}
	return true
}

// worked is for how long was worked, without the rests.
func (p *pacer) worked() time.Duration { return p.before + p.now().Sub(p.since) }

// withoutForecasts goes on without any: no job is to wait because a forecast failed.
func (l *Loop) withoutForecasts(err error) {
	l.log.Error(err, "A forecast failed, and there are no more until this process is replaced")
	l.metrics.Expected(nil)
}

// foreseen takes in a forecast that was made for a time a little ago.
func (l *Loop) foreseen(report *forecast.Report, made time.Time, took time.Duration) {
	l.forecast.underWay, l.forecast.next = false, made.Add(forecastEvery)
	starts := map[string][]time.Time{}
	for i := range report.Estimates {
		e := &report.Estimates[i]
		w := l.known.workload(e.Workload.UID)
		if w == nil || !isExpected(w) {
			continue
		}
		if made.Sub(w.CreationTimestamp.Time) >= atOnce {
			l.forecast.account.Record(w.UID, *e, made)
		}
		if queue := l.clusterQueueOf(w); queue != "" {
			starts[queue] = append(starts[queue], e.Start)
		}
	}
	l.metrics.Forecast(took)
	l.metrics.Expected(starts)
	l.metrics.Accuracy(l.forecast.account.Accuracy(), l.forecast.account.Tracked())
	l.publishStandings(report)
}

// clusterQueueOf is the name of the ClusterQueue that a Workload waits in; empty where its
// LocalQueue does not exist.
func (l *Loop) clusterQueueOf(w *kueue.Workload) string {
	lq, ok := l.known.named[nameIn[*kueue.LocalQueue](w.Namespace, string(w.Spec.QueueName))].(*kueue.LocalQueue)
	if !ok {
		return ""
	}
	return string(lq.Spec.ClusterQueue)
}
