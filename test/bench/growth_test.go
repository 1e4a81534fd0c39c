package bench

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/test/bench/curve"
)

// slots is how many Workloads run at a time while all others wait, and starts how many of their starts are measured.
const slots, starts = 10, 50

// BenchmarkGrowingCluster has so many Workloads wait for so many nodes on a real API
// server, in a queue that has quota for a few machines and a capacity check. It reports
// what is felt of the size: how long it takes, once a Workload is over, until the next
// one is admitted with its machine booked; how long a cycle takes; how much memory
// Muster has, and how often it writes for each start, Events apart. See test/bench/growth for sizes
// beyond what an API server can hold. Seen at 1,000 pending on a machine that was busy
// otherwise: half of the starts within 1.1 s on 100 nodes, of which 1 s is how long a
// node is watched that is booked whole, and 9.8 writes each, most of which the way
// through a ProvisioningRequest takes. Leave the large ones out with
//
//	make bench ARGS='-bench GrowingCluster/nodes=1000?\b/pending=1000\b'
func BenchmarkGrowingCluster(b *testing.B) {
	var byNodes, byPending curve.Curves
	for _, nodes := range []int{100, 1000, 5000} {
		for _, pending := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("nodes=%d/pending=%d", nodes, pending), func(b *testing.B) {
				for b.Loop() {
					newGrowth(b, nodes, pending).measure(func(what string, u curve.Unit, value float64) {
						byNodes.Of(fmt.Sprintf("%s, pending=%d, by nodes", what, pending), u).Add(nodes, value)
						byPending.Of(fmt.Sprintf("%s, nodes=%d, by pending", what, nodes), u).Add(pending, value)
					})
				}
			})
		}
	}
	byNodes.Table(os.Stdout)
	byPending.Table(os.Stdout)
}

// growth is a cluster in which many wait.
type growth struct {
	*site
	arena *arena
	// admitted are the Workloads whose admission has been seen, in that order.
	admitted chan *kueue.Workload
}

func newGrowth(b *testing.B, nodes, pending int) *growth {
	s := newSite(b)
	g := &growth{
		site: s, admitted: make(chan *kueue.Workload, slots+starts),
		arena: &arena{TB: b, rest: s.running.RESTConfig(), kube: s.kube, set: s.set},
	}
	g.arena.rest.QPS = -1
	g.machines(nodes)
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "machines"}}
	check.Spec.ControllerName = cache.CapacityController
	q := queue("queue", fmt.Sprint(slots))
	q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "machines"}}}
	g.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}}, check)
	g.arena.queue(q)
	// Pending Workloads get their messages, which takes a while and is not measured.
	var told atomic.Int64
	admitted, waiting := map[string]bool{}, map[string]bool{}
	g.arena.follow(b.Context(), func(w *kueue.Workload) {
		if meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) && !admitted[w.Name] {
			admitted[w.Name] = true
			g.admitted <- w
		}
		if meta.IsStatusConditionFalse(w.Status.Conditions, kueue.WorkloadQuotaReserved) && !waiting[w.Name] {
			waiting[w.Name] = true
			told.Add(1)
		}
	})
	var writers errgroup.Group
	writers.SetLimit(floorWriters)
	one := &class{name: "one", cpu: "1"}
	for i := range pending + slots {
		writers.Go(func() error { return s.kube.Create(b.Context(), newWorkload(one, q.Name, i)) })
	}
	if err := writers.Wait(); err != nil {
		b.Fatal(err)
	}
	g.poll("as many are admitted as there is quota for, and all others know why they wait", func() bool {
		return len(g.admitted) == slots && int(told.Load()) >= pending
	})
	return g
}

// machines creates nodes of one CPU, which are all that the pods of a Workload need.
func (g *growth) machines(n int) {
	var writers errgroup.Group
	writers.SetLimit(floorWriters)
	for i := range n {
		writers.Go(func() error {
			name := fmt.Sprintf("machine-%05d", i)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
				Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			}}
			node.Status.Capacity = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("8Gi"),
				corev1.ResourcePods: resource.MustParse("110"),
			}
			node.Status.Allocatable = node.Status.Capacity
			return g.kube.Create(g.Context(), node)
		})
	}
	if err := writers.Wait(); err != nil {
		g.Fatal(err)
	}
}

// measure ends one Workload after the other, and puts what that costs on curves.
func (g *growth) measure(on func(what string, u curve.Unit, value float64)) {
	before := g.muster()
	var took []time.Duration
	running := make([]*kueue.Workload, 0, slots+starts)
	for range slots {
		running = append(running, <-g.admitted)
	}
	for i := range starts {
		began := time.Now()
		if err := finish(g.Context(), g.kube, running[i], running[i].ResourceVersion); err != nil {
			g.Fatalf("ending Workload %s: %v", running[i].Name, err)
		}
		select {
		case w := <-g.admitted:
			took = append(took, time.Since(began))
			running = append(running, w)
		case <-time.After(patience):
			g.Fatalf("not within %s: the end of Workload %s lets another one in", patience, running[i].Name)
		}
	}
	after := g.muster()
	slices.Sort(took)
	report := func(what string, u curve.Unit, value, scale float64, unit string) {
		g.ReportMetric(value/scale, unit)
		on(what, u, value)
	}
	report("start, median", curve.Nanoseconds, float64(took[len(took)/2]), 1e9, "p50-start-s")
	report("start, 99 %", curve.Nanoseconds, float64(took[len(took)*99/100]), 1e9, "p99-start-s")
	report("cycle", curve.Nanoseconds, (after.cycleSeconds-before.cycleSeconds)/max(1, after.cycles-before.cycles)*1e9, 1e6, "ms/cycle")
	report("memory", curve.Bytes, after.megabytes*1e6, 1e6, "muster-MB")
	report("CPU for each start", curve.Nanoseconds, (after.cpu-before.cpu)/starts*1e9, 1e6, "muster-CPU-ms/start")
	var all float64
	for i, resource := range written {
		each := (after.writes[i] - before.writes[i]) / starts
		all += each
		g.Logf("%.2f writes of %s for each start", each, resource)
	}
	report("writes for each start", curve.Operations, all, 1, "writes/start")
}

// written are the resources that Muster writes in this benchmark, without Events.
var written = []string{
	"workloads", "workloads/status", "provisioningrequests", "provisioningrequests/status", "podtemplates", "nodes",
	"clusterqueues/status", "localqueues/status",
}

// own is what Muster counts of itself.
type own struct {
	cycles, cycleSeconds, megabytes, cpu float64
	// writes of each resource, in the order of written.
	writes []float64
}

func (g *growth) muster() own {
	m := g.scrape()
	out := own{
		cycles: m("kueue_admission_attempt_duration_seconds_count"), cycleSeconds: m("kueue_admission_attempt_duration_seconds_sum"),
		megabytes: m("process_resident_memory_bytes") / 1e6, cpu: m("process_cpu_seconds_total"),
	}
	for _, resource := range written {
		out.writes = append(out.writes, m("muster_api_writes_total", fmt.Sprintf("resource=%q", resource)))
	}
	return out
}
