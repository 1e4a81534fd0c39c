package request

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	lost = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_machines_lost_total",
		Help: "Machines that ended by themselves while their gang was launching, while they were booked, or while they were used.",
	}, []string{"stage"})
	repaired = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "muster_bookings_repaired_total",
		Help: "Bookings of Provisioned requests that were short of room and were booked anew.",
	})
)

func init() {
	for _, stage := range []string{"launching", "booked", "used"} {
		lost.WithLabelValues(stage) // increase() never sees the first of a series that begins with it
	}
	metrics.Registry.MustRegister(Collectors()...)
}

// Collectors are all that the controller shows.
func Collectors() []prometheus.Collector { return []prometheus.Collector{lost, repaired} }
