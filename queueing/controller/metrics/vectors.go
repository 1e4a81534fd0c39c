package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	subsystem   = "kueue"
	localPrefix = "local_queue_"
)

// where is the queue that something is counted for. The LocalQueue is empty where it is
// not shown.
type where struct{ clusterQueue, namespace, localQueue string }

func (m *Metrics) whereOf(w *kueue.Workload) where {
	out := where{namespace: w.Namespace}
	if key := (types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}); m.shown[key] {
		out.localQueue = key.Name
	}
	if w.Status.Admission != nil {
		out.clusterQueue = string(w.Status.Admission.ClusterQueue)
	}
	return out
}

// counters count for a ClusterQueue, and for a LocalQueue if those are shown.
type counters struct{ queue, local *prometheus.CounterVec }

func (c counters) inc(at where, labels ...string) {
	c.queue.WithLabelValues(append([]string{at.clusterQueue}, labels...)...).Inc()
	if at.localQueue != "" {
		c.local.WithLabelValues(append([]string{at.localQueue, at.namespace}, labels...)...).Inc()
	}
}

// histograms are like counters, of times.
type histograms struct{ queue, local *prometheus.HistogramVec }

func (h histograms) observe(at where, d time.Duration, labels ...string) {
	h.queue.WithLabelValues(append([]string{at.clusterQueue}, labels...)...).Observe(seconds(d))
	if at.localQueue != "" {
		h.local.WithLabelValues(append([]string{at.localQueue, at.namespace}, labels...)...).Observe(seconds(d))
	}
}

// gauges are those of ClusterQueues, and of LocalQueues if those are shown.
type gauges struct{ queue, local *prometheus.GaugeVec }

func (m *Metrics) counters(name, help string, labels ...string) counters {
	out := counters{queue: m.counter(name, help, append([]string{"cluster_queue"}, labels...)...)}
	if m.config.LocalQueues != nil {
		out.local = m.counter(localPrefix+name, help, append([]string{"name", "namespace"}, labels...)...)
	}
	return out
}

// histograms have so many buckets for ClusterQueues; for LocalQueues it is always 14.
func (m *Metrics) histograms(name, help string, buckets int, labels ...string) histograms {
	out := histograms{queue: m.histogram(name, help, waits(buckets), append([]string{"cluster_queue"}, labels...)...)}
	if m.config.LocalQueues != nil {
		out.local = m.histogram(localPrefix+name, help, waits(14), append([]string{"name", "namespace"}, labels...)...)
	}
	return out
}

func (m *Metrics) gauges(name, help string, labels ...string) gauges {
	return gauges{m.gauge(name, help, append([]string{"cluster_queue"}, labels...)...), m.localGauge(name, help, labels...)}
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	out := prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help, ConstLabels: m.role()}, labels)
	m.all = append(m.all, out)
	return out
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	out := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: subsystem, Name: name, Help: help, ConstLabels: m.role(), Buckets: buckets,
	}, labels)
	m.all = append(m.all, out)
	return out
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	out := prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, ConstLabels: m.role()}, labels)
	m.all = append(m.all, out)
	return out
}

// localGauge is that of a LocalQueue; nil if those are not shown.
func (m *Metrics) localGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	if m.config.LocalQueues == nil {
		return nil
	}
	return m.gauge(localPrefix+name, help, append([]string{"name", "namespace"}, labels...)...)
}

func (m *Metrics) role() prometheus.Labels { return prometheus.Labels{"replica_role": m.config.Role} }

// waits are bounds from a second to hours.
func waits(n int) []float64 {
	return append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, n-1)...)
}
