// Package metrics are the Prometheus metrics of the queues, under the names, labels and types
// of Kueue's own metrics, so that existing dashboards and alerts keep working. Forecasts, which
// Kueue does not have, are muster_*, as is which kinds of jobs are served.
//
// Counters count from when the process began to lead. Gauges show what the status of queues
// says, or is about to say.
package metrics

import (
	"cmp"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/workload"
)

// Roles of a process, as in the label replica_role.
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
	// LocalQueues selects, by their labels, the LocalQueues that are shown by themselves,
	// too; nil shows none. Clusters may have very many.
	LocalQueues labels.Selector
}

// ConfigFrom reads the settings of the queues. As in Kueue, the default shows all
// LocalQueues.
func ConfigFrom(c *kueueconfig.LocalQueueMetrics) (Config, error) {
	switch {
	case c == nil || c.Enable && c.LocalQueueSelector == nil:
		return Config{LocalQueues: labels.Everything()}, nil
	case !c.Enable:
		return Config{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(c.LocalQueueSelector)
	return Config{LocalQueues: selector}, err
}

// Metrics are the metrics of the queues. Only one goroutine may use them, except for Created, Ungated and KindServed.
type Metrics struct {
	config Config
	all    []prometheus.Collector

	attempts *prometheus.CounterVec
	attempt  *prometheus.HistogramVec
	skips    *prometheus.GaugeVec
	effort   *prometheus.CounterVec

	reserved, admitted, finished, evicted counters
	reservedWait, admittedWait, checkWait histograms
	readyWait, startWait                  histograms
	evictedOnce, preempted, replaced      *prometheus.CounterVec
	ranReady, evictionTook                *prometheus.HistogramVec
	created, ungated                      *prometheus.HistogramVec
	kindServed                            *prometheus.GaugeVec

	pending, over, reserving, running gauges
	status                            gauges
	reservation, usage                gauges
	pendingResources, info            *prometheus.GaugeVec
	unadmitted                        gauges
	nominal, borrowing, lending       *prometheus.GaugeVec
	share, fairUsage                  *prometheus.GaugeVec

	cohorts cohorts
	// queues are the existing ClusterQueues. Any goroutine may read them.
	queues sync.Map
	// shown are the LocalQueues that the configuration selects.
	shown map[types.NamespacedName]bool
	// above are the cohorts of each ClusterQueue, its parent first.
	above map[string][]string
	// waitFor are the resources with a pending value for a ClusterQueue, and flavors the flavors with a value for a LocalQueue, with
	// their resources. They are used to delete values that do not exist any more.
	waitFor map[string]nodegroups.Resources
	flavors map[types.NamespacedName][]kueue.LocalQueueFlavorUsage
	// causes are those by which Workloads of a queue are shown not to be admitted, by its labels.
	causes map[where][]cache.Unadmitted

	forecasts forecasts
}

// New returns metrics without values, except for the build info.
func New(c Config) *Metrics {
	c.Role = cmp.Or(c.Role, Standalone)
	m := &Metrics{config: c, shown: map[types.NamespacedName]bool{}, above: map[string][]string{},
		waitFor: map[string]nodegroups.Resources{}, flavors: map[types.NamespacedName][]kueue.LocalQueueFlavorUsage{},
		causes: map[where][]cache.Unadmitted{}}
	m.attempts = m.counter("admission_attempts_total",
		"Admission cycles, by whether a Workload got quota (success) or none did (inadmissible).", "result")
	m.attempt = m.histogram("admission_attempt_duration_seconds",
		"Duration of an admission cycle, by whether a Workload got quota in it.", prometheus.DefBuckets, "result")
	m.skips = m.gauge("admission_cycle_preemption_skips",
		"Workloads of the last cycle whose preemption targets were already taken by a Workload before them.", "cluster_queue")

	m.effort = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_scheduling_effort_total",
		Help: "What it cost to evaluate the pending Workloads of a ClusterQueue, in evaluations. " +
			"A plan of machines, a search for victims and a placement in a Topology count as 32.",
	}, []string{"cluster_queue"})
	m.all = append(m.all, m.effort)

	m.reserved = m.counters("quota_reserved_workloads_total", "Workloads that got quota.", "priority_class")
	m.reservedWait = m.histograms("quota_reserved_wait_time_seconds",
		"Time from the creation or requeue of a Workload to its quota reservation.", 14, "priority_class")
	m.admitted = m.counters("admitted_workloads_total", "Workloads that were admitted.", "priority_class")
	m.admittedWait = m.histograms("admission_wait_time_seconds",
		"Time from the creation or requeue of a Workload to its admission.", 16, "priority_class")
	m.checkWait = m.histograms("admission_checks_wait_time_seconds",
		"Time from the quota reservation of a Workload to its admission.", 14, "priority_class")
	m.finished = m.counters("finished_workloads_total", "Workloads that have finished.", "priority_class")
	m.readyWait = m.histograms("ready_wait_time_seconds",
		"Time from the creation or requeue of a Workload until all its pods were ready, where waitForPodsReady is on.",
		14, "priority_class")
	m.startWait = m.histograms("admitted_until_ready_wait_time_seconds",
		"Time from the admission of a Workload until all its pods were ready, where waitForPodsReady is on.", 14, "priority_class")
	m.evicted = m.counters("evicted_workloads_total", "Evictions of Workloads, by reason.", "reason", "underlying_cause", "priority_class")

	m.evictedOnce = m.counter("evicted_workloads_once_total",
		"Workloads that were evicted for the first time for a reason.", "cluster_queue", "reason", "underlying_cause", "priority_class")
	m.ranReady = m.histogram("pods_ready_to_evicted_time_seconds",
		"Time from when all pods of a Workload were ready to its eviction.", waits(14), "cluster_queue", "reason", "underlying_cause")
	m.evictionTook = m.histogram("workload_eviction_latency_seconds",
		"Time from the eviction of a Workload to the release of its quota.", waits(14), "cluster_queue", "reason")
	m.created = m.histogram("workload_creation_latency_seconds",
		"Time from the creation of a job to that of its Workload, for jobs that were not changed in between.",
		prometheus.ExponentialBuckets(0.01, 2, 11), "job_kind")
	m.ungated = m.histogram("pod_scheduling_gate_removal_seconds",
		"Time from the admission of a Workload to the removal of the scheduling gate of one of its pods.",
		prometheus.DefBuckets, "name", "cluster_queue", "is_group")
	m.kindServed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "muster_job_kind_served",
		Help: "Whether the cluster serves a kind of jobs that is a custom resource; only those that it has served since the start.",
	}, []string{"kind"})
	m.all = append(m.all, m.kindServed)
	m.preempted = m.counter("preempted_workloads_total",
		"Workloads that were preempted, by the ClusterQueue of the preemptor and by reason.", "preempting_cluster_queue", "reason")
	m.replaced = m.counter("replaced_workload_slices_total", "Workload slices that another slice has replaced.", "cluster_queue")

	m.pending = m.gauges("pending_workloads",
		"Workloads that wait, by whether the next cycle tries them (active) or something has to change first (inadmissible).", "status")
	m.over = m.gauges("finished_workloads", "Finished Workloads that are not deleted yet.")
	m.reserving = m.gauges("reserving_active_workloads", "Workloads with quota.")
	m.running = m.gauges("admitted_active_workloads", "Workloads that are admitted and not finished.")
	m.status = gauges{
		m.gauge("cluster_queue_status", "1 for the current status of a ClusterQueue, 0 for the others.", "cluster_queue", "status"),
		m.localGauge("status", "1 for the current status of the condition Active of a LocalQueue, 0 for the others.", "active"),
	}
	where := []string{"cohort", "cluster_queue", "flavor", "resource"}
	m.reservation = gauges{
		m.gauge("cluster_queue_resource_reservation", "Quota that is reserved.", where...),
		m.localGauge("resource_reservation", "Quota that is reserved.", "flavor", "resource"),
	}
	m.usage = gauges{
		m.gauge("cluster_queue_resource_usage", "Quota that admitted Workloads use.", where...),
		m.localGauge("resource_usage", "Quota that admitted Workloads use.", "flavor", "resource"),
	}
	const notAdmitted = "Active Workloads that are not admitted, by the reasons of their conditions Admitted and QuotaReserved."
	m.unadmitted = gauges{
		m.gauge("unadmitted_workloads", notAdmitted, "cluster_queue", "reason", "underlying_cause"),
		m.localGauge("unadmitted_workloads", notAdmitted, "cluster_queue", "reason", "underlying_cause"),
	}
	m.pendingResources = m.gauge("cluster_queue_resource_pending", "Requests of the Workloads that wait.", "cluster_queue", "resource")
	m.info = m.gauge("cluster_queue_info",
		"Place of a ClusterQueue among the cohorts, for joins; always 1.", "cluster_queue", "parent_cohort", "root_cohort")
	m.nominal = m.gauge("cluster_queue_nominal_quota", "Nominal quota.", where...)
	m.borrowing = m.gauge("cluster_queue_borrowing_limit", "Borrowing limit; infinite if there is none.", where...)
	m.lending = m.gauge("cluster_queue_lending_limit", "Lending limit; infinite if there is none.", where...)
	m.share = m.gauge("cluster_queue_weighted_share",
		"Borrowed share of the lendable quota in thousandths, divided by the weight; NaN if that is zero.", "cluster_queue", "cohort")
	if m.config.LocalQueues != nil {
		m.fairUsage = m.gauge("local_queue_admission_fair_sharing_usage",
			"Weighted recent usage of a LocalQueue, where its ClusterQueue has admission fair sharing.", "name", "namespace", "cluster_queue")
	}
	m.cohorts = m.newCohorts()
	m.forecasts = m.newForecasts()
	m.Accuracy(forecast.Accuracy{}, 0)
	m.showBuild()
	return m
}

// Describe and Collect implement prometheus.Collector for all of them.
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

// Effort counts what it cost to evaluate the Workloads of a ClusterQueue.
func (m *Metrics) Effort(queue string, effort int) {
	if !m.isGone(queue) {
		m.effort.WithLabelValues(queue).Add(float64(effort))
	}
}

// Reserved counts a Workload that got quota, and was admitted with it if it has no admission
// checks. Before and after are the versions on both sides of the write.
func (m *Metrics) Reserved(before, after *kueue.Workload, now time.Time) {
	at, class := m.whereOf(after), classOf(after)
	if m.isGone(at.clusterQueue) {
		return
	}
	m.reserved.inc(at, class)
	m.reservedWait.observe(at, now.Sub(queued(before)), class)
	if isTrue(after, kueue.WorkloadAdmitted) {
		m.admit(before, after, 0, now)
	}
}

// Admitted counts a Workload that had quota and was admitted.
func (m *Metrics) Admitted(before, after *kueue.Workload, now time.Time) {
	if m.isGone(m.whereOf(after).clusterQueue) {
		return
	}
	var waited time.Duration
	if c := apimeta.FindStatusCondition(before.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		waited = now.Sub(c.LastTransitionTime.Time)
	}
	m.admit(before, after, waited, now)
}

func (m *Metrics) admit(before, after *kueue.Workload, forChecks time.Duration, now time.Time) {
	at, class := m.whereOf(after), classOf(after)
	for _, cohort := range m.above[at.clusterQueue] {
		m.cohorts.admitted.WithLabelValues(cohort, class).Inc()
	}
	m.admitted.inc(at, class)
	m.admittedWait.observe(at, now.Sub(queued(before)), class)
	if len(after.Status.AdmissionChecks) > 0 {
		m.checkWait.observe(at, forChecks, class)
	}
}

// Evicted counts a Workload with quota that is evicted.
func (m *Metrics) Evicted(before, after *kueue.Workload, reason, cause string, now time.Time) {
	reason, _, _ = strings.Cut(reason, "DueTo")
	at, class := m.whereOf(before), classOf(before)
	if m.isGone(at.clusterQueue) {
		return
	}
	m.evicted.inc(at, reason, cause, class)
	if stats := after.Status.SchedulingStats; stats != nil &&
		slices.ContainsFunc(stats.Evictions, func(x kueue.WorkloadSchedulingStatsEviction) bool {
			return x.Reason == reason && string(x.UnderlyingCause) == cause && x.Count == 1
		}) {
		m.evictedOnce.WithLabelValues(at.clusterQueue, reason, cause, class).Inc()
	}
	if ready := trueSince(before, kueue.WorkloadPodsReady); !ready.IsZero() {
		m.ranReady.WithLabelValues(at.clusterQueue, reason, cause).Observe(seconds(now.Sub(ready)))
	}
}

// Changed counts what two versions of a Workload show, whichever process wrote them.
func (m *Metrics) Changed(before, after *kueue.Workload) {
	if m.isGone(m.whereOf(before).clusterQueue) || m.isGone(m.whereOf(after).clusterQueue) {
		return
	}
	if isTrue(after, kueue.WorkloadFinished) && !isTrue(before, kueue.WorkloadFinished) {
		m.finished.inc(m.whereOf(after), classOf(after))
		if workload.IsReplaced(after) {
			m.replaced.WithLabelValues(m.whereOf(after).clusterQueue).Inc()
		}
	}
	ready := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadPodsReady)
	admitted := trueSince(after, kueue.WorkloadAdmitted)
	if ready != nil && ready.Status == metav1.ConditionTrue && ready.Reason == kueue.WorkloadStarted &&
		!isTrue(before, kueue.WorkloadPodsReady) && !admitted.IsZero() {
		at, class := m.whereOf(after), classOf(after)
		m.readyWait.observe(at, ready.LastTransitionTime.Sub(queued(after)), class)
		m.startWait.observe(at, ready.LastTransitionTime.Sub(admitted), class)
	}
	evicted := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadEvicted)
	lost := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadQuotaReserved)
	if evicted != nil && evicted.Status == metav1.ConditionTrue && lost != nil && lost.Status == metav1.ConditionFalse &&
		isTrue(before, kueue.WorkloadQuotaReserved) && before.Status.Admission != nil {
		m.evictionTook.WithLabelValues(string(before.Status.Admission.ClusterQueue), evicted.Reason).
			Observe(seconds(lost.LastTransitionTime.Sub(evicted.LastTransitionTime.Time)))
	}
}

// Created shows how long it took until a job had its Workload. It may be called by any
// goroutine.
func (m *Metrics) Created(kind string, job metav1.Object, w *kueue.Workload) {
	if job.GetGeneration() <= 1 {
		m.created.WithLabelValues(kind).Observe(seconds(w.CreationTimestamp.Sub(job.GetCreationTimestamp().Time)))
	}
}

// Ungated shows how long it took until a gate of a pod was removed once its Workload was
// admitted. It may be called by any goroutine.
func (m *Metrics) Ungated(gate string, w *kueue.Workload, now time.Time) {
	if admitted := trueSince(w, kueue.WorkloadAdmitted); !admitted.IsZero() && w.Status.Admission != nil &&
		!m.isGone(string(w.Status.Admission.ClusterQueue)) {
		m.ungated.WithLabelValues(gate, string(w.Status.Admission.ClusterQueue), "false").Observe(seconds(now.Sub(admitted)))
	}
}

// KindServed shows whether the cluster serves a kind of jobs. It may be called by any goroutine.
func (m *Metrics) KindServed(kind schema.GroupKind, served bool) {
	value := 0.0
	if served {
		value = 1
	}
	m.kindServed.WithLabelValues(kind.String()).Set(value)
}

// Preempted counts a Workload that is preempted. After is the version that says why.
func (m *Metrics) Preempted(after *kueue.Workload, by kueue.ClusterQueueReference) {
	if c := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadPreempted); c != nil && !m.isGone(string(by)) {
		m.preempted.WithLabelValues(string(by), c.Reason).Inc()
	}
}

// Forget drops a queue or cohort that is gone.
func (m *Metrics) Forget(object metav1.Object) {
	switch object.(type) {
	case *kueue.ClusterQueue:
		m.queues.Delete(object.GetName())
		delete(m.above, object.GetName())
		delete(m.waitFor, object.GetName())
		delete(m.causes, where{clusterQueue: object.GetName()})
		m.forget(prometheus.Labels{"cluster_queue": object.GetName()}, m.vectors()...)
		m.forget(prometheus.Labels{"preempting_cluster_queue": object.GetName()}, m.preempted)
	case *kueue.LocalQueue:
		key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		if m.shown[key] {
			delete(m.shown, key)
			delete(m.flavors, key)
			maps.DeleteFunc(m.causes, func(at where, _ []cache.Unadmitted) bool {
				return at.namespace == key.Namespace && at.localQueue == key.Name
			})
			m.forget(prometheus.Labels{"name": object.GetName(), "namespace": object.GetNamespace()}, m.vectors()...)
		}
	case *kueue.Cohort:
		m.deleteCohort(object.GetName())
	}
}

// isGone reports whether a ClusterQueue is not there. Events of its Workloads may come after it has been deleted, and would bring its
// metrics back for good. No name is that of no queue.
func (m *Metrics) isGone(queue string) bool {
	_, ok := m.queues.Load(queue)
	return !ok && queue != ""
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
		Subsystem: subsystem, Name: "build_info", Help: "Version and platform of the build; always 1.", ConstLabels: labels,
	})
	build.Set(1)
	m.all = append(m.all, build)
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

// trueSince is when a condition became true; zero if it is not.
func trueSince(w *kueue.Workload, condition string) time.Time {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// seconds of a time that has passed. Clocks differ, and a time in the future is none.
func seconds(d time.Duration) float64 { return max(0, d.Seconds()) }

func isTrue(w *kueue.Workload, condition string) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition)
}
