package metrics

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/provisioning/transaction"
)

// The outcomes other than error classes.
const (
	succeeded = "Succeeded"
	undone    = "Undone"
)

// Events of bookings.
const (
	eventBooked   = "Booked"
	eventConsumed = "Consumed"
	eventExpired  = "Expired"
	eventRevoked  = "Revoked"
)

// The stages of the time to capacity, in order.
const (
	stageQuota = "quota"
	stageWait  = "wait"
	stageCloud = "cloud"
	stageBoot  = "boot"
	stageJoin  = "join"
)

// waits are buckets from a second to a day.
var waits = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 86400}

// counters count events.
type counters struct {
	attempts, launches, bookings *prometheus.CounterVec
	provisioned, stages          *prometheus.HistogramVec
}

func newCounters() *counters {
	c := &counters{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_attempts_total",
			Help: "Attempts to launch all machines of a gang that have ended, by how many these were (1 is 1, 2 is 2 to 3, 4 is 4 to 7 and so " +
				"on) and by outcome: Succeeded, the class of the error, or Undone where no group caused the failure.",
		}, []string{"machines", "outcome"}),
		launches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_launches_total",
			Help: "Launches of machines that have ended, by group, capacity type and outcome: Succeeded, the class of the error, or Undone where " +
				"the group did not cause the failure.",
		}, []string{"group", "capacity_type", "outcome"}),
		bookings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_bookings_total",
			Help: "Bookings of capacity by what has become of them: Booked, Consumed by all pods of the gang, Expired before, or Revoked.",
		}, []string{"event"}),
		provisioned: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "muster_request_provisioned_seconds",
			Help:    "Seconds from the creation of a ProvisioningRequest until it was Provisioned, by provisioning class.",
			Buckets: waits,
		}, []string{"class"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_time_to_capacity_seconds",
			Help: "Seconds that gangs which got their capacity spent in each stage: quota (from the creation of the Workload to that of its " +
				"ProvisioningRequest, where this process serves the queues), wait (until the attempt that succeeded, earlier ones included), cloud " +
				"(until the cloud had made the last machine), boot (until the last machine registered) and join (until all were ready and booked). " +
				"By the machines that were launched: 0, 1, 2 to 3 as 2, 4 to 7 as 4 and so on; with 0 there is no cloud, no boot and no join. Where " +
				"this process did not see the machines come, cloud is a part of boot.",
			Buckets: waits,
		}, []string{"stage", "machines"}),
	}
	for _, event := range []string{eventBooked, eventConsumed, eventExpired, eventRevoked} {
		c.bookings.WithLabelValues(event) // increase() ignores the first value of a series
	}
	return c
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.attempts, c.launches, c.bookings, c.provisioned, c.stages}
}

// stage observes the time that a gang with so many machines to launch spent in a stage. A negative time, due to different clocks, counts
// as none.
func (c *counters) stage(name string, machines int, from, until time.Time) {
	c.stages.WithLabelValues(name, size(machines)).Observe(max(0, until.Sub(from).Seconds()))
}

// size returns the label for a number of machines: the largest power of two that is not above it. It keeps the number of series small.
func size(machines int) string {
	if machines == 0 {
		return "0"
	}
	return strconv.Itoa(1 << (bits.Len(uint(machines)) - 1))
}

// machinesOf returns the number of machines of an attempt.
func machinesOf(a transaction.Attempt) (n int) {
	for _, l := range a.Launches {
		n += l.Count
	}
	return n
}
