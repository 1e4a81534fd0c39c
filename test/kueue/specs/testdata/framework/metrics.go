package framework

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"

	"sigs.k8s.io/kueue/pkg/metrics"
)

// mirrored are the metrics that specs read in their own process. Custom labels replace them, so this is a function.
func mirrored() []vector {
	return []vector{
		metrics.AdmissionAttemptsTotal, metrics.AdmissionCyclePreemptionSkips, metrics.PendingWorkloads, metrics.LocalQueuePendingWorkloads,
		metrics.FinishedWorkloads, metrics.LocalQueueFinishedWorkloads, metrics.QuotaReservedWorkloadsTotal,
		metrics.LocalQueueQuotaReservedWorkloadsTotal, metrics.FinishedWorkloadsTotal, metrics.LocalQueueFinishedWorkloadsTotal,
		metrics.QuotaReservedWaitTime, metrics.PodsReadyToEvictedTimeSeconds, metrics.LocalQueueQuotaReservedWaitTime,
		metrics.AdmittedWorkloadsTotal, metrics.LocalQueueAdmittedWorkloadsTotal, metrics.AdmissionWaitTime, metrics.QueuedUntilReadyWaitTime,
		metrics.AdmittedUntilReadyWaitTime, metrics.LocalQueueAdmissionWaitTime, metrics.AdmissionChecksWaitTime,
		metrics.LocalQueueAdmissionChecksWaitTime, metrics.LocalQueueQueuedUntilReadyWaitTime, metrics.LocalQueueAdmittedUntilReadyWaitTime,
		metrics.EvictedWorkloadsTotal, metrics.ReplacedWorkloadSlicesTotal, metrics.LocalQueueEvictedWorkloadsTotal,
		metrics.EvictedWorkloadsOnceTotal, metrics.PreemptedWorkloadsTotal, metrics.WorkloadEvictionLatencySeconds,
		metrics.WorkloadCreationLatency, metrics.PodSchedulingGateRemovalSeconds, metrics.ReservingActiveWorkloads,
		metrics.LocalQueueReservingActiveWorkloads, metrics.AdmittedActiveWorkloads, metrics.LocalQueueAdmittedActiveWorkloads,
		metrics.ClusterQueueByStatus, metrics.LocalQueueByStatus, metrics.ClusterQueueResourceReservations, metrics.ClusterQueueResourceUsage,
		metrics.ClusterQueueResourcePending, metrics.LocalQueueResourceReservations, metrics.LocalQueueResourceUsage,
		metrics.LocalQueueAdmissionFairSharingUsage, metrics.ClusterQueueResourceNominalQuota, metrics.ClusterQueueResourceBorrowingLimit,
		metrics.ClusterQueueResourceLendingLimit, metrics.ClusterQueueWeightedShare, metrics.CohortWeightedShare, metrics.CohortSubtreeQuota,
		metrics.CohortSubtreeAdmittedWorkloadsTotal, metrics.CohortSubtreeResourceReservations, metrics.CohortSubtreeAdmittedActiveWorkloads,
		metrics.CohortInfo, metrics.ClusterQueueInfo,
	}
}

// mirrorMetrics copies the metrics that muster serves into those of this process until ctx ends. Muster counts from zero at
// each start, so only what a counter has grown by since is added.
func mirrorMetrics(ctx context.Context, url string, schedules bool) {
	m := mirror{counted: map[string]float64{}, shown: map[string]shown{}, schedules: schedules}
	for {
		m.once(url)
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

type mirror struct {
	// counted are the last values of counters, and of the counts of histograms.
	counted map[string]float64
	// shown are the series of the last read. Series that muster does not export any more are deleted, as Kueue does for deleted queues.
	shown map[string]shown
	// schedules: without its scheduler, Kueue finds no Workload inadmissible, so that all that wait are active.
	schedules bool
}

// vector is a metric with labels.
type vector interface {
	prometheus.Collector
	Delete(prometheus.Labels) bool
}

type shown struct {
	in     vector
	labels prometheus.Labels
}

func (m *mirror) once(url string) {
	answer, err := http.Get(url)
	if err != nil {
		return // muster is starting or ending
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(prommodel.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return
	}
	now := map[string]shown{}
	for _, c := range mirrored() {
		family := families[nameOf(c)]
		if !m.schedules {
			makeActive(families, nameOf(c))
		}
		for _, one := range family.GetMetric() {
			labels := labelsOf(one)
			key := nameOf(c) + keyOf(one)
			now[key] = shown{c, labels}
			switch c := c.(type) {
			case *prometheus.GaugeVec:
				if g, err := c.GetMetricWith(labels); err == nil {
					g.Set(one.GetGauge().GetValue())
				}
			case *prometheus.CounterVec:
				if counter, err := c.GetMetricWith(labels); err == nil {
					counter.Add(m.growth(key, one.GetCounter().GetValue()))
				}
			case *prometheus.HistogramVec:
				if histogram, err := c.GetMetricWith(labels); err == nil {
					for range int(m.growth(key, float64(one.GetHistogram().GetSampleCount()))) {
						histogram.Observe(0)
					}
				}
			}
		}
	}
	for key, last := range m.shown {
		if _, still := now[key]; !still {
			last.in.Delete(last.labels)
			delete(m.counted, key)
		}
	}
	m.shown = now
}

// standing maps each metric of pending Workloads to the metric of whether their queue is active.
var standing = map[string]string{
	"kueue_pending_workloads":             "kueue_cluster_queue_status",
	"kueue_local_queue_pending_workloads": "kueue_local_queue_status",
}

// makeActive counts the inadmissible Workloads of each active queue as active. Both counts are series that differ only in the label
// status.
func makeActive(families map[string]*dto.MetricFamily, pending string) {
	queueOf := func(one *dto.Metric, but string) string {
		labels := labelsOf(one)
		delete(labels, but)
		return fmt.Sprint(labels)
	}
	active := map[string]*dto.Gauge{}
	for _, one := range families[standing[pending]].GetMetric() {
		for _, label := range []string{"status", "active"} {
			if value := labelsOf(one)[label]; (value == "active" || value == "True") && one.GetGauge().GetValue() == 1 {
				active[queueOf(one, label)] = nil
			}
		}
	}
	for _, status := range []string{"active", "inadmissible"} {
		for _, one := range families[pending].GetMetric() {
			queue := queueOf(one, "status")
			into, ok := active[queue]
			switch {
			case !ok || labelsOf(one)["status"] != status:
			case status == "active":
				active[queue] = one.Gauge
			case into != nil:
				*into.Value += one.GetGauge().GetValue()
				*one.Gauge.Value = 0
			}
		}
	}
}

// growth returns by how much a count has grown since the last read.
func (m *mirror) growth(key string, value float64) float64 {
	defer func() { m.counted[key] = value }()
	return max(0, value-m.counted[key])
}

func nameOf(c prometheus.Collector) string {
	descs := make(chan *prometheus.Desc, 1)
	c.Describe(descs)
	_, name, _ := strings.Cut((<-descs).String(), `fqName: "`)
	name, _, _ = strings.Cut(name, `"`)
	return name
}

func labelsOf(one *dto.Metric) prometheus.Labels {
	out := prometheus.Labels{}
	for _, pair := range one.GetLabel() {
		out[pair.GetName()] = pair.GetValue()
	}
	return out
}

func keyOf(one *dto.Metric) string {
	var out strings.Builder
	for _, pair := range one.GetLabel() {
		out.WriteString("\xff" + pair.GetName() + "=" + pair.GetValue())
	}
	return out.String()
}
