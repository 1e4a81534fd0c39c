// Package metrics shows what the provisioner does, and what it costs, in the form
// of Prometheus. Only the process that leads shows it, from when it began to lead:
// what two would count is never counted twice. Lost at a change of the lead is what
// came after the last scrape of the one before and until the next one leads; and
// of machines that were joining meanwhile the time that they had joined for.
package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/model"
)

// Controller counts what happens to requests, and shows it with the state of the
// Model.
type Controller struct {
	Informers cache.Informers
	// Served are the requests that count.
	Served model.Server
	Model  *model.Model
	// Synced waits for the first full picture of the Model; false if the context
	// ends first.
	Synced   func(context.Context) bool
	Registry prometheus.Registerer
	Clock    clock.PassiveClock
}

// Start counts and shows until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	if !c.Synced(ctx) {
		return nil
	}
	c.Model.OpenAccount()
	defer c.Model.CloseAccount()
	counters := newCounters()
	informer, err := c.Informers.GetInformer(ctx, &provreq.ProvisioningRequest{})
	if err != nil {
		return fmt.Errorf("watching requests: %w", err)
	}
	watch := &watch{Controller: c, counters: counters}
	handler, err := informer.AddEventHandler(watch)
	if err != nil {
		return fmt.Errorf("watching requests: %w", err)
	}
	for _, shown := range append(counters.all(), &state{c.Model, c.Clock}) {
		if err := c.Registry.Register(shown); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
		defer c.Registry.Unregister(shown)
	}
	<-ctx.Done()
	return informer.RemoveEventHandler(handler)
}

// counters of what has happened.
type counters struct {
	launches, bookings *prometheus.CounterVec
	waits              *prometheus.HistogramVec
}

func newCounters() *counters {
	return &counters{
		launches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_launches_total",
			Help: "Launches of machines that have ended, by group, capacity type and outcome: Succeeded, the class of the error, or Undone where something else than the group was to blame.",
		}, []string{"group", "capacity_type", "outcome"}),
		bookings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_bookings_total",
			Help: "Bookings of capacity by what has become of them: Booked, Consumed by all pods of the gang, Expired before, or Revoked.",
		}, []string{"event"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "muster_request_provisioned_seconds",
			Help:    "Seconds from the creation of a ProvisioningRequest until it was Provisioned, by provisioning class.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 86400},
		}, []string{"class"}),
	}
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.launches, c.bookings, c.waits}
}

// watch counts what changes from one version of a request to the next. A version
// that the informer misses, while its watch is broken, is not counted.
type watch struct {
	*Controller
	*counters
}

// OnAdd implements toolscache.ResourceEventHandler. What a new request has been
// through already was counted by somebody else.
func (w *watch) OnAdd(any, bool) {}

// OnUpdate implements toolscache.ResourceEventHandler.
func (w *watch) OnUpdate(before, now any) {
	old, r := before.(*provreq.ProvisioningRequest), now.(*provreq.ProvisioningRequest)
	if !w.Served.Serves(r) {
		return
	}
	w.countLaunches(attemptOf(old), attemptOf(r))
	became := func(condition string) bool { return !has(old, condition) && has(r, condition) }
	if became(provreq.Provisioned) {
		w.bookings.WithLabelValues("Booked").Inc()
		w.waits.WithLabelValues(r.Spec.ProvisioningClassName).Observe(w.Clock.Since(r.CreationTimestamp.Time).Seconds())
	}
	if became(provreq.CapacityRevoked) {
		w.bookings.WithLabelValues("Revoked").Inc()
	}
	if became(provreq.BookingExpired) {
		event := "Expired"
		if c := meta.FindStatusCondition(r.Status.Conditions, provreq.BookingExpired); c.Reason == provisioning.ReasonBookingConsumed {
			event = "Consumed"
		}
		w.bookings.WithLabelValues(event).Inc()
	}
}

// OnDelete implements toolscache.ResourceEventHandler: who deletes a request that
// launches has it undone.
func (w *watch) OnDelete(o any) {
	if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = missed.Obj
	}
	if r, ok := o.(*provreq.ProvisioningRequest); ok && w.Served.Serves(r) {
		if a := attemptOf(r); a.Phase == provisioning.Launching {
			w.countLaunch(a, &provisioning.AttemptFailure{})
		}
	}
}

// countLaunches counts an attempt whose machines have all joined, or that has
// failed.
func (w *watch) countLaunches(old, now provisioning.Attempt) {
	switch {
	case old.Phase != provisioning.Launching || old.Number != now.Number:
	case now.Phase == provisioning.RollingBack:
		w.countLaunch(now, now.Failure)
	case now.Phase == provisioning.Done:
		w.countLaunch(now, nil)
	}
}

func (w *watch) countLaunch(a provisioning.Attempt, failure *provisioning.AttemptFailure) {
	for _, l := range a.Launches {
		outcome := "Succeeded"
		switch {
		case failure != nil && failure.Group == l.Group:
			outcome = string(failure.Class)
		case failure != nil:
			outcome = "Undone"
		}
		var market v1alpha1.CapacityType
		if g := w.Model.Group(l.Group); g != nil {
			market = g.Spec.CapacityType
		}
		w.launches.WithLabelValues(l.Group, string(market), outcome).Inc()
	}
}

// attemptOf is the attempt on record; one that cannot be read is none.
func attemptOf(r *provreq.ProvisioningRequest) provisioning.Attempt {
	a, err := provisioning.DecodeAttempt(string(r.Status.ProvisioningClassDetails[provisioning.AttemptDetail]))
	if err != nil {
		return provisioning.Attempt{Phase: provisioning.Done}
	}
	return a
}

func has(r *provreq.ProvisioningRequest, condition string) bool {
	return meta.IsStatusConditionTrue(r.Status.Conditions, condition)
}
