// Package calls has what the calls to all clouds share: their metrics, the order of launches, and batches that a cloud refuses in part.
package calls

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var (
	total = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_cloud_calls_total",
		Help: "Calls to a cloud, by the method of its API and the result: OK, or the class of the error.",
	}, []string{"provider", "call", "result"})
	duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "muster_cloud_call_duration_seconds",
		Help:    "How long a cloud took to answer a call, without the time that the call waited for its turn.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120},
	}, []string{"provider"})
)

// OK is the result of a call that succeeded.
const OK = "OK"

// Observe records a call.
func Observe(provider v1alpha1.Provider, call, result string, took time.Duration) {
	total.WithLabelValues(string(provider), call, result).Inc()
	duration.WithLabelValues(string(provider)).Observe(took.Seconds())
}

// Collectors returns the metrics.
func Collectors() []prometheus.Collector { return []prometheus.Collector{total, duration} }
