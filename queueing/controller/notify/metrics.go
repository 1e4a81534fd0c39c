package notify

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Reasons for which Notifications are dropped.
const (
	dropFull    = "QueueFull"
	dropLate    = "Late"
	dropRefused = "Refused"
)

var (
	sent = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "muster_notifications_sent_total",
		Help: "Notifications that a receiver has taken.",
	})
	dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_notifications_dropped_total",
		Help: "Notifications that were not sent to a receiver, by the reason: QueueFull, Late after 10 minutes of attempts, or Refused by the " +
			"receiver.",
	}, []string{"reason"})
	misconfigured = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "muster_notifications_invalid_secrets_total",
		Help: "Secrets muster-notifications that were read and name no receiver that is allowed; an Event on the Secret says why.",
	})
)

func init() { metrics.Registry.MustRegister(Collectors()...) }

// Collectors are the metrics of notifications.
func Collectors() []prometheus.Collector { return []prometheus.Collector{sent, dropped, misconfigured} }
