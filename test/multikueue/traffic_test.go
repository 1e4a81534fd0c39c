package multikueue

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/testbed"
)

// traffic is what an API server has had to do.
type traffic struct {
	cpu float64
	// writes and reads by resource and verb; watches count once each.
	writes, reads map[string]float64
}

var (
	sample = regexp.MustCompile(`(?m)^(apiserver_request_total|process_cpu_seconds_total)(?:\{(.*)\})? (\S+)$`)
	label  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// trafficOf reads the metrics of each API server, the manager's first.
func (s *site) trafficOf() (out []traffic) {
	s.Helper()
	for _, c := range append([]*testbed.Cluster{manager}, workers...) {
		caller, err := rest.HTTPClientFor(c.RESTConfig())
		if err != nil {
			s.Fatal(err)
		}
		answer, err := caller.Get(c.RESTConfig().Host + "/metrics")
		if err != nil {
			s.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			s.Fatalf("reading metrics: %s, %v", answer.Status, err)
		}
		t := traffic{writes: map[string]float64{}, reads: map[string]float64{}}
		for _, found := range sample.FindAllStringSubmatch(string(text), -1) {
			value, err := strconv.ParseFloat(found[3], 64)
			if err != nil {
				s.Fatal(err)
			}
			t.take(found[1], found[2], value)
		}
		out = append(out, t)
	}
	return out
}

func (t *traffic) take(series, labels string, value float64) {
	if series == "process_cpu_seconds_total" {
		t.cpu = value
		return
	}
	of := map[string]string{}
	for _, l := range label.FindAllStringSubmatch(labels, -1) {
		of[l[1]] = l[2]
	}
	if of["resource"] == "" || of["resource"] == "leases" {
		return
	}
	what := of["verb"] + " " + of["resource"]
	if of["subresource"] != "" {
		what += "/" + of["subresource"]
	}
	switch of["verb"] {
	case "GET", "LIST":
		t.reads[what] += value
	case "POST", "PUT", "PATCH", "APPLY", "DELETE":
		t.writes[what] += value
	}
}

// reportTraffic reports the load of each API server for one of n jobs.
func (s *site) reportTraffic(before []traffic, n int) {
	s.Helper()
	for i, after := range s.trafficOf() {
		name := "manager"
		if i > 0 {
			name = sandbox.Worker(i)
		}
		s.Logf("%s: %.1f CPU-s; a job: %s; %s", name, after.cpu-before[i].cpu, table("writes", after.writes, before[i].writes, n),
			table("reads", after.reads, before[i].reads, n))
	}
}

// table lists what there was of each for one of n jobs, the most first.
func table(what string, after, before map[string]float64, n int) string {
	var each []string
	sum := 0.0
	count := func(of string) float64 { return (after[of] - before[of]) / float64(n) }
	for _, of := range slices.SortedFunc(maps.Keys(after), func(a, b string) int { return int(1e3 * (count(b) - count(a))) }) {
		sum += count(of)
		if count(of) >= 0.05 {
			each = append(each, fmt.Sprintf("%s %.2f", of, count(of)))
		}
	}
	return fmt.Sprintf("%.1f %s (%s)", sum, what, strings.Join(each, ", "))
}
