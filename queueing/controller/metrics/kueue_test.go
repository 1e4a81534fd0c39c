package metrics

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
)

// left are the metrics of Kueue that Muster has no use for, each with its why.
var left = map[string]string{
	"multikueue_workloads_dispatched_total": "Muster sends no jobs to other clusters",
	"multikueue_workloads_admitted_total":   "Muster sends no jobs to other clusters",
}

// more are Muster's metrics that Kueue does not have, each with the reason.
var more = map[string]string{
	"kueue_replaced_workload_slices_total": "Kueue counts it, but registers it nowhere",
}

// TestAllThatKueueShowsIsShown reads the source of the Kueue that Muster implements: each
// metric that it registers by default is here, with the same type, labels and buckets.
func TestAllThatKueueShowsIsShown(t *testing.T) {
	want, have := kueues(t), musters(t)
	for name, why := range left {
		if want[name] == "" {
			t.Errorf("Kueue has no %s any more, which is left out since %s", name, why)
		}
		delete(want, name)
	}
	for name := range more {
		delete(have, name)
	}
	maps.DeleteFunc(have, func(name, _ string) bool { return strings.HasPrefix(name, "muster_") })
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("metrics (-Kueue +Muster)\n%s", diff)
	}
}

// describe is a metric in one line.
func describe(kind string, labels []string, buckets []float64) string {
	out := kind + " of " + strings.Join(slices.Sorted(slices.Values(labels)), ", ")
	if kind == "histogram" {
		out += fmt.Sprintf(" with %v", buckets)
	}
	return out
}

// musters are the metrics of Muster by name.
func musters(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, c := range New(Config{LocalQueues: labels.Everything()}).all {
		descs := make(chan *prometheus.Desc, 1)
		c.Describe(descs)
		text := (<-descs).String()
		name := between(text, `fqName: "`, `"`)
		var names []string
		if variable := between(text, "variableLabels: {", "}"); variable != "" {
			names = strings.Split(variable, ",")
		}
		values := make([]string, len(names))
		for _, pair := range strings.Split(between(text, "constLabels: {", "}"), `",`) {
			if label, _, ok := strings.Cut(pair, "="); ok {
				names = append(names, label)
			}
		}
		kind, buckets := "", []float64(nil)
		switch v := c.(type) {
		case *prometheus.CounterVec:
			kind = "counter"
		case *prometheus.GaugeVec, prometheus.Gauge:
			kind = "gauge"
		case *prometheus.HistogramVec:
			kind = "histogram"
			v.WithLabelValues(values...)
			registry := prometheus.NewRegistry()
			registry.MustRegister(v)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range families[0].GetMetric()[0].GetHistogram().GetBucket() {
				buckets = append(buckets, b.GetUpperBound())
			}
		}
		out[name] = describe(kind, names, buckets)
	}
	return out
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// kueues are the metrics that Kueue registers by default, by name, out of its source.
func kueues(t *testing.T) map[string]string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil || len(strings.TrimSpace(string(dir))) == 0 {
		t.Skipf("the source of Kueue is not here: %v", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "pkg", "metrics", "metrics.go"), nil,
		parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	byVariable := map[string][2]string{}
	registered := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if call := vectorIn(n.Rhs[0]); call != nil {
				name, what := vectorOf(t, call)
				byVariable[n.Lhs[0].(*ast.Ident).Name] = [2]string{name, what}
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "MustRegister" {
				for _, arg := range n.Args {
					registered[arg.(*ast.Ident).Name] = true
				}
			}
		}
		return true
	})
	out := map[string]string{}
	for variable := range registered {
		m, ok := byVariable[variable]
		if !ok {
			t.Fatalf("Kueue registers %s, which it makes in a way that is not understood here", variable)
		}
		out[m[0]] = m[1]
	}
	return out
}

// vectorIn is the call that makes a vector, be it an argument of another call; nil if
// there is none.
func vectorIn(e ast.Expr) *ast.CallExpr {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return nil
	}
	if s, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "New") && strings.HasSuffix(s.Sel.Name, "Vec") {
		return call
	}
	if len(call.Args) > 0 {
		return vectorIn(call.Args[0])
	}
	return nil
}

// vectorOf is the name of a vector and what it is.
func vectorOf(t *testing.T, call *ast.CallExpr) (name, what string) {
	t.Helper()
	kind := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(call.Fun.(*ast.SelectorExpr).Sel.Name, "New"), "Vec"))
	buckets := prometheus.DefBuckets
	for _, e := range call.Args[0].(*ast.CompositeLit).Elts {
		field := e.(*ast.KeyValueExpr)
		switch field.Key.(*ast.Ident).Name {
		case "Subsystem":
			name = map[string]string{"KueueName": "kueue_", "MultiKueueName": "multikueue_"}[field.Value.(*ast.SelectorExpr).Sel.Name] + name
		case "Name":
			name += text(t, field.Value)
		case "Buckets":
			buckets = bucketsOf(t, field.Value.(*ast.CallExpr))
		}
	}
	names := call.Args[1]
	if custom, ok := names.(*ast.CallExpr); ok {
		names = custom.Args[0] // labels that the configuration adds come after them
	}
	var list []string
	for _, e := range names.(*ast.CompositeLit).Elts {
		list = append(list, text(t, e))
	}
	return name, describe(kind, list, buckets)
}

// bucketsOf works out the two ways in which Kueue writes buckets.
func bucketsOf(t *testing.T, call *ast.CallExpr) []float64 {
	t.Helper()
	var args []float64
	for _, a := range call.Args {
		v, err := strconv.ParseFloat(a.(*ast.BasicLit).Value, 64)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, v)
	}
	if _, own := call.Fun.(*ast.Ident); own {
		return append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, int(args[0])-1)...)
	}
	return prometheus.ExponentialBuckets(args[0], args[1], int(args[2]))
}

func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	out, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
