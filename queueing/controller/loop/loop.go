// Package loop is the one goroutine that decides: it takes what happened from its inbox into
// the State of package queueing, lets it decide, and starts the writes of its verdicts without
// waiting for them.
package loop

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/when"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/controller/reasons"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/scheduler"
)

// Capacity is the provisioner's snapshot of the nodes. It only avoids attempts that would fail: it may be out of date, and correctness
// does not depend on it.
type Capacity interface {
	// Snapshot is cheap and does not block. The caller does not change it.
	Snapshot(now time.Time) *planner.Snapshot
	// Distinguish says that something selects on these node labels, so that plans for them
	// stay cheap.
	Distinguish(labels ...string)
	// Fleet is what machines there are by word of the clouds, with nodes and without. It costs more than a Snapshot.
	Fleet(now time.Time) scaledown.Fleet
	// Changed subscribes to changes: a value comes soon after each.
	Changed() <-chan struct{}
}

// Config is what the loop needs from outside.
type Config struct {
	// Capacity may be nil, where the provisioner is another process: then flavors are tried in
	// their order, and a stockout is only learned from the ProvisioningRequest.
	Capacity Capacity
	// Nodes may be nil: then flavors with a Topology wait for ever.
	Nodes Nodes
	// Settings are the administrator's.
	Settings config.Config
	// Metrics show what happens; nil shows nothing.
	Metrics *metrics.Metrics
	// Recorder records Events on Workloads.
	Recorder events.EventRecorder
	// Alone: no provisioner of Muster's runs in the cluster.
	Alone bool
	// Stepping is called to run each step, so that one that never ends is noticed; nil runs it alone.
	Stepping func(step func())
}

// firstRetry and lastRetry bound the backoff after a failed write. An object that is about to be deleted is read again after shortRetry.
const (
	firstRetry = 50 * time.Millisecond
	shortRetry = 500 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// idleShare is how many times as long as a step took the loop rests after it, so that under
// load events gather and steps cost at most a twentieth of a core. Every step goes through all
// that wait where quota was released, so a step too many costs more than it brings;
// shortestRest bounds how many there are. An event that comes to a loop at rest is seen at
// once, and longestRest bounds what that adds to the latency. Where rest after rest ends with
// events, for half a second or more, what takes long is the API server: the shortest grows to
// busyRest until one ends without.
const (
	idleShare    = 19
	shortestRest = 20 * time.Millisecond
	busyRest     = 100 * time.Millisecond
	longestRest  = 250 * time.Millisecond
)

// Loop is all that the one goroutine works with.
type Loop struct {
	writer *writes.Writer
	log    logr.Logger
	// now is called only to measure a write. Elsewhere, time is a parameter.
	now func() time.Time
	// start starts a write.
	start func(u writes.Urgency, namespace string, w writes.Write)
	// beside starts a forecast, which would hold up the loop.
	beside func(func() writes.Done)
	// rest lets the time pass for which a forecast rests.
	rest func(time.Duration)
	// stepping runs a step.
	stepping func(func())

	state *queueing.State
	inbox *inbox
	// known has the newest version of every object, since informers lag behind writes.
	known known
	// creating counts the verdicts under way that create a request. As long as there are
	// some, deleted has the requests that are gone by now, for the answer to a creation may
	// come after the event of its end.
	creating int
	deleted  map[types.UID]bool

	retries retries
	reasons *reasons.Queue
	// explaining are the Workloads whose reasons are being written, each with what follows.
	explaining map[types.UID][]next
	report     *reporter
	leaving    map[types.UID]*leaver
	temporary  map[types.UID]*temporaryQuotas
	capacity   *advisor
	nodes      nodeWatch
	forecast   forecaster
	// published is when the Standing of a LocalQueue was last written.
	published map[types.UID]time.Time
	metrics   *metrics.Metrics
}

// New returns a Loop that has seen nothing yet.
func New(c client.Client, live client.Reader, config Config) *Loop {
	var plan scheduler.Planner
	if config.Capacity != nil {
		plan = planner.Plan
	}
	l := &Loop{
		writer: writes.NewWriter(c, live), log: logr.Discard(), now: time.Now, rest: func(time.Duration) {},
		state:      queueing.New(config.Settings, plan),
		inbox:      newInbox(),
		known:      newKnown(),
		deleted:    map[types.UID]bool{},
		retries:    newRetries(),
		reasons:    reasons.New(),
		explaining: map[types.UID][]next{},
		report:     newReporter(),
		leaving:    map[types.UID]*leaver{},
		temporary:  map[types.UID]*temporaryQuotas{},
		metrics:    config.Metrics,
		published:  map[types.UID]time.Time{},
		nodes:      nodeWatch{source: config.Nodes},
		stepping:   config.Stepping,
	}
	if l.stepping == nil {
		l.stepping = func(step func()) { step() }
	}
	l.state.CountWith(devices.NewSelectors())
	l.writer.Recorder = config.Recorder
	l.writer.Now = func() time.Time { return l.now() }
	if config.Alone {
		l.state.WithoutProvisioner()
	}
	if l.metrics == nil {
		l.metrics = metrics.New(metrics.Config{})
	}
	if config.Capacity != nil {
		l.capacity = &advisor{source: config.Capacity, stale: true}
	}
	return l
}

// Inbox handles the events of informers.
func (l *Loop) Inbox() toolscache.ResourceEventHandler { return l.inbox }

// Metrics are what the loop shows.
func (l *Loop) Metrics() *metrics.Metrics { return l.metrics }

// Join says that a provisioner of Muster's may run in the cluster by now.
func (l *Loop) Join() {
	l.inbox.done(func(time.Time) { l.state.WithProvisioner(); l.state.Outdated = true })
}

// Run steps until ctx is done.
func (l *Loop) Run(ctx context.Context) {
	l.log = log.FromContext(ctx).WithName("queues")
	var changed <-chan struct{}
	if l.capacity != nil {
		changed = l.capacity.source.Changed()
	}
	backlog := writes.NewBacklog()
	l.start = backlog.Add
	// There is one forecast at a time. The loop does not wait for it at its end.
	foreseen := make(chan writes.Done, 1)
	l.beside = func(make func() writes.Done) { go func() { foreseen <- make() }() }
	l.rest = func(d time.Duration) { wait(ctx, time.NewTimer(d), d) }
	over := make(chan struct{})
	go func() {
		defer close(over)
		backlog.Run(ctx, l.inbox.done)
	}()
	defer func() {
		backlog.Close()
		<-over
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	r := resting{shortest: shortestRest}
	for {
		began := l.now()
		var next time.Time
		l.stepping(func() { next = l.step(began) })
		took := l.now().Sub(began)
		if !wait(ctx, timer, r.after(took)) {
			return
		}
		r.ended(len(l.inbox.wake) > 0)
		// An hour is as good as never, and needs no case of its own.
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
		case done := <-foreseen:
			done(l.now())
		case <-timer.C:
		}
	}
}

// resting is how long the loop rests.
type resting struct{ shortest time.Duration }

// after is how long it rests after a step that took so long.
func (r *resting) after(took time.Duration) time.Duration {
	return min(max(idleShare*took, r.shortest), longestRest)
}

// ended takes in whether events had gathered at the end of a rest.
func (r *resting) ended(gathered bool) {
	if !gathered {
		r.shortest = shortestRest
		return
	}
	r.shortest = min(r.shortest+r.shortest/16, busyRest)
}

// wait lets events gather. It reports whether ctx is still alive.
func wait(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	timer.Reset(d)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// step takes in what has happened, decides, and starts the writes that follow. It returns when
// to come back though nothing happens; zero is never.
func (l *Loop) step(now time.Time) time.Time {
	changes, done := l.inbox.take()
	l.receive(changes)
	done = append(done, l.retries.due(now)...)
	for _, f := range done {
		f(now)
	}
	var nodes time.Time
	if again, err := l.nodes.follow(l.state, l.inbox); err != nil {
		l.log.Error(err, "Watching nodes and pods failed, and is tried again")
		nodes = now.Add(again)
	} else if again > 0 {
		nodes = now.Add(again)
	}
	at := l.state.WakeAt()
	l.advise(now, len(changes)+len(done) > 0 || !at.IsZero() && !now.Before(at))
	for _, v := range l.cycle(now) {
		l.dispatch(&v, now)
	}
	if l.creating == 0 {
		clear(l.deleted)
	}
	return when.Earliest(nodes, l.state.WakeAt(), l.retries.next(), l.explain(now), l.publish(now), l.release(now), l.expire(now),
		l.foresee(now))
}

// cycle lets the State decide, and counts the cycle if it judged a Workload.
func (l *Loop) cycle(now time.Time) []lifecycle.Verdict {
	began := l.now()
	if l.capacity != nil && l.state.Config.WaitForPodsReady != nil {
		l.state.SetAnswering(l.capacity.source.Snapshot(now).Answering)
	}
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
	for _, q := range l.state.Order {
		if q.Effort > 0 {
			l.metrics.Effort(q.Object.Name, q.Effort)
		}
	}
	return verdicts
}

// receive takes in what the informers saw. Deletions go first, since an object of the same
// name may have come; Workloads go before the queues that come with them, since the State can
// count nothing in a queue that no cycle has seen.
func (l *Loop) receive(changes map[types.UID]change) {
	for _, c := range changes {
		if c.gone {
			l.remove(c.object)
		}
	}
	for _, workloads := range []bool{true, false} {
		for _, c := range changes {
			if _, ok := c.object.(*kueue.Workload); ok != workloads || c.gone {
				continue
			}
			if c.restored {
				l.known.forgetVersion(c.object)
			}
			l.set(c.object)
		}
	}
}

// set stores a version of an object in the State unless a newer one is known.
func (l *Loop) set(object client.Object) {
	if ofNodes(object) {
		l.state.Set(object)
		return
	}
	before := l.known.objects[object.GetUID()]
	if !l.known.set(object) {
		l.share(object)
		return
	}
	l.show(before, object)
	l.state.Set(object)
	l.finalize(object)
	if cq, ok := object.(*kueue.ClusterQueue); ok {
		l.trackTemporary(cq)
	}
	if l.capacity != nil {
		l.capacity.follow(object)
	}
}

// share keeps a Workload only once: where an informer brings the version that the answer to a
// write has brought before, its own copy, which it keeps in any case, takes the place of the
// answer.
func (l *Loop) share(object client.Object) {
	w, ok := object.(*kueue.Workload)
	if !ok {
		return
	}
	if have := l.known.workload(w.UID); have.ResourceVersion == w.ResourceVersion {
		l.known.objects[w.UID] = w
		l.state.Replace(have, w)
	}
}

func (l *Loop) remove(object client.Object) {
	if ofNodes(object) {
		l.state.Delete(object)
		return
	}
	uid := object.GetUID()
	l.known.remove(object)
	l.state.Delete(object)
	delete(l.leaving, uid)
	delete(l.temporary, uid)
	delete(l.published, uid)
	switch object.(type) {
	case *kueue.Workload:
		l.reasons.Remove(uid)
		l.retries.forget(uid)
		l.forecast.account.Forget(uid)
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

// retries are what is to be done again after a pause.
type retries struct {
	rest []retry
	// failures in a row, by Workload.
	failures map[types.UID]int
}

type retry struct {
	at time.Time
	do writes.Done
}

func newRetries() retries { return retries{failures: map[types.UID]int{}} }

// later does something for a Workload after a pause, which doubles with every failure in a
// row.
func (r *retries) later(uid types.UID, now time.Time, do writes.Done) {
	pause := min(firstRetry<<min(r.failures[uid], 10), lastRetry)
	r.failures[uid]++
	r.rest = append(r.rest, retry{now.Add(pause), do})
}

// soon does something after a short pause, however often that was so.
func (r *retries) soon(now time.Time, do writes.Done) {
	r.rest = append(r.rest, retry{now.Add(shortRetry), do})
}

func (r *retries) forget(uid types.UID) { delete(r.failures, uid) }

// due takes out what is to be done now.
func (r *retries) due(now time.Time) (out []writes.Done) {
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
		out = when.Earliest(out, r.rest[i].at)
	}
	return out
}
