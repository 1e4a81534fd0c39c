package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/cmd/version"
)

// writes counts muster's requests to the API server other than reads. Writes are what a
// control plane has the least capacity for.
var writes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "muster_api_writes_total",
	Help: "Writes that muster has sent to the API server, by verb and by resource with its subresource, refused ones included.",
}, []string{"verb", "resource"})

func init() { metrics.Registry.MustRegister(Collectors()...) }

// buildInfo has the build of the process.
var buildInfo = func() *prometheus.GaugeVec {
	out := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "muster_build_info",
		Help: "1, by the version of muster, the commit that it was built from, and the version of Go.",
	}, []string{"version", "commit", "go"})
	build := version.Get()
	out.WithLabelValues(build.Version, build.Revision, build.Go).Set(1)
	return out
}()

// Collectors returns the manager's metrics beside those of its controllers.
func Collectors() []prometheus.Collector {
	return append([]prometheus.Collector{writes, buildInfo}, calls.Collectors()...)
}

// countWrites wraps a transport so that writes are counted.
func countWrites(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		resource := resourceOf(r.URL.Path)
		writes.WithLabelValues(r.Method, resource).Inc()
		answer, err := next.RoundTrip(r)
		refusals.note(r.Method+" "+resource, answer, err)
		return answer, err
	})
}

// mostRefusals in a row of one kind of write, over at least refusedFor, mean that none succeeds.
const (
	mostRefusals = 5
	refusedFor   = 30 * time.Second
	// forgotten is how long a refusal counts.
	forgotten = 10 * time.Minute
)

// refused are the writes whose last attempts failed, by verb and resource.
type refused struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	kinds map[string]*refusal
}

type refusal struct {
	since, last time.Time
	count       int
	reason      string
}

var refusals = &refused{clock: clock.RealClock{}, kinds: map[string]*refusal{}}

// note records the outcome of a write. A response that concerns one object, such as a conflict, an invalid field or a denial, shows that
// writes of the kind are accepted.
func (r *refused) note(kind string, answer *http.Response, err error) {
	reason := ""
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, errNoLeader):
		return
	case err != nil:
		reason = err.Error()
	case answer.StatusCode >= http.StatusInternalServerError:
		reason = answer.Status
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == "" {
		delete(r.kinds, kind)
		return
	}
	k := r.kinds[kind]
	if k == nil {
		k = &refusal{since: r.clock.Now()}
		r.kinds[kind] = k
	}
	k.count, k.last, k.reason = k.count+1, r.clock.Now(), reason
}

// ready is a healthz.Checker.
func (r *refused) ready(*http.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		if k := r.kinds[kind]; k.count >= mostRefusals && r.clock.Since(k.since) >= refusedFor && r.clock.Since(k.last) < forgotten {
			errs = append(errs, fmt.Errorf("all %d writes %s since %s failed, the last with: %s", k.count, kind,
				k.since.UTC().Format(time.RFC3339), k.reason))
		}
	}
	return errors.Join(errs...)
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
