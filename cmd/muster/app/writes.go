package app

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// writes counts muster's requests to the API server other than reads. Writes are what a
// control plane has the least capacity for.
var writes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "muster_api_writes_total",
	Help: "Writes that muster has sent to the API server, by verb and by resource with its subresource, refused ones included.",
}, []string{"verb", "resource"})

func init() { metrics.Registry.MustRegister(Collectors()...) }

// Collectors are the manager's metrics beside those of its controllers.
func Collectors() []prometheus.Collector { return []prometheus.Collector{writes} }

// countWrites wraps a transport so that writes are counted.
func countWrites(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			writes.WithLabelValues(r.Method, resourceOf(r.URL.Path)).Inc()
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// resourceOf returns the resource of an API path, with its subresource. A path is /api/v1 or
// /apis/group/version, the namespace, then resource, name, subresource.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "other"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
