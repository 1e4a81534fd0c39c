// Package metrics shows what happens in the queues in the form of Prometheus, under
// the names, labels and types of Kueue's own metrics, so that dashboards and alerts
// which people have go on working. What Kueue has nothing like, forecasts, is muster_*.
//
// Counters are counted from when the process began to lead. Gauges show what the
// status of queues says, or is about to say.
package metrics

import (
	"cmp"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/forecast"
)

// Roles of a process, as the label replica_role tells them.
const (
	// Standalone is the role of the only process.
	Standalone = "standalone"
	// Leader is that of the process that leads others.
	Leader = "leader"
)

// Config says what is shown.
type Config struct {
	// Role is Standalone, which is the default, or Leader.
	Role string
	// LocalQueues shows each LocalQueue by itself, too. Clusters may have very many.
	LocalQueues bool
}

// Metrics are those of the queues. They may be used by many goroutines.
type Metrics struct {
	config Config
	all    []prometheus.Collector

	attempts *prometheus.CounterVec
	attempt  *prometheus.HistogramVec

	reserved, admitted, finished, evicted counters
	reservedWait, admittedWait, checkWait histograms
	preempted, replaced                   *prometheus.CounterVec

	pending, reserving, running gauges
	status                      gauges
	reservation, usage          gauges
	nominal, borrowing, lending *prometheus.GaugeVec
	share, cohortShare          *prometheus.GaugeVec

	forecasts forecasts
}

// New returns metrics without a value, but for that of the build.
func New(c Config) *Metrics {
	c.Role = cmp.Or(c.Role, Standalone)
	m := &Metrics{config: c}
	m.attempts = m.counter("admission_attempts_total", "Cycles in which Workloads were judged, by whether one got quota (success) or none (inadmissible).", "result")
	m.attempt = m.histogram("admission_attempt_duration_seconds", "How long a cycle took, by whether a Workload got quota in it.", prometheus.DefBuckets, "result")

	m.reserved = m.counters("quota_reserved_workloads_total", "Workloads that got quota.", "priority_class")
	m.reservedWait = m.histograms("quota_reserved_wait_time_seconds", "From when a Workload was created or queued again until it got quota.", 14, "priority_class")
	m.admitted = m.counters("admitted_workloads_total", "Workloads that were admitted.", "priority_class")
	m.admittedWait = m.histograms("admission_wait_time_seconds", "From when a Workload was created or queued again until it was admitted.", 16, "priority_class")
	m.checkWait = m.histograms("admission_checks_wait_time_seconds", "From when a Workload got quota until it was admitted.", 14, "priority_class")
	m.finished = m.counters("finished_workloads_total", "Workloads whose jobs are over.", "priority_class")
	m.evicted = m.counters("evicted_workloads_total", "Workloads that had to stop, by why.", "reason", "underlying_cause", "priority_class")

	m.preempted = m.counter("preempted_workloads_total", "Workloads that had to stop for others of a ClusterQueue, by why.", "preempting_cluster_queue", "reason")
	m.replaced = m.counter("replaced_workload_slices_total", "Workload slices whose place another one took.", "cluster_queue")

	m.pending = m.gauges("pending_workloads", "Workloads that wait, by whether they are about to be judged (active) or something has to change first (inadmissible).", "status")
	m.reserving = m.gauges("reserving_active_workloads", "Workloads with quota.")
	m.running = m.gauges("admitted_active_workloads", "Workloads that are admitted and not finished.")
	m.status = gauges{
		m.gauge("cluster_queue_status", "1 for the status of a ClusterQueue, 0 for all others.", "cluster_queue", "status"),
		m.localGauge("status", "1 for whether a LocalQueue is active, 0 for all else.", "active"),
	}
	where := []string{"cohort", "cluster_queue", "flavor", "resource"}
	m.reservation = gauges{
		m.gauge("cluster_queue_resource_reservation", "What Workloads with quota have reserved.", where...),
		m.localGauge("resource_reservation", "What Workloads with quota have reserved.", "flavor", "resource"),
	}
	m.usage = gauges{
		m.gauge("cluster_queue_resource_usage", "What admitted Workloads use.", where...),
		m.localGauge("resource_usage", "What admitted Workloads use.", "flavor", "resource"),
	}
	m.nominal = m.gauge("cluster_queue_nominal_quota", "The nominal quota.", where...)
	m.borrowing = m.gauge("cluster_queue_borrowing_limit", "What may be borrowed; infinite without a limit.", where...)
	m.lending = m.gauge("cluster_queue_lending_limit", "What may be lent; infinite without a limit.", where...)
	m.share = m.gauge("cluster_queue_weighted_share", "What is borrowed of what can be, in thousandths, divided by the weight; NaN if that is zero.", "cluster_queue", "cohort")
	m.cohortShare = m.gauge("cohort_weighted_share", "What is borrowed of what can be, in thousandths, divided by the weight; NaN if that is zero.", "cohort")
	m.forecasts = m.newForecasts()
	m.Accuracy(forecast.Accuracy{}, 0)
	m.showBuild()
	return m
}

// Describe and Collect make all of them one collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(out)
	}
}

func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(out)
	}
}

// Cycle counts a cycle in which Workloads were judged.
func (m *Metrics) Cycle(took time.Duration, admitted bool) {
	result := "inadmissible"
	if admitted {
		result = "success"
	}
	m.attempts.WithLabelValues(result).Inc()
	m.attempt.WithLabelValues(result).Observe(took.Seconds())
}

// Reserved counts a Workload that got quota, and was admitted with it if there was
// nothing to wait for. Before and after are the versions on both sides of the write.
func (m *Metrics) Reserved(before, after *kueue.Workload, now time.Time) {
	at, class := whereOf(after), classOf(after)
	m.reserved.inc(at, class)
	m.reservedWait.observe(at, now.Sub(queued(before)), class)
	if isTrue(after, kueue.WorkloadAdmitted) {
		m.admit(before, after, 0, now)
	}
}

// Admitted counts a Workload that had quota and was admitted.
func (m *Metrics) Admitted(before, after *kueue.Workload, now time.Time) {
	var waited time.Duration
	if c := apimeta.FindStatusCondition(before.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		waited = now.Sub(c.LastTransitionTime.Time)
	}
	m.admit(before, after, waited, now)
}

func (m *Metrics) admit(before, after *kueue.Workload, forChecks time.Duration, now time.Time) {
	at, class := whereOf(after), classOf(after)
	m.admitted.inc(at, class)
	m.admittedWait.observe(at, now.Sub(queued(before)), class)
	m.checkWait.observe(at, forChecks, class)
}

// Evicted counts a Workload that had quota and has to stop.
func (m *Metrics) Evicted(before *kueue.Workload, reason string) {
	reason, cause, _ := strings.Cut(reason, "DueTo")
	m.evicted.inc(whereOf(before), reason, cause, classOf(before))
}

// Preempted counts a Workload that has to stop for another one. After is the version
// that says why.
func (m *Metrics) Preempted(after *kueue.Workload, by kueue.ClusterQueueReference) {
	if c := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadPreempted); c != nil {
		m.preempted.WithLabelValues(string(by), c.Reason).Inc()
	}
}

// Replaced counts a Workload slice whose place another one takes.
func (m *Metrics) Replaced(w *kueue.Workload) {
	m.replaced.WithLabelValues(whereOf(w).clusterQueue).Inc()
}

// Finished counts a Workload whose job is over.
func (m *Metrics) Finished(w *kueue.Workload) { m.finished.inc(whereOf(w), classOf(w)) }

// ClusterQueue shows a ClusterQueue with the status that it should have, and how many
// of its pending Workloads are about to be judged.
func (m *Metrics) ClusterQueue(cq *kueue.ClusterQueue, active int32) {
	status := "pending"
	switch {
	case !cq.DeletionTimestamp.IsZero():
		status = "terminating"
	case apimeta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive):
		status = "active"
	}
	for _, s := range []string{"pending", "active", "terminating"} {
		m.status.queue.WithLabelValues(cq.Name, s).Set(one(s == status))
	}
	setPending(m.pending.queue, cq.Status.PendingWorkloads, active, cq.Name)
	m.reserving.queue.WithLabelValues(cq.Name).Set(float64(cq.Status.ReservingWorkloads))
	m.running.queue.WithLabelValues(cq.Name).Set(float64(cq.Status.AdmittedWorkloads))
	cohort := string(cq.Spec.CohortName)
	use := func(g *prometheus.GaugeVec, usage []kueue.FlavorUsage) {
		for _, f := range usage {
			for i := range f.Resources {
				g.WithLabelValues(cohort, cq.Name, string(f.Name), string(f.Resources[i].Name)).Set(f.Resources[i].Total.AsApproximateFloat64())
			}
		}
	}
	use(m.reservation.queue, cq.Status.FlavorsReservation)
	use(m.usage.queue, cq.Status.FlavorsUsage)
	if fs := cq.Status.FairSharing; fs != nil {
		m.share.WithLabelValues(cq.Name, cohort).Set(shareOf(fs))
	}
}

// Quotas shows the quotas of a ClusterQueue, and forgets those that it had.
func (m *Metrics) Quotas(cq *kueue.ClusterQueue) {
	m.forget(prometheus.Labels{"cluster_queue": cq.Name}, m.nominal, m.borrowing, m.lending, m.reservation.queue, m.usage.queue, m.share)
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for i := range f.Resources {
				r := &f.Resources[i]
				labels := []string{string(cq.Spec.CohortName), cq.Name, string(f.Name), string(r.Name)}
				m.nominal.WithLabelValues(labels...).Set(r.NominalQuota.AsApproximateFloat64())
				borrowing, lending := math.Inf(1), math.Inf(1)
				if r.BorrowingLimit != nil {
					borrowing = r.BorrowingLimit.AsApproximateFloat64()
				}
				if r.LendingLimit != nil {
					lending = r.LendingLimit.AsApproximateFloat64()
				}
				m.borrowing.WithLabelValues(labels...).Set(borrowing)
				m.lending.WithLabelValues(labels...).Set(lending)
			}
		}
	}
}

// LocalQueue shows a LocalQueue with the status that it should have, and how many of
// its pending Workloads are about to be judged.
func (m *Metrics) LocalQueue(lq *kueue.LocalQueue, active int32) {
	if !m.config.LocalQueues {
		return
	}
	status := metav1.ConditionUnknown
	if c := apimeta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive); c != nil {
		status = c.Status
	}
	for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		m.status.local.WithLabelValues(lq.Name, lq.Namespace, string(s)).Set(one(s == status))
	}
	setPending(m.pending.local, lq.Status.PendingWorkloads, active, lq.Name, lq.Namespace)
	m.reserving.local.WithLabelValues(lq.Name, lq.Namespace).Set(float64(lq.Status.ReservingWorkloads))
	m.running.local.WithLabelValues(lq.Name, lq.Namespace).Set(float64(lq.Status.AdmittedWorkloads))
	use := func(g *prometheus.GaugeVec, usage []kueue.LocalQueueFlavorUsage) {
		for _, f := range usage {
			for i := range f.Resources {
				g.WithLabelValues(lq.Name, lq.Namespace, string(f.Name), string(f.Resources[i].Name)).Set(f.Resources[i].Total.AsApproximateFloat64())
			}
		}
	}
	use(m.reservation.local, lq.Status.FlavorsReservation)
	use(m.usage.local, lq.Status.FlavorsUsage)
}

// Cohort shows a Cohort with the status that it should have.
func (m *Metrics) Cohort(c *kueue.Cohort) {
	if c.Status.FairSharing != nil {
		m.cohortShare.WithLabelValues(c.Name).Set(shareOf(c.Status.FairSharing))
	}
}

// Forget shows a queue or cohort that is gone no more.
func (m *Metrics) Forget(object metav1.Object) {
	switch object.(type) {
	case *kueue.ClusterQueue:
		m.forget(prometheus.Labels{"cluster_queue": object.GetName()}, m.vectors()...)
		m.forget(prometheus.Labels{"preempting_cluster_queue": object.GetName()}, m.preempted)
	case *kueue.LocalQueue:
		if m.config.LocalQueues {
			m.forget(prometheus.Labels{"name": object.GetName(), "namespace": object.GetNamespace()}, m.vectors()...)
		}
	case *kueue.Cohort:
		m.forget(prometheus.Labels{"cohort": object.GetName()}, m.cohortShare)
	}
}

// vector is what all kinds of metrics with labels have in common.
type vector interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

func (m *Metrics) vectors() (out []vector) {
	for _, c := range m.all {
		if v, ok := c.(vector); ok {
			out = append(out, v)
		}
	}
	return out
}

func (m *Metrics) forget(labels prometheus.Labels, from ...vector) {
	for _, v := range from {
		v.DeletePartialMatch(labels)
	}
}

// showBuild shows what this process was built from.
func (m *Metrics) showBuild() {
	labels := prometheus.Labels{
		"git_version": "unknown", "git_commit": "unknown", "build_date": "unknown",
		"go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		labels["git_version"] = info.Main.Version
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				labels["git_commit"] = s.Value
			case "vcs.time":
				labels["build_date"] = s.Value
			}
		}
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "build_info", Help: "What the process was built from; always 1.", ConstLabels: labels,
	})
	build.Set(1)
	m.all = append(m.all, build)
}

// setPending shows how many Workloads wait in a queue.
func setPending(g *prometheus.GaugeVec, waiting, active int32, queue ...string) {
	g.WithLabelValues(append(queue, "active")...).Set(float64(active))
	g.WithLabelValues(append(queue, "inadmissible")...).Set(float64(max(0, waiting-active)))
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func shareOf(fs *kueue.FairSharingStatus) float64 {
	if fs.WeightedShare == math.MaxInt64 {
		return math.NaN()
	}
	return float64(fs.WeightedShare)
}

// queued is when a Workload was created or queued again.
func queued(w *kueue.Workload) time.Time {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadRequeued); c != nil {
		return c.LastTransitionTime.Time
	}
	return w.CreationTimestamp.Time
}

func classOf(w *kueue.Workload) string {
	if w.Spec.PriorityClassRef == nil {
		return ""
	}
	return w.Spec.PriorityClassRef.Name
}

func isTrue(w *kueue.Workload, condition string) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition)
}
