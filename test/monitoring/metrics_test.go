package monitoring

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/provisioning/controller/metrics"
	"github.com/muster-dev/muster/provisioning/controller/request"
	queuemetrics "github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/controller/notify"
	dispatchcontroller "github.com/muster-dev/muster/queueing/dispatch/controller"
)

var update = flag.Bool("update", false, "write deploy/monitoring/metrics.md again")

const table = "../../deploy/monitoring/metrics.md"

// metric is what a process of muster says of one of its metrics.
type metric struct {
	help   string
	labels []string
}

var described = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{(.*)\}\}$`)

// registered returns all metrics of muster by name. Metrics of controller-runtime and the Go runtime are documented there.
func registered(t *testing.T) map[string]metric {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		all := slices.Concat(metrics.Collectors(), request.Collectors(), app.Collectors(), dispatchcontroller.Collectors(),
			notify.Collectors(),
			[]prometheus.Collector{queuemetrics.New(queuemetrics.Config{LocalQueues: labels.Everything()})})
		for _, c := range all {
			c.Describe(descs)
		}
	}()
	out := map[string]metric{}
	for d := range descs {
		parts := described.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("a description that the client library writes in another way now: %s", d)
		}
		name, nameErr := strconv.Unquote(parts[1])
		help, helpErr := strconv.Unquote(parts[2])
		if nameErr != nil || helpErr != nil {
			t.Fatalf("%s: %v, %v", d, nameErr, helpErr)
		}
		m := metric{help: help}
		if parts[3] != "" {
			m.labels = strings.Split(parts[3], ",")
		}
		out[name] = m
	}
	return out
}

// bounds say how many values each label of muster's own metrics may have, or what
// bounds them. None grows with the number of jobs, pods or machines.
var bounds = map[string]string{
	"budget":        "the budgets of each CapacityPolicy, at most 8: it occurs with `policy` only",
	"cause":         "the classes of errors, some 10, and Undone",
	"call":          "the methods of the clouds' APIs that muster uses, some 35 a cloud",
	"capacity_type": "3",
	"cluster_queue": "the ClusterQueues in which Workloads wait",
	"cluster":       "the workers of a manager, at most 20 a MultiKueueConfig",
	"class":         "the provisioning classes that are served, at most 4",
	"commit":        "1",
	"condition":     "6",
	"decision":      "4",
	"device_class":  "the DeviceClasses with devices of a group: it occurs with `group` only",
	"event":         "4",
	"go":            "1",
	"group":         "one for each NodeGroup that existed since the process began to lead",
	"level":         "the levels of a Topology that its NodeGroup can launch within: it occurs with `group` only, at most 64 times with `machines`",
	"instance_type": "one for each group: it occurs with `group` only",
	"kind":          "the kinds of custom resources that are queued, some 20",
	"machines":      "17 powers of two, and 0",
	"namespace":     "the namespaces that have had machines since the process began to lead",
	"outcome":       "10 of attempts and launches, 2 of evidence",
	"policy":        "the CapacityPolicies that have budgets",
	"provider":      "3",
	"purpose":       "5",
	"reason":        "6",
	"queue":         "the LocalQueues that have had machines since the process began to lead",
	"result":        "12: OK, the classes of errors, and Other",
	"resource":      "the resources that muster writes, some 20",
	"stage":         "5 of the time to capacity, 3 of lost machines",
	"state":         "5",
	"verb":          "4",
	"workloads":     "2",
	"zone":          "one for each group: it occurs with `group` only",
	"version":       "1",
}

func TestTheTableOfMetricsIsTrue(t *testing.T) {
	all := registered(t)
	var out bytes.Buffer
	out.WriteString("# Metrics\n\nWritten by `go test ./test/monitoring -update`; do not edit.\n\n" +
		"Names in `_total` are counters, those in `_timestamp_seconds` gauges, others in `_seconds` histograms, all else gauges. " +
		"The process that leads shows them, and counts from when it began to; others show `muster_api_writes_total` alone.\n\n" +
		"| metric | labels | what it says |\n| --- | --- | --- |\n")
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		labels := make([]string, len(m.labels))
		for i, l := range m.labels {
			labels[i] = "`" + l + "`"
			if strings.HasPrefix(name, "muster_") {
				used[l] = true
			}
		}
		if len(m.help) < 10 || !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: its help is %q, want a sentence", name, m.help)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, strings.Join(labels, " "), m.help)
	}
	out.WriteString("\n## How many series\n\nA label of muster's own metrics has so many values; the labels of `kueue_*` are those of " +
		"Kueue's metrics of the same name.\n\n| label | values |\n| --- | --- |\n")
	for _, label := range slices.Sorted(maps.Keys(bounds)) {
		if !used[label] {
			t.Errorf("no metric has the label %s any more: remove it from bounds", label)
		}
		fmt.Fprintf(&out, "| `%s` | %s |\n", label, bounds[label])
	}
	for label := range used {
		if bounds[label] == "" {
			t.Errorf("what bounds the values of the label %s? Add it to bounds", label)
		}
	}
	if *update {
		if err := os.WriteFile(table, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(written), out.String()); diff != "" {
		t.Errorf("deploy/monitoring/metrics.md is out of date (-written +true); run: go test ./test/monitoring -update\n%s", diff)
	}
}
