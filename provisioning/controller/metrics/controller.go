// Package metrics exports Prometheus metrics of the provisioner and its costs. Only the leader exports them, from the start of its lease
// on, so that nothing is counted twice. A change of the leader loses what happened between the last scrape of the old leader and the start
// of the new one. For machines that were joining, it also loses the time for which they had been joining.
package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Controller counts changes of requests, and exports them with the state of the Model.
type Controller struct {
	Informers cache.Informers
	// Served selects the requests that count.
	Served transaction.Server
	Model  *model.Model
	// Synced waits for the sync of the Model; false if the context ends first.
	Synced func(context.Context) bool
	// Queued returns the job of a request and its queue; nil if another instance runs the queues.
	Queued func(context.Context, *provreq.ProvisioningRequest) Queued
	// Lists has the times of the clouds' last lists.
	Lists    cloudprovider.Lists
	Registry prometheus.Registerer
	Clock    clock.PassiveClock
}

// Queued is the position of a job in the queues; the zero value is none.
type Queued struct {
	// Queue is the name of the LocalQueue.
	Queue string
	// Since is when the job was queued.
	Since time.Time
}

// Collectors returns the metrics of a Controller that do not depend on the lease.
func Collectors() []prometheus.Collector {
	return append(newCounters().all(), &snapshot{})
}

// Start exports metrics until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	if !c.Synced(ctx) {
		return nil
	}
	c.Model.OpenAccount()
	defer c.Model.CloseAccount()
	counters, tenants := newCounters(), newTenants()
	informer, err := c.Informers.GetInformer(ctx, &provreq.ProvisioningRequest{})
	if err != nil {
		return fmt.Errorf("watching requests: %w", err)
	}
	watch := &watch{Controller: c, counters: counters, tenants: tenants, ctx: ctx}
	handler, err := informer.AddEventHandler(watch)
	if err != nil {
		return fmt.Errorf("watching requests: %w", err)
	}
	for _, shown := range append(counters.all(), newState(c.Model, tenants, c.Lists, c.Clock)) {
		if err := c.Registry.Register(shown); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
		defer c.Registry.Unregister(shown)
	}
	<-ctx.Done()
	return informer.RemoveEventHandler(handler)
}

// watch counts the changes from one version of a request to the next. A version that the informer misses while its watch is broken is not
// counted.
type watch struct {
	*Controller
	*counters
	tenants *tenants
	// ctx is the context of the lease: reads that end with it need no response.
	ctx context.Context
}

// OnAdd implements toolscache.ResourceEventHandler. Earlier changes of the request were counted by another process.
func (w *watch) OnAdd(o any, _ bool) {
	if r, ok := o.(*provreq.ProvisioningRequest); ok && w.Served.Serves(r) {
		w.tenants.set(r, w.queued(r).Queue)
	}
}

// OnUpdate implements toolscache.ResourceEventHandler. The two versions may be different requests of the same name, if the informer missed
// a deletion.
func (w *watch) OnUpdate(before, now any) {
	old, r := before.(*provreq.ProvisioningRequest), now.(*provreq.ProvisioningRequest)
	if old.UID != r.UID {
		w.OnDelete(old)
		w.OnAdd(r, false)
		return
	}
	if !w.Served.Serves(r) {
		return
	}
	queued := w.queued(r)
	w.tenants.set(r, queued.Queue)
	w.countLaunches(attemptOf(old), attemptOf(r))
	became := func(condition string) bool { return !has(old, condition) && has(r, condition) }
	if became(provreq.Provisioned) {
		w.bookings.WithLabelValues(eventBooked).Inc()
		w.provisioned.WithLabelValues(r.Spec.ProvisioningClassName).Observe(w.Clock.Since(r.CreationTimestamp.Time).Seconds())
		w.timeStages(r, queued)
	}
	if became(provreq.CapacityRevoked) {
		w.bookings.WithLabelValues(eventRevoked).Inc()
	}
	if became(provreq.BookingExpired) {
		event := eventExpired
		if c := meta.FindStatusCondition(r.Status.Conditions, provreq.BookingExpired); c.Reason == transaction.ReasonBookingConsumed {
			event = eventConsumed
		}
		w.bookings.WithLabelValues(event).Inc()
	}
}

// OnDelete implements toolscache.ResourceEventHandler. The deletion of a request rolls back its launch.
func (w *watch) OnDelete(o any) {
	if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = missed.Obj
	}
	if r, ok := o.(*provreq.ProvisioningRequest); ok && w.Served.Serves(r) {
		w.tenants.gone(r)
		if a := attemptOf(r); a.Phase == transaction.Launching {
			w.countLaunch(a, &transaction.AttemptFailure{})
		}
	}
}

func (w *watch) queued(r *provreq.ProvisioningRequest) Queued {
	if w.Queued == nil {
		return Queued{}
	}
	return w.Queued(w.ctx, r)
}

// timeStages observes the stages of a request that is Provisioned.
func (w *watch) timeStages(r *provreq.ProvisioningRequest, queued Queued) {
	now, created := w.Clock.Now(), r.CreationTimestamp.Time
	a := attemptOf(r)
	machines := machinesOf(a)
	if a.Failure != nil { // afterwards the gang was placed without a launch
		machines = 0
	}
	if !queued.Since.IsZero() {
		w.stage(stageQuota, machines, queued.Since, created)
	}
	if machines == 0 {
		w.stage(stageWait, machines, created, now)
		return
	}
	registered := a.Started
	for n := range w.Model.Snapshot(now).Nodes.LaunchedBy(state.Token(r.UID, a.Number)) {
		if n.Created.After(registered) {
			registered = n.Created
		}
	}
	w.stage(stageWait, machines, created, a.Started)
	launched := a.Started
	if made := w.Model.MadeAt(a.Tokens(r.UID)); !made.IsZero() {
		launched = made
		w.stage(stageCloud, machines, a.Started, made)
	}
	w.stage(stageBoot, machines, launched, registered)
	if len(a.Shares) == 0 { // otherwise it has waited for other requests, too
		w.stage(stageJoin, machines, registered, now)
	}
}

// countLaunches counts an attempt whose machines have all joined, or that has failed.
func (w *watch) countLaunches(old, now transaction.Attempt) {
	switch {
	case old.Phase != transaction.Launching || old.Number != now.Number || len(now.Launches) == 0:
	case now.Phase == transaction.RollingBack:
		w.countLaunch(now, now.Failure)
	case now.Phase == transaction.Done:
		w.countLaunch(now, nil)
	}
}

func (w *watch) countLaunch(a transaction.Attempt, failure *transaction.AttemptFailure) {
	whole := succeeded
	switch {
	case failure != nil && failure.Class != "":
		whole = string(failure.Class)
	case failure != nil:
		whole = undone
	}
	w.attempts.WithLabelValues(size(machinesOf(a)), whole).Inc()
	for _, l := range a.Launches {
		outcome := succeeded
		switch {
		case failure != nil && failure.Group == l.Group:
			outcome = string(failure.Class)
		case failure != nil:
			outcome = undone
		}
		var capacityType v1alpha1.CapacityType
		if g := w.Model.Group(l.Group); g != nil {
			capacityType = g.Spec.CapacityType
		}
		w.launches.WithLabelValues(l.Group, string(capacityType), outcome).Inc()
	}
}

// attemptOf returns the recorded attempt; an unreadable record counts as none.
func attemptOf(r *provreq.ProvisioningRequest) transaction.Attempt {
	a, err := transaction.DecodeAttempt(string(r.Status.ProvisioningClassDetails[transaction.AttemptDetail]))
	if err != nil {
		return transaction.Attempt{Phase: transaction.Done}
	}
	return a
}

func has(r *provreq.ProvisioningRequest, condition string) bool {
	return meta.IsStatusConditionTrue(r.Status.Conditions, condition)
}
