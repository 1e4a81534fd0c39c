package runner

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/scenario/report"
)

// countWrites has the clients of the configuration count what they send beside reads.
func countWrites(config *rest.Config) *atomic.Int64 {
	count := &atomic.Int64{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				count.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	return count
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// counts are what the components count of themselves.
type counts struct {
	// writes by component; that of kube-apiserver are all that it got.
	writes map[string]int64
	// latency of writes at kube-apiserver, by the upper bound in the metrics' words.
	latency map[string]int64
	// attempts of kube-scheduler by result.
	attempts map[string]int64
}

func newCounts() counts {
	return counts{writes: map[string]int64{}, latency: map[string]int64{}, attempts: map[string]int64{}}
}

// counting are the components that count what is read here.
var counting = []string{cluster.APIServer, cluster.Scheduler, cluster.ControllerManager, cluster.Muster}

// count reads the metrics of the existing components. The result has those that answer, by name; the error is about the others.
func count(ctx context.Context, c *cluster.Cluster) (map[string]counts, error) {
	// kube-scheduler and kube-controller-manager accept the administrator's certificate as kube-apiserver does.
	caller, err := rest.HTTPClientFor(c.RESTConfig())
	if err != nil {
		return nil, err
	}
	out := map[string]counts{}
	var failed []error
	for _, component := range c.State().Components {
		name := component.Name
		if !slices.Contains(counting, name) {
			continue
		}
		at, err := url.Parse(component.Probe.URL)
		if err != nil {
			failed = append(failed, fmt.Errorf("finding %s: %w", name, err))
			continue
		}
		at.Path, at.RawQuery = "/metrics", ""
		address := at.String()
		if name == cluster.Muster {
			address = c.MusterMetrics()
		}
		one := newCounts()
		if err := read(ctx, caller, address, func(series string, labels map[string]string, value float64) {
			one.take(name, series, labels, int64(value))
		}); err != nil {
			failed = append(failed, fmt.Errorf("reading the metrics of %s: %w", name, err))
			continue
		}
		out[name] = one
	}
	return out, errors.Join(failed...)
}

// writeVerbs in kube-apiserver's metrics.
var writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}

func (c counts) take(component, series string, labels map[string]string, value int64) {
	switch series {
	case "apiserver_request_total":
		if component == cluster.APIServer && slices.Contains(writeVerbs, labels["verb"]) {
			c.writes[component] += value
		}
	case "apiserver_request_duration_seconds_bucket":
		if component == cluster.APIServer && slices.Contains(writeVerbs, labels["verb"]) {
			c.latency[labels["le"]] += value
		}
	case "rest_client_requests_total":
		// Those without a status have met no kube-apiserver.
		if component != cluster.APIServer && component != cluster.Muster && labels["method"] != http.MethodGet && labels["code"] != "<error>" {
			c.writes[component] += value
		}
	case "muster_api_writes_total":
		c.writes[component] += value
	case "scheduler_schedule_attempts_total":
		c.attempts[labels["result"]] += value
	}
}

// minus is what was counted since.
func (c counts) minus(before counts) counts {
	return counts{difference(c.writes, before.writes), difference(c.latency, before.latency), difference(c.attempts, before.attempts)}
}

// add is for what was counted later.
func (c counts) add(more counts) {
	for _, sum := range []struct{ to, from map[string]int64 }{{c.writes, more.writes}, {c.latency, more.latency},
		{c.attempts, more.attempts}} {
		for k, n := range sum.from {
			sum.to[k] += n
		}
	}
}

func difference(after, before map[string]int64) map[string]int64 {
	out := maps.Clone(after)
	for k, n := range before {
		out[k] -= n
	}
	return out
}

// fill puts the counts into a record. Writes that no component counts are KWOK's, except for
// a few of kube-apiserver's own.
func (c counts) fill(r *report.Record, own int64) {
	rest := c.writes[cluster.APIServer] - own
	for _, name := range []string{cluster.Muster, cluster.Scheduler, cluster.ControllerManager} {
		if n, ok := c.writes[name]; ok {
			r.Writes = append(r.Writes, report.Writer{Who: name, Writes: n})
			rest -= n
		}
	}
	r.Writes = append(r.Writes, report.Writer{Who: "kwok and others", Writes: rest}, report.Writer{Who: "users", Writes: own},
		report.Writer{Who: "all", Writes: c.writes[cluster.APIServer]})
	r.Scheduled, r.Unschedulable = c.attempts["scheduled"], c.attempts["unschedulable"]
	var last time.Duration
	for _, le := range slices.SortedFunc(maps.Keys(c.latency), func(a, b string) int { return cmp.Compare(seconds(a), seconds(b)) }) {
		if bound := seconds(le); bound < mostSeconds {
			last = time.Duration(bound * float64(time.Second))
		}
		// What took longer than the last bound counts in the last bucket.
		r.Latency = append(r.Latency, report.Bucket{AtMost: last, Count: c.latency[le]})
	}
}

// mostSeconds is beyond all bounds but the infinite one.
const mostSeconds = 1e6

func seconds(le string) float64 {
	f, err := strconv.ParseFloat(le, 64)
	if err != nil {
		return mostSeconds
	}
	return f
}

// read reads metrics in the text format.
func read(ctx context.Context, caller *http.Client, address string, take func(series string, labels map[string]string,
	value float64)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := caller.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", address, response.Status)
	}
	return parse(response.Body, take)
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// parse reads the series in known. Their labels have no quotes in them.
func parse(in io.Reader, take func(series string, labels map[string]string, value float64)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, rest, ok := strings.Cut(lines.Text(), "{")
		if !ok || !slices.Contains(known, series) {
			continue
		}
		end := strings.LastIndexByte(rest, '}')
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[end+1:]), 64)
		if err != nil {
			return fmt.Errorf("the metric %s has the value %q", series, rest[end+1:])
		}
		labels := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(rest[:end], -1) {
			labels[l[1]] = l[2]
		}
		take(series, labels, value)
	}
	return lines.Err()
}

// known are the series that are read: kube-apiserver has some 10,000 others.
var known = []string{
	"apiserver_request_total", "apiserver_request_duration_seconds_bucket", "rest_client_requests_total",
	"muster_api_writes_total", "scheduler_schedule_attempts_total",
}
