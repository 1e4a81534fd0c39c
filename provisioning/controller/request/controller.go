// Package request runs the transactions of ProvisioningRequests. It decides the next step of each request with the pure core, carries the
// step out and patches the request's status. It also writes the spend of budgets. Decisions are made one after another, in the order in
// which requests are served; steps are carried out in parallel.
package request

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/provisioning/when"
)

const (
	// parallel is the number of steps without a cloud call that run at once, and the number for each cloud, so that a cloud that does not
	// respond delays no other. An early step starts only while fewer than spare steps run: the API server is slower under more load.
	parallel, spare = 32, 8
	// firstRetry and lastRetry bound the delay before a failed step is retried.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
	// reportEvery is the minimum interval between two status writes for a waiting request whose reason has changed only in wording.
	reportEvery = 10 * time.Second
)

// Controller runs the transactions of all requests.
type Controller struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live      client.Reader
	Providers map[v1alpha1.Provider]cloudprovider.Provider
	Model     *model.Model
	// Synced waits for the sync of the Model. It returns false if the context ends first. Changed receives a value after each change of
	// the Model.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	Events  events.EventRecorder
	Clock   clock.WithTicker
	// DryRun carries out no step. The statuses of requests report what would be done.
	DryRun bool

	mu sync.Mutex
	// busy has the requests with a step in flight.
	busy map[types.UID]bool
	// later has the retry times of requests whose last step failed.
	later map[types.UID]retry
	// reported has the time of the last status write of each waiting request.
	reported map[types.UID]time.Time
	// wake has the time at which each request is decided even if nothing changes. Only the loop uses it.
	wake map[types.UID]time.Time
	// early has the requests whose step was postponed because no pod waits for it yet.
	early []types.UID
	// lanes carry out the steps for each cloud, and those without a cloud.
	lanes    map[v1alpha1.Provider]*lane
	finished chan struct{}
	running  sync.WaitGroup
}

type retry struct {
	at   time.Time
	wait time.Duration
}

// Start decides and carries out steps until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	c.busy = map[types.UID]bool{}
	c.later = map[types.UID]retry{}
	c.reported = map[types.UID]time.Time{}
	c.wake = map[types.UID]time.Time{}
	c.lanes = map[v1alpha1.Provider]*lane{}
	c.finished = make(chan struct{}, 1)
	if !c.Synced(ctx) {
		return nil
	}
	defer c.running.Wait()
	budgets := c.Clock.NewTimer(0)
	c.running.Go(func() { c.keepBudgets(ctx, budgets) })
	for _, g := range c.Model.Snapshot(c.Clock.Now()).Groups {
		showLosses(g.Name)
	}
	timer := c.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Changed:
		case <-c.finished:
		case <-timer.C():
		}
		if next := c.pass(ctx); !next.IsZero() {
			timer.Stop()
			timer.Reset(max(0, next.Sub(c.Clock.Now())))
		}
	}
}

// pass decides once for every request that is due and returns the time of the next pass.
func (c *Controller) pass(ctx context.Context) (next time.Time) {
	c.Model.Decide(func() {
		memo := planner.NewMemo()
		// The busy requests are read before the records. A step that ends in between is left to the next pass; in the other order, it
		// would be decided again from an old record.
		busy := c.busyRequests()
		for _, e := range c.Model.Due(c.woken(busy)) {
			now := c.Clock.Now()
			if busy[e.UID] {
				c.wakeAt(e.UID, now) // the end of the step starts the next pass
				continue
			}
			if at := c.retryAt(e.UID); now.Before(at) {
				c.wakeAt(e.UID, at)
				continue
			}
			snapshot := c.Model.Snapshot(now)
			snapshot.Memo = memo
			view := c.Model.View(snapshot, e.Request)
			step := transaction.Next(e.Request, view)
			if c.DryRun {
				step = transaction.Observed(e.Request, step)
			}
			c.wakeAt(e.UID, step.At)
			if step.Do == transaction.Rest {
				continue
			}
			if at, unchanged := c.worded(&e, step, now); unchanged {
				c.wakeAt(e.UID, at)
				continue
			}
			if step.Early && len(busy) >= spare {
				c.putOff(e.UID)
				continue
			}
			busy[e.UID] = true
			c.Model.Assume(e.UID, model.Assumption{Bookings: step.Book, Attempt: step.Attempt})
			c.carryOut(ctx, &e, step)
		}
		if len(c.early) > 0 && len(busy) < spare {
			next = c.Clock.Now()
		}
		for uid, at := range c.wake {
			if !busy[uid] && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	})
	return next
}

// wakeAt schedules the next decision on the request; zero means never.
func (c *Controller) wakeAt(uid types.UID, at time.Time) {
	if at.IsZero() {
		delete(c.wake, uid)
	} else {
		c.wake[uid] = at
	}
}

// putOff postpones the request until fewer steps run. The end of a step starts the next pass.
func (c *Controller) putOff(uid types.UID) {
	if !slices.Contains(c.early, uid) {
		c.early = append(c.early, uid)
	}
}

// woken returns the requests that are due and have no step in flight, and as many postponed ones as there are spare slots.
func (c *Controller) woken(busy map[types.UID]bool) (out []types.UID) {
	now := c.Clock.Now()
	for uid, at := range c.wake {
		if !now.Before(at) && !busy[uid] {
			out = append(out, uid)
			delete(c.wake, uid)
		}
	}
	n := min(max(0, spare-len(busy)), len(c.early))
	out = append(out, c.early[:n]...)
	c.early = c.early[n:]
	return out
}

// worded reports whether the step would only repeat the reason in the status, or change its wording too early; at is the earliest time for
// new wording.
func (c *Controller) worded(e *model.Entry, step transaction.Step, now time.Time) (at time.Time, unchanged bool) {
	if step.Do != transaction.Report || len(step.Unbook) > 0 {
		return at, false
	}
	old, updated := e.Object.Status, withStep(e.Object, step, now).Status
	switch {
	case equality.Semantic.DeepEqual(old, updated):
		return step.At, true
	case sameReasons(old, updated):
		c.mu.Lock()
		defer c.mu.Unlock()
		if at := c.reported[e.UID].Add(reportEvery); now.Before(at) {
			return at, true
		}
	}
	return at, false
}

// carryOut carries out the step once the lane of its cloud has room.
func (c *Controller) carryOut(ctx context.Context, e *model.Entry, step transaction.Step) {
	cloud := c.cloudOf(step)
	c.mu.Lock()
	c.busy[e.UID] = true
	lane := c.laneOf(cloud)
	c.mu.Unlock()
	lane.add(&c.running, e.Namespace, func() {
		err := c.do(ctx, e, step)
		c.Model.Settle(e.UID)
		c.done(ctx, e, step, err)
	})
}

// laneOf returns the lane of a cloud. The caller holds the lock.
func (c *Controller) laneOf(cloud v1alpha1.Provider) *lane {
	if c.lanes[cloud] == nil {
		c.lanes[cloud] = newLane()
	}
	return c.lanes[cloud]
}

// cloudOf returns the cloud that a step calls; empty for none.
func (c *Controller) cloudOf(step transaction.Step) v1alpha1.Provider {
	switch {
	case step.Do == transaction.LaunchMachines && len(step.Launch) > 0:
		if g := c.Model.Group(step.Launch[0].Group); g != nil {
			return g.Spec.Provider
		}
	case step.Do == transaction.Terminate && len(step.Terminate) > 0:
		return c.Terminator().providerNameOf(step.Terminate[0])
	}
	return ""
}

// done records the end of a step and schedules the next decision on the request.
func (c *Controller) done(ctx context.Context, e *model.Entry, step transaction.Step, err error) {
	c.mu.Lock()
	delete(c.busy, e.UID)
	now := c.Clock.Now()
	// An entry that was not retried when it was due belongs to a deleted request.
	maps.DeleteFunc(c.later, func(uid types.UID, r retry) bool { return !c.busy[uid] && now.Sub(r.at) > lastRetry })
	switch {
	case err == nil:
		delete(c.later, e.UID)
	case apierrors.IsConflict(err): // another write came first; its watch event will arrive
		c.later[e.UID] = retry{at: now.Add(firstRetry)}
	default:
		wait := min(max(firstRetry, 2*c.later[e.UID].wait), lastRetry)
		at := now.Add(wait)
		if step.At.After(now) {
			at = when.Earliest(at, step.At) // another step is due before the retry
		}
		c.later[e.UID] = retry{at: at, wait: wait}
	}
	c.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Info("A step of a request will be retried",
			"request", e.String(), "step", step.Do.String(), "reason", err.Error())
	}
	select {
	case c.finished <- struct{}{}:
	default:
	}
}

func (c *Controller) busyRequests() map[types.UID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.busy)
}

func (c *Controller) retryAt(uid types.UID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.later[uid].at
}
