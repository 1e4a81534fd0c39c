// Package request runs the transactions of ProvisioningRequests: it asks the
// pure core for the next step of each request, carries it out and patches the
// request's status; and it writes down what they spend of budgets. Decisions are made one after another, in the order in which
// requests are served; what they take is carried out many at once.
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
	// parallel is how many steps are carried out at once that call no cloud, and as many for each cloud: one that does not answer delays no
	// other. An early one is begun while fewer than spare are under way: the API server answers slowly where there are more.
	parallel, spare = 32, 8
	// firstRetry and lastRetry bound how soon a step that failed is tried again.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
	// reportEvery is how often the reason of a waiting request is rewritten when
	// only its wording changed.
	reportEvery = 10 * time.Second
)

// Controller runs the transactions of all requests.
type Controller struct {
	Client client.Client
	// Live reads from the API server itself.
	Live      client.Reader
	Providers map[v1alpha1.Provider]cloudprovider.Provider
	Model     *model.Model
	// Synced waits for the first full picture of the Model; false if the context
	// ends first. Changed gets a value soon after each change of it.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	Events  events.EventRecorder
	Clock   clock.WithTicker
	// DryRun has nothing done for requests: their statuses say what would be.
	DryRun bool

	mu sync.Mutex
	// busy requests have a step under way.
	busy map[types.UID]bool
	// later is when requests whose last step failed are tried again.
	later map[types.UID]retry
	// reported is when the reason of a waiting request was last written.
	reported map[types.UID]time.Time
	// wake is when requests are decided on even if nothing changes; only the loop
	// looks at it.
	wake map[types.UID]time.Time
	// early are requests whose step was put off, since nothing waits for it yet.
	early []types.UID
	// slots bound the steps for each cloud, and those without one.
	slots    map[v1alpha1.Provider]chan struct{}
	finished chan struct{}
	running  sync.WaitGroup
}

type retry struct {
	at   time.Time
	wait time.Duration
}

// Start decides and acts until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	c.busy = map[types.UID]bool{}
	c.later = map[types.UID]retry{}
	c.reported = map[types.UID]time.Time{}
	c.wake = map[types.UID]time.Time{}
	c.slots = map[v1alpha1.Provider]chan struct{}{}
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

// pass decides once for every request that is due and returns when to look again.
func (c *Controller) pass(ctx context.Context) (next time.Time) {
	c.Model.Decide(func() {
		memo := planner.NewMemo()
		// First which requests are busy, then what is on record: a step that ends in between is
		// left to the next pass, instead of being decided again from an old record.
		busy := c.busyRequests()
		for _, e := range c.Model.Due(c.woken(busy)) {
			now := c.Clock.Now()
			if busy[e.UID] {
				c.wakeAt(e.UID, now) // its end brings the next pass
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

// wakeAt has the request decided on at the given time even if nothing changes; zero
// means never.
func (c *Controller) wakeAt(uid types.UID, at time.Time) {
	if at.IsZero() {
		delete(c.wake, uid)
	} else {
		c.wake[uid] = at
	}
}

// putOff has the request decided on again when fewer steps are under way; the end of one brings the next pass.
func (c *Controller) putOff(uid types.UID) {
	if !slices.Contains(c.early, uid) {
		c.early = append(c.early, uid)
	}
}

// woken are the requests whose time has come, but for those with a step under way, and as many of
// those that were put off as there is room for.
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

// worded reports whether the step would only report again what the status says
// already, or says in other words and too soon; at is when it is time.
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

// carryOut does what the step says, in a goroutine of its own.
func (c *Controller) carryOut(ctx context.Context, e *model.Entry, step transaction.Step) {
	cloud := c.cloudOf(step)
	c.mu.Lock()
	c.busy[e.UID] = true
	slots := c.slotsOf(cloud)
	c.mu.Unlock()
	c.running.Add(1)
	go func() {
		defer c.running.Done()
		slots <- struct{}{}
		err := c.do(ctx, e, step)
		<-slots
		c.Model.Settle(e.UID)
		c.done(ctx, e, step, err)
	}()
}

// slotsOf returns the slots for steps of a cloud. The caller has the lock.
func (c *Controller) slotsOf(cloud v1alpha1.Provider) chan struct{} {
	if c.slots[cloud] == nil {
		c.slots[cloud] = make(chan struct{}, parallel)
	}
	return c.slots[cloud]
}

// cloudOf returns the cloud that a step calls; empty for none.
func (c *Controller) cloudOf(step transaction.Step) v1alpha1.Provider {
	switch {
	case step.Do == transaction.LaunchMachines && len(step.Launch) > 0:
		if g := c.Model.Group(step.Launch[0].Group); g != nil {
			return g.Spec.Provider
		}
	case step.Do == transaction.TakeBack && len(step.TakeBack) > 0:
		return c.Taker().providerNameOf(step.TakeBack[0])
	}
	return ""
}

// done notes how a step ended and has the next pass look at the request again.
func (c *Controller) done(ctx context.Context, e *model.Entry, step transaction.Step, err error) {
	c.mu.Lock()
	delete(c.busy, e.UID)
	now := c.Clock.Now()
	// Requests of which nothing was tried when it was time are gone.
	maps.DeleteFunc(c.later, func(uid types.UID, r retry) bool { return !c.busy[uid] && now.Sub(r.at) > lastRetry })
	switch {
	case err == nil:
		delete(c.later, e.UID)
	case apierrors.IsConflict(err): // another write was faster, and is on its way here
		c.later[e.UID] = retry{at: now.Add(firstRetry)}
	default:
		wait := min(max(firstRetry, 2*c.later[e.UID].wait), lastRetry)
		at := now.Add(wait)
		if step.At.After(now) {
			at = when.Earliest(at, step.At) // something else is to be done by then
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
