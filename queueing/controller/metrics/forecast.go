package metrics

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/queueing/forecast"
)

// How many Workloads of a queue are expected to have started, as in the label workloads.
const (
	half = "half"
	all  = "all"
)

// forecasts are what is shown of forecasts.
type forecasts struct {
	start                          *prometheus.GaugeVec
	took                           prometheus.Histogram
	followed, starts, off, inRange prometheus.Gauge
	// queues are the queues that start has a value for. Only Expected uses it.
	queues map[string][]time.Time
}

// newForecasts are without the label for the role, which only Kueue's metrics need.
func (m *Metrics) newForecasts() forecasts {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_forecast_" + name, Help: help})
	}
	f := forecasts{
		start: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "muster_forecast_start_timestamp_seconds",
			Help: "Expected time at which half or all of the Workloads that wait in a ClusterQueue have started, " +
				"in seconds since 1970; infinite if not within 7 days or unknown.",
		}, []string{"cluster_queue", "workloads"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "muster_forecast_duration_seconds",
			Help:    "Duration of a forecast for all Workloads that wait.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 11),
		}),
		followed: gauge("followed_workloads", "Waiting Workloads whose first forecast will be compared with their start, at most 10,000."),
		starts: gauge("starts",
			"Starts behind muster_forecast_error_ratio and muster_forecast_within_range_ratio: the latest, at most 1,000."),
		off: gauge("error_ratio",
			"Median error of the first forecast of a Workload's start, as a share of the wait from then on; NaN before the first start."),
		inRange: gauge("within_range_ratio",
			"Share of the starts within the range of their first forecast, which should be 0.8; NaN before the first start."),
	}
	m.all = append(m.all, f.start, f.took, f.followed, f.starts, f.off, f.inRange)
	return f
}

// Forecast counts a forecast and how long it took.
func (m *Metrics) Forecast(took time.Duration) { m.forecasts.took.Observe(took.Seconds()) }

// Expected shows when the Workloads that wait in each ClusterQueue are expected to
// start; zero is not within the horizon. Queues that are not named have none.
func (m *Metrics) Expected(starts map[string][]time.Time) {
	f := &m.forecasts
	for queue := range f.queues {
		if len(starts[queue]) == 0 {
			m.forget(prometheus.Labels{"cluster_queue": queue}, f.start)
		}
	}
	f.queues = starts
	for queue, list := range starts {
		if len(list) == 0 {
			continue
		}
		seconds := make([]float64, len(list))
		for i, at := range list {
			if seconds[i] = float64(at.Unix()); at.IsZero() {
				seconds[i] = math.Inf(1)
			}
		}
		slices.Sort(seconds)
		f.start.WithLabelValues(queue, half).Set(seconds[(len(seconds)-1)/2])
		f.start.WithLabelValues(queue, all).Set(seconds[len(seconds)-1])
	}
}

// Accuracy shows how accurate forecasts were, and how many Workloads are followed to find
// out.
func (m *Metrics) Accuracy(a forecast.Accuracy, followed int) {
	f := &m.forecasts
	f.followed.Set(float64(followed))
	f.starts.Set(float64(a.Starts))
	off, inRange := math.NaN(), math.NaN()
	if a.Starts > 0 {
		off, inRange = float64(a.MedianError)/1000, float64(a.Within)/1000
	}
	f.off.Set(off)
	f.inRange.Set(inRange)
}
