package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// The programs that are measured; a benchmark of one that is not named is skipped.
const (
	musterVariable = "MUSTER_BIN"
	kueueVariable  = "MUSTER_KUEUE_BIN"
)

var scale = flag.Int("scale", 1, "by how much the Workloads of the admission benchmarks, and the requests of CheckCapacity, are fewer")

// The queues of the load: cohorts of equal queues, each of which may borrow the unused quota of the others.
const (
	cohorts         = 5
	queuesPerCohort = 6
	flavor          = "default"
)

// mixed is the load of each queue: 500 Workloads, so 15,000 in all; or so many times
// fewer.
func mixed(fewer int) []*class {
	classes := []*class{
		{name: "small", count: 350, cpu: "1", priority: 50, runs: 200 * time.Millisecond, every: 100 * time.Millisecond},
		{name: "medium", count: 100, cpu: "5", priority: 100, runs: 500 * time.Millisecond, every: 500 * time.Millisecond},
		{name: "large", count: 50, cpu: "20", priority: 200, runs: time.Second, every: 1200 * time.Millisecond},
	}
	for _, c := range classes {
		c.count /= fewer
	}
	return classes
}

// BenchmarkThroughput admits and finishes 15,000 Workloads of 30 queues in which large ones preempt small ones: without an admitter, as
// the lower bound set by the API server; with a stock Kueue; and with Muster. Each run has its own API server. Machines are noisy, so the
// result is the ratio of the wall times in one run, on Muster's line.
//
// The bounds: at most 1.25 times the lower bound and 0.6 times Kueue, 20 s of CPU and 200 MB of memory for Muster itself. Seen with
// -scale 6 on 2 busy cores, where CPU time is more precise than wall time: 15.2 ms of the API server per Workload for the lower bound,
// 24.8 for Kueue, 16.0 for Muster; 8.4 ms of Kueue itself, 1.7 of Muster itself.
func BenchmarkThroughput(b *testing.B) {
	walls := map[string]time.Duration{}
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				a := newArena(b, c)
				walls[c.name] = a.mixed(*scale).took
				for _, other := range slices.Sorted(maps.Keys(walls)) {
					if other != c.name {
						b.ReportMetric(walls[c.name].Seconds()/walls[other].Seconds(), "x-"+other)
					}
				}
			}
		})
	}
}

// BenchmarkOneQueue admits 10,000 Workloads that are pending in one queue, once there is quota for all of them. The bound is 100
// admissions per second.
func BenchmarkOneQueue(b *testing.B) {
	for _, c := range contenders[stock:] {
		b.Run(fmt.Sprintf("%s/pending=%d", c.name, 10_000 / *scale), func(b *testing.B) {
			for b.Loop() {
				newArena(b, c).oneQueue(10_000 / *scale)
			}
		})
	}
}

// contender is a program that admits.
type contender struct {
	name string
	// variable names the program's variable; empty means that there is none.
	variable string
	start    func(a *arena, binary string) (cluster.Config, starter)
}

// named is the same program by another name.
func (c contender) named(name string) contender {
	c.name = name
	return c
}

// starter makes a contender's process; nil where it has none.
type starter func() (*managers.Manager, error)

// The contenders, by their index.
const (
	floor = iota
	stock
	muster
)

var contenders = []contender{
	floor:  {"floor", "", floorOf},
	stock:  stockWith(),
	muster: musterWith(""),
}

// stockWith is a stock Kueue with these integrations, that of Jobs by default.
func stockWith(frameworks ...string) contender {
	return contender{"kueue", kueueVariable, func(a *arena, binary string) (cluster.Config, starter) {
		k, err := managers.NewKueue(managers.Kueue{
			Binary: binary, Sandbox: os.Getenv(binaryVariable), Dir: a.TempDir(), Frameworks: frameworks,
			// What its own limits hold back would not be the API server's.
			Settings: "clientConnection: {qps: 1000, burst: 1000}\n",
		})
		if err != nil {
			a.Fatal(err)
		}
		config := cluster.Config{Manifests: func() ([]*unstructured.Unstructured, error) { return k.Manifests(a.Context()) }}
		return config, func() (*managers.Manager, error) { return k.Manager(a.Context(), a.rest) }
	}}
}

// musterWith is Muster with these lines of its configuration's section for queues, and
// with these flags.
func musterWith(settings string, flags ...string) contender {
	text := "apiVersion: config.muster.dev/v1alpha1\nkind: Configuration\nqueueing:\n  enabled: true\n" + settings
	return contender{"muster", musterVariable, func(a *arena, binary string) (cluster.Config, starter) {
		config := cluster.Config{}
		sandbox.Fill(&config)
		dir := a.TempDir()
		return config, func() (*managers.Manager, error) {
			return managers.NewMuster(a.Context(), a.rest, binary, dir, text, flags...)
		}
	}}
}

// arena is an API server with one contender on it and nothing else.
type arena struct {
	testing.TB
	rest    *rest.Config
	kube    client.Client
	set     kubernetes.Interface
	manager *managers.Manager // nil: the floor
}

func newArena(tb testing.TB, c contender) *arena {
	tb.Helper()
	binaries := map[string]string{}
	for _, variable := range []string{binaryVariable, c.variable} {
		if binaries[variable] = os.Getenv(variable); variable != "" && binaries[variable] == "" {
			tb.Skipf("%s does not name a program: run `make bench`, which builds it", variable)
		}
	}
	a := &arena{TB: tb}
	config, manager := c.start(a, binaries[c.variable])
	config.Name = fmt.Sprintf("bench-%s-%d", c.name, os.Getpid())
	config.Binary, config.Progress = binaries[binaryVariable], io.Discard
	config.Only = []string{cluster.Etcd, cluster.APIServer}
	running, err := cluster.Start(tb.Context(), config)
	if err != nil {
		tb.Fatalf("starting the sandbox: %v", err)
	}
	tb.Cleanup(func() {
		if err := running.Stop(context.Background()); err != nil {
			tb.Errorf("stopping the sandbox: %v", err)
		}
	})
	a.rest = running.RESTConfig()
	a.rest.QPS = -1
	scheme, err := app.NewScheme()
	if err != nil {
		tb.Fatal(err)
	}
	if a.kube, err = client.New(a.rest, client.Options{Scheme: scheme}); err != nil {
		tb.Fatal(err)
	}
	if a.set, err = kubernetes.NewForConfig(a.rest); err != nil {
		tb.Fatal(err)
	}
	if manager == nil {
		return a
	}
	if a.manager, err = manager(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		a.manager.Stop()
		if tb.Failed() {
			testbed.Tail(a.manager.Log())
		}
	})
	if err := a.manager.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return a
}

// spent is what a load took.
type spent struct {
	took time.Duration
	// writes by resource and subresource, and evictions, by Workload.
	writes    map[string]float64
	evictions float64
	workloads float64
}

// mixed runs the mixed load, or one of so many times fewer Workloads.
func (a *arena) mixed(fewer int) spent {
	a.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}})
	var namespaces []string
	for cohort := range cohorts {
		for i := range queuesPerCohort {
			q := queue(fmt.Sprintf("queue-%d-%d", cohort, i), "20")
			q.Spec.CohortName = kueue.CohortReference(fmt.Sprintf("cohort-%d", cohort))
			q.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = new(resource.MustParse("100"))
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority,
			}
			a.queue(q)
			namespaces = append(namespaces, q.Name)
		}
	}
	classes := mixed(fewer)
	want := 0
	for _, c := range classes {
		want += c.count * len(namespaces)
	}
	if a.manager == nil {
		return a.floor(classes, namespaces, want)
	}
	l := newLoad(a, want)
	before, began := a.count(), time.Now()
	for _, namespace := range namespaces {
		for _, c := range classes {
			go l.submit(a.Context(), c, namespace)
		}
	}
	l.await()
	took := time.Since(began)
	out := l.outcome()
	writes := a.report(before, took, want)
	a.measured(float64(out.evictions), "evictions")
	for name, wait := range out.wait {
		a.measured(wait.Seconds(), "s-to-admit-"+name)
	}
	return spent{took: took, writes: writes, evictions: float64(out.evictions) / float64(want), workloads: float64(want)}
}

// floorWriters is how many Workloads are written at once: enough to keep the API
// server busy.
const floorWriters = 32

// floor measures the API server's cost of the Workloads alone: one create and two status writes each, with two watchers, as the admitter
// and the runner need. Muster's policies judge these writes as in production: the creation and the end as a user's, and the admission as
// Muster's own, which is exempt. So the ratio to it is the cost of Muster, not of its policies.
func (a *arena) floor(classes []*class, namespaces []string, want int) spent {
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	var seen errgroup.Group
	for range 2 {
		all, finished := make(chan struct{}), map[types.UID]bool{}
		a.follow(ctx, func(w *kueue.Workload) {
			if finished[w.UID] || !meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
				return
			}
			if finished[w.UID] = true; len(finished) == want {
				close(all)
			}
		})
		seen.Go(func() error {
			select {
			case <-all:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	asMuster := rest.CopyConfig(a.rest)
	asMuster.Impersonate.UserName = "system:serviceaccount:" + deploy.Namespace + ":" + deploy.ServiceAccount
	admitter, err := client.New(asMuster, client.Options{Scheme: a.kube.Scheme()})
	if err != nil {
		a.Fatal(err)
	}
	before, began := a.count(), time.Now()
	var g errgroup.Group
	g.SetLimit(floorWriters)
	for _, c := range classes {
		for i := range c.count {
			for _, namespace := range namespaces {
				g.Go(func() error { return a.pass(ctx, admitter, newWorkload(c, namespace, i)) })
			}
		}
	}
	if err := g.Wait(); err != nil {
		a.Fatal(err)
	}
	if err := seen.Wait(); err != nil {
		a.Fatal(err)
	}
	took := time.Since(began)
	return spent{took: took, writes: a.report(before, took, want)}
}

// pass creates a Workload, admits it as Muster does, and finishes it.
func (a *arena) pass(ctx context.Context, admitter client.Client, w *kueue.Workload) error {
	if err := a.kube.Create(ctx, w); err != nil {
		return err
	}
	// The write has Muster's field manager, so that another client's write of the end does not remove it.
	admitted, err := writes.ApplyStatus(ctx, admitter, w, &kueue.WorkloadStatus{
		Admission:  admissionOf(w),
		Conditions: []metav1.Condition{condition(kueue.WorkloadQuotaReserved, "QuotaReserved"), condition(kueue.WorkloadAdmitted, "Admitted")},
	})
	if err != nil {
		return err
	}
	return finish(ctx, a.kube, w, admitted.ResourceVersion)
}

// admissionOf admits a Workload with its requests in the ClusterQueue that has its namespace's name.
func admissionOf(w *kueue.Workload) *kueue.Admission {
	return &kueue.Admission{
		ClusterQueue: kueue.ClusterQueueReference(w.Namespace),
		PodSetAssignments: []kueue.PodSetAssignment{{
			Name:          kueue.DefaultPodSetName,
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: flavor},
			ResourceUsage: w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests,
			Count:         new(int32(1)),
		}},
	}
}

// oneQueue creates n Workloads in a queue without quota, and measures from when it gets quota for all of them until all are admitted.
func (a *arena) oneQueue(n int) {
	q := queue("queue", "0")
	a.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}})
	a.queue(q)
	l := newLoad(a, n)
	waiting := &class{name: "waiting", cpu: "1", runs: patience}
	var g errgroup.Group
	g.SetLimit(floorWriters)
	for i := range n {
		g.Go(func() error { return l.create(a.Context(), waiting, q.Name, i) })
	}
	if err := g.Wait(); err != nil {
		a.Fatal(err)
	}
	a.poll("the queue knows all that wait", func() bool { return a.get(q) && int(q.Status.PendingWorkloads) == n })
	before, began := a.count(), time.Now()
	patch := client.MergeFrom(q.DeepCopy())
	q.Spec.ResourceGroups = queue(q.Name, fmt.Sprint(n)).Spec.ResourceGroups
	if err := a.kube.Patch(a.Context(), q, patch); err != nil {
		a.Fatal(err)
	}
	a.poll("all are admitted", func() bool { return l.running()[q.Name] == n })
	took := time.Since(began)
	a.report(before, took, n)
	a.measured(float64(n)/took.Seconds(), "admissions/s")
}

// queue is a ClusterQueue of so many CPUs that takes Workloads of all namespaces.
func queue(name, cpu string) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors: []kueue.FlavorQuotas{{Name: flavor, Resources: []kueue.ResourceQuota{
			{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpu)},
		}}},
	}}
	return q
}

// queue creates the ClusterQueue, with a namespace and a LocalQueue of its name.
func (a *arena) queue(q *kueue.ClusterQueue) {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: q.Name, Name: q.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(q.Name)
	a.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: q.Name}}, q, lq)
}

func (a *arena) create(objects ...client.Object) {
	a.Helper()
	for _, o := range objects {
		if err := a.kube.Create(a.Context(), o); err != nil {
			a.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (a *arena) get(o client.Object) bool {
	return a.kube.Get(a.Context(), client.ObjectKeyFromObject(o), o) == nil
}

func (a *arena) poll(what string, holds func() bool) {
	a.Helper()
	ctx, cancel := pressure.WithTimeout(a.Context(), patience)
	defer cancel()
	if err := testbed.Poll(ctx, holds); err != nil {
		a.Fatalf("%s: %v", what, err)
	}
}

// account is what the API server counts of itself.
type account struct {
	cpu float64 // seconds
	// writes by resource and subresource.
	writes map[string]float64
}

func (a *arena) count() account {
	body, err := a.set.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	out := account{cpu: sum(strings.NewReader(string(body)))("process_cpu_seconds_total"), writes: map[string]float64{}}
	for _, line := range requests.FindAllStringSubmatch(string(body), -1) {
		labels := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(line[1], -1) {
			labels[l[1]] = l[2]
		}
		if !slices.Contains(writeVerbs, labels["verb"]) {
			continue
		}
		name := labels["resource"]
		if labels["subresource"] != "" {
			name += "/" + labels["subresource"]
		}
		count, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			a.Fatal(err)
		}
		out.writes[name] += count
	}
	return out
}

var (
	requests = regexp.MustCompile(`(?m)^apiserver_request_total{(.*)} (\S+)$`)
	label    = regexp.MustCompile(`(\w+)="([^"]*)"`)

	writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}
)

// measured reports a figure if figures are enabled.
func (a *arena) measured(value float64, unit string) {
	if b, ok := a.TB.(*testing.B); ok {
		b.ReportMetric(value, unit)
	}
}

// report stops the contender and reports what n Workloads took. It returns the writes
// for each, by resource and subresource.
func (a *arena) report(before account, took time.Duration, n int) map[string]float64 {
	after := a.count()
	a.measured(took.Seconds(), "wall-s")
	a.measured(float64(n)/took.Seconds(), "workloads/s")
	a.measured(after.cpu-before.cpu, "apiserver-CPU-s")
	writes := map[string]float64{}
	var table []string
	var all float64
	for _, name := range slices.Sorted(maps.Keys(after.writes)) {
		count := (after.writes[name] - before.writes[name]) / float64(n)
		if count == 0 {
			continue
		}
		table = append(table, fmt.Sprintf("%s %.3f", name, count))
		all += count
		writes[name] = count
	}
	a.measured(all-writes["events"], "writes/workload")
	a.measured(writes["events"], "event-writes/workload")
	a.Logf("writes per Workload: %s", strings.Join(table, ", "))
	if a.manager != nil {
		used := a.manager.Stop()
		a.measured(used.CPU.Seconds(), "own-CPU-s")
		a.measured(float64(used.PeakBytes)/1e6, "own-MB")
	}
	return writes
}
