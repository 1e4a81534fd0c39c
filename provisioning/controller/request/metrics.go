package request

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/purchases"
)

var (
	lost = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_machines_lost_total",
		Help: "Machines that ended by themselves, by group and by whether their gang was launching, had booked them or used them; the group " +
			"is empty for nodes of none.",
	}, []string{"group", "stage"})
	observed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_dry_run_decisions_total",
		Help: "Decisions for requests that a muster with --dry-run has reported and not carried out, by what it would have done.",
	}, []string{"decision"})
	stopped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "muster_purchases_stopped_total",
		Help: "How often a request was stopped from buying machines, since it had bought twice what its gang needs.",
	})
	vain = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_vain_cost_usd_total",
		Help: "What machines that never served their gang had cost in USD when their launch failed or they were lost, by the namespace of the " +
			"request, by group and by cause: the class of the failure, or Undone where the group did not cause the failure.",
	}, []string{"namespace", "group", "cause"})
	repaired = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "muster_bookings_repaired_total",
		Help: "Bookings of Provisioned requests that were short of room and were booked again.",
	})
)

// The stages in which machines are lost.
const (
	stageLaunching = "launching"
	stageBooked    = "booked"
	stageUsed      = "used"
)

func init() { metrics.Registry.MustRegister(Collectors()...) }

// showLosses initializes the losses of a group: increase() ignores the first value of a series.
func showLosses(group string) {
	for _, stage := range []string{stageLaunching, stageBooked, stageUsed} {
		lost.WithLabelValues(group, stage)
	}
}

// showVain initializes the spend in vain of a namespace in the group.
func showVain(namespace, group string) {
	for _, class := range []v1alpha1.ErrorClass{v1alpha1.Config, v1alpha1.Lost, v1alpha1.Scattered, v1alpha1.Timeout} {
		vain.WithLabelValues(namespace, group, string(class))
	}
	vain.WithLabelValues(namespace, group, purchases.Undone)
}

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{lost, vain, observed, stopped, repaired}
}
