package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/request"
	queuemetrics "github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/status"
	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// TestEveryPanelHasData simulates an hour with gangs on simulated clouds and a queue, lets a real Prometheus scrape the metrics of the
// start and of the end, and runs the queries of each panel.
func TestEveryPanelHasData(t *testing.T) {
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not on the PATH, so the queries of panels are not run; on Debian it is in the package prometheus")
	}
	shown := scrapes(t)
	var asked atomic.Int32
	muster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// Rates need a beginning that was seen.
		fmt.Fprint(w, shown[min(int(asked.Add(1))/3, len(shown)-1)])
	}))
	t.Cleanup(muster.Close)
	api := "http://" + run(t, binary, strings.TrimPrefix(muster.URL, "http://"))

	var left []string
	ctx, cancel := pressure.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ; ctx.Err() == nil; <-time.After(500 * time.Millisecond) {
		left = without(t, api)
		if problem := whyEmpty(api, `muster_spend_usd_per_hour{namespace=~"team.*"}`); problem != "" {
			left = append(left, "what tenants spend by their namespaces: "+problem)
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("%v: data for:\n%s", context.Cause(ctx), strings.Join(left, "\n"))
}

// scrapes are what Muster shows when gangs begin to come and an hour later.
func scrapes(t *testing.T) (out []string) {
	synctest.Test(t, func(t *testing.T) {
		s := tell(t, 1)
		q := queuemetrics.New(queuemetrics.Config{})
		for _, c := range append(slices.Concat(app.Collectors(), request.Collectors()), q) {
			s.registry.MustRegister(c)
		}
		// Losses are counted by the controller of requests.
		request.Collectors()[0].(*prometheus.CounterVec).WithLabelValues(offerings[0].group, "used").Inc()
		p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", ResourceVersion: s.version()}}
		p.Spec.Budgets = []v1alpha1.CapacityBudget{{Name: "all", USD: resource.MustParse("1000"), Period: v1alpha1.BudgetMonth}}
		s.model.Set(p)
		began := time.Now()
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "job", CreationTimestamp: metav1.NewTime(began)}}
		w.Status.Admission = &kueue.Admission{ClusterQueue: "research"}
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "research"}}
		quota := kueue.ResourceQuota{Name: gpu, NominalQuota: resource.MustParse("64")}
		cq.Spec.ResourceGroups = []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{quota}}}}}
		cq.Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100",
			Resources: []kueue.ResourceUsage{{Name: gpu, Total: resource.MustParse("32")}}}}
		q.Quotas(cq)
		for range 2 {
			for since := time.Now(); time.Since(since) < 30*time.Minute; <-time.After(listEvery) {
				s.hear()
				if s.random.IntN(10) == 0 {
					s.submit()
				}
				for _, g := range s.gangs {
					s.advance(g)
				}
			}
			q.ClusterQueue(cq, status.Figures{Active: 1})
			q.Cycle(time.Millisecond, true)
			q.Expected(map[string][]time.Time{"research": {time.Now().Add(time.Hour)}})
			q.Accuracy(forecast.Accuracy{Starts: 1, MedianError: 100, Within: 1000}, 1)
			q.Reserved(w, w, time.Now())
			q.Evicted(w, w, "Preempted", "", time.Now())
			// Launches in vain are counted by the controller of requests, too.
			request.Collectors()[1].(*prometheus.CounterVec).WithLabelValues("team", offerings[0].group, "Scattered").Add(50)
			app.Collectors()[0].(*prometheus.CounterVec).WithLabelValues(http.MethodPatch, "nodes").Inc()
			answer := httptest.NewRecorder()
			promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(answer,
				httptest.NewRequest(http.MethodGet, "/metrics", nil))
			out = append(out, answer.Body.String())
		}
	})
	return out
}

// relabelings are those of the chart's ServiceMonitor.
func relabelings(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/charts/muster/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Metrics struct {
			ServiceMonitor struct{ Relabelings []map[string]string }
		}
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(values.Metrics.ServiceMonitor.Relabelings)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// run starts a Prometheus that scrapes the target, with Muster's rules, and returns
// its address. Its operator gives each target these labels, which rename those of metrics.
func run(t *testing.T, binary, target string) string {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: muster, relabel_configs: %s, static_configs: [{targets: [%q], labels: {namespace: muster-system, pod: "+
		"muster-0, service: muster-metrics, endpoint: metrics, container: muster}}]}]\n", rules, relabelings(t), target)
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := testbed.FreeAddress(t)
	var log bytes.Buffer
	p := exec.CommandContext(t.Context(), binary, "--config.file="+filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address)
	p.Stderr = &log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the test's context has ended it
		if err := p.Wait(); err != nil && t.Failed() {
			t.Logf("%v\n%s", err, &log)
		}
	})
	return address
}

// concrete replaces what Grafana fills in.
var concrete = strings.NewReplacer("$__rate_interval", "1m", "$__range:1m", "10m:1s", "$__range", "10m")

// without are the panels that have a query without data.
func without(t *testing.T, api string) (out []string) {
	t.Helper()
	for name, panels := range dashboards(t) {
		for _, p := range panels {
			for _, target := range p.Targets {
				if problem := whyEmpty(api, concrete.Replace(target.Expr)); problem != "" {
					out = append(out, fmt.Sprintf("%s %q: %s: %s", name, p.Title, target.Expr, problem))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// whyEmpty returns why a query has no value; empty if it has one.
func whyEmpty(api, expr string) string {
	answer, err := http.Get(api + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	var got struct {
		Error string `json:"error"`
		Data  struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		return fmt.Sprintf("%s: %v", answer.Status, err)
	}
	for _, r := range got.Data.Result {
		if r.Value[1] != "NaN" {
			return ""
		}
	}
	return fmt.Sprintf("%d series, none with a value %s", len(got.Data.Result), got.Error)
}
