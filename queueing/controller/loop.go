package controller

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/scheduler"
)

// firstRetry and lastRetry bound the pause after a write that failed. What is about
// to go by itself is looked for after shortRetry.
const (
	firstRetry = 50 * time.Millisecond
	shortRetry = 500 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// idleShare is how many times as long as a step took the loop rests after it, so
// that under load events gather and steps cost at most a twentieth of a core. Every
// step goes through all that wait where quota has come back, so a step too many costs
// more than it brings; shortestRest bounds how many there are. What comes to a loop at
// rest is seen at once, and longestRest bounds what that adds to the latency.
const (
	idleShare    = 19
	shortestRest = 20 * time.Millisecond
	longestRest  = 250 * time.Millisecond
)

// loop is all that the one goroutine works with.
type loop struct {
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
	// eventRate bounds the Events.
	eventRate *rate.Limiter
	log       logr.Logger
	// now is asked only where a write is measured; else time is handed down.
	now func() time.Time
	// start has a write carried out.
	start func(urgency, write)
	// beside has a forecast made, which would hold up the loop.
	beside func(func() settle)
	// rest lets the time pass for which such work rests.
	rest func(time.Duration)

	state *queueing.State
	inbox *inbox
	// known has the newest version of every object: informers lag behind what was
	// written.
	known known
	// creating counts the verdicts under way that make a request. As long as there are
	// some, deleted has the requests that are gone by now, for the answer to a creation
	// may come after the news of its end.
	creating int
	deleted  map[types.UID]bool

	retries  retries
	reasons  *reasons
	report   *reporter
	leaving  map[types.UID]*leaver
	capacity *advisor
	forecast forecaster
	metrics  *metrics.Metrics
}

func newLoop(c client.Client, live client.Reader, config Config) *loop {
	var plan scheduler.Planner
	if config.Capacity != nil {
		plan = provisioning.Plan
	}
	l := &loop{
		client: c, live: live, log: logr.Discard(), now: time.Now, rest: func(time.Duration) {},
		eventRate: rate.NewLimiter(eventsPerSecond, eventsAtOnce),
		state:     queueing.New(config.Settings, plan),
		inbox:     newInbox(),
		known:     newKnown(),
		deleted:   map[types.UID]bool{},
		retries:   newRetries(),
		reasons:   newReasons(),
		report:    newReporter(),
		leaving:   map[types.UID]*leaver{},
		metrics:   config.Metrics,
	}
	if l.metrics == nil {
		l.metrics = metrics.New(metrics.Config{})
	}
	if config.Capacity != nil {
		l.capacity = &advisor{source: config.Capacity, stale: true}
	}
	return l
}

// run steps until ctx is done.
func (l *loop) run(ctx context.Context) {
	l.log = log.FromContext(ctx).WithName("queues")
	var changed <-chan struct{}
	if l.capacity != nil {
		changed = l.capacity.source.Changed()
	}
	writes := newBacklog()
	l.start = writes.add
	// There is one at a time. Nobody waits for it when the loop ends: it ends by itself.
	foreseen := make(chan settle, 1)
	l.beside = func(make func() settle) { go func() { foreseen <- make() }() }
	l.rest = func(d time.Duration) { wait(ctx, time.NewTimer(d), d) }
	over := make(chan struct{})
	go func() {
		defer close(over)
		writes.run(ctx, l.inbox.settle)
	}()
	defer func() {
		writes.close()
		<-over
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		began := l.now()
		next := l.step(began)
		took := l.now().Sub(began)
		if !wait(ctx, timer, min(max(idleShare*took, shortestRest), longestRest)) {
			return
		}
		// An hour is as good as for ever, and needs no case of its own.
		rest := time.Hour
		if !next.IsZero() {
			rest = next.Sub(l.now())
		}
		timer.Reset(rest)
		select {
		case <-ctx.Done():
			return
		case <-l.inbox.wake:
		case <-changed:
			l.capacity.stale = true
		case s := <-foreseen:
			s(l.now())
		case <-timer.C:
		}
	}
}

// wait lets events gather; false if ctx ends meanwhile.
func wait(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	timer.Reset(d)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// step takes in what has happened, decides, and starts the writes that follow. It
// returns when to come back though nothing happens; zero is never.
func (l *loop) step(now time.Time) time.Time {
	changes, settled := l.inbox.take()
	l.receive(changes)
	for _, s := range settled {
		s(now)
	}
	for _, s := range l.retries.due(now) {
		s(now)
	}
	l.advise(now, len(changes)+len(settled) > 0)
	for _, v := range l.cycle(now) {
		l.dispatch(&v, now)
	}
	if l.creating == 0 {
		clear(l.deleted)
	}
	return earliest(l.state.WakeAt(), l.retries.next(), l.tell(now), l.publish(now), l.release(now), l.foresee(now))
}

// cycle lets the State decide, and counts it if somebody was judged.
func (l *loop) cycle(now time.Time) []lifecycle.Verdict {
	began := l.now()
	verdicts := l.state.Cycle(now)
	took := l.now().Sub(began)
	judged, admitted := false, false
	for i := range verdicts {
		admitted = admitted || verdicts[i].Action == lifecycle.Reserve
		judged = judged || admitted || verdicts[i].Action == lifecycle.Wait
	}
	if judged {
		l.metrics.Cycle(took, admitted)
	}
	return verdicts
}

// receive takes in what the informers saw. What is gone goes first, since an object
// of the same name may have come; Workloads go before the queues that come with them,
// since the State can count nothing in a queue that no cycle has seen.
func (l *loop) receive(changes map[types.UID]change) {
	for _, c := range changes {
		if c.gone {
			l.remove(c.object)
		}
	}
	for _, workloads := range []bool{true, false} {
		for _, c := range changes {
			if _, ok := c.object.(*kueue.Workload); ok == workloads && !c.gone {
				l.set(c.object)
			}
		}
	}
}

// set takes in a version of an object, unless a newer one is known.
func (l *loop) set(object client.Object) {
	before := l.known.objects[object.GetUID()]
	if !l.known.set(object) {
		l.share(object)
		return
	}
	l.show(before, object)
	l.state.Set(object)
	l.finalize(object)
	if l.capacity != nil {
		l.capacity.follow(object)
	}
}

// share has a Workload kept once: where an informer brings the version that the answer to
// a write has brought before, its own copy, which it keeps in any case, takes the place of
// the answer.
func (l *loop) share(object client.Object) {
	w, ok := object.(*kueue.Workload)
	if !ok {
		return
	}
	if have := l.known.workload(w.UID); have.ResourceVersion == w.ResourceVersion {
		l.known.objects[w.UID] = w
		l.state.Replace(have, w)
	}
}

func (l *loop) remove(object client.Object) {
	uid := object.GetUID()
	l.known.remove(object)
	l.state.Delete(object)
	delete(l.leaving, uid)
	switch object.(type) {
	case *kueue.Workload:
		l.reasons.remove(uid)
		l.retries.forget(uid)
		l.forecast.account.Gone(uid)
	case *autoscaling.ProvisioningRequest:
		if l.creating > 0 {
			l.deleted[uid] = true
		}
	default:
		l.report.remove(object)
		l.metrics.Forget(object)
	}
	if l.capacity != nil {
		l.capacity.forget(object)
	}
}

// earliest of some times, of which zero means never.
func earliest(times ...time.Time) (out time.Time) {
	for _, t := range times {
		if out.IsZero() || !t.IsZero() && t.Before(out) {
			out = t
		}
	}
	return out
}

// retries are what is to be done after a pause.
type retries struct {
	rest []retry
	// failures in a row, by Workload.
	failures map[types.UID]int
}

type retry struct {
	at time.Time
	do settle
}

func newRetries() retries { return retries{failures: map[types.UID]int{}} }

// later has something done for a Workload after a pause, which is doubled with
// every failure in a row.
func (r *retries) later(uid types.UID, now time.Time, do settle) {
	pause := min(firstRetry<<min(r.failures[uid], 10), lastRetry)
	r.failures[uid]++
	r.rest = append(r.rest, retry{now.Add(pause), do})
}

// soon has something done after a short pause, however often that was so.
func (r *retries) soon(now time.Time, do settle) {
	r.rest = append(r.rest, retry{now.Add(shortRetry), do})
}

func (r *retries) forget(uid types.UID) { delete(r.failures, uid) }

// due takes out what is to be done now.
func (r *retries) due(now time.Time) (out []settle) {
	r.rest = slices.DeleteFunc(r.rest, func(x retry) bool {
		if now.Before(x.at) {
			return false
		}
		out = append(out, x.do)
		return true
	})
	return out
}

func (r *retries) next() (out time.Time) {
	for i := range r.rest {
		out = earliest(out, r.rest[i].at)
	}
	return out
}
