package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
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
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/pressure"
)

// binaryVariable names the sandbox's binary; the benchmarks on a cluster are
// skipped without.
const binaryVariable = "MUSTER_SANDBOX_BIN"

// patience is the timeout of a run.
const patience = 10 * time.Minute

// gpuMachine is the machine of all groups here.
var gpuMachine = corev1.ResourceList{
	"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"), "nvidia.com/gpu": resource.MustParse("8"),
}

// BenchmarkCheckCapacity creates 1,000 requests for 8 pods of one GPU each at once,
// on 1,000 empty nodes, and waits until all are Provisioned: by a stock cluster-autoscaler,
// which books nothing on nodes, and by Muster, whose line has the ratio of the walls.
func BenchmarkCheckCapacity(b *testing.B) {
	requests := 1000 / *scale
	var stock time.Duration
	b.Run("cluster-autoscaler", func(b *testing.B) {
		binary := os.Getenv(managers.AutoscalerVariable)
		if binary == "" {
			b.Skipf("%s does not name a cluster-autoscaler that was built with -tags externalgrpc", managers.AutoscalerVariable)
		}
		s := newSite(b, cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok)
		s.nodes(requests, nil, gpuMachine)
		for b.Loop() {
			m, err := managers.NewAutoscaler(b.Context(), s.running.RESTConfig(), binary, b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { m.Stop() })
			if err := m.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			s.request(requests, 8, provreq.ProvisioningClassCheckCapacity, 1)
			stock = s.await(requests)
			s.report(requests, requests)
			b.ReportMetric(m.Stop().CPU.Seconds(), "own-CPU-s")
		}
	})
	b.Run("muster", func(b *testing.B) {
		s := newSite(b)
		s.nodes(requests, nil, gpuMachine)
		for b.Loop() {
			s.request(requests, 8, provreq.ProvisioningClassCheckCapacity, 1)
			took := s.await(requests)
			s.report(requests, requests)
			if stock > 0 {
				b.ReportMetric(took.Seconds()/stock.Seconds(), "x-cluster-autoscaler")
			}
		}
	})
}

// BenchmarkAtomicScaleUp creates 200 requests for 8 machines each at once, which
// boot without delay, and waits until all are Provisioned.
func BenchmarkAtomicScaleUp(b *testing.B) {
	const requests, machines = 200, 8
	s := newSite(b)
	s.group(requests * machines)
	for b.Loop() {
		s.request(requests, machines, provreq.ProvisioningClassBestEffortAtomicScaleUp, 8)
		s.await(requests)
		s.report(requests, requests*machines)
	}
}

// site is a cluster of its own.
type site struct {
	*testing.B
	running *cluster.Cluster
	kube    client.WithWatch
	set     kubernetes.Interface
	// withoutMuster: another program serves requests.
	withoutMuster bool
	// before is what the counters said when the requests were created, and began
	// when that was.
	before counters
	began  time.Time
	// names of the requests that were created last, and how long each waited.
	names map[string]bool
	took  []time.Duration
}

// newSite has these components, or all.
func newSite(b *testing.B, only ...string) *site {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		b.Skipf("%s does not name a sandbox's binary: run `make bench`, which builds it", binaryVariable)
	}
	config := cluster.Config{Name: fmt.Sprintf("bench-%d", os.Getpid()), Binary: binary, Progress: io.Discard}
	sandbox.Fill(&config)
	config.Only = only
	running, err := cluster.Start(b.Context(), config)
	if err != nil {
		b.Fatalf("starting the sandbox: %v", err)
	}
	b.Cleanup(func() {
		if err := running.Stop(context.Background()); err != nil {
			b.Errorf("stopping the sandbox: %v", err)
		}
	})
	rest := running.RESTConfig()
	rest.QPS = -1
	scheme, err := app.NewScheme()
	if err != nil {
		b.Fatal(err)
	}
	s := &site{B: b, running: running, withoutMuster: only != nil && !slices.Contains(only, cluster.Muster)}
	if s.kube, err = client.NewWithWatch(rest, client.Options{Scheme: scheme}); err != nil {
		b.Fatal(err)
	}
	if s.set, err = kubernetes.NewForConfig(rest); err != nil {
		b.Fatal(err)
	}
	return s
}

func (s *site) create(objects ...client.Object) {
	if err := s.tryCreate(objects...); err != nil {
		s.Fatal(err)
	}
}

func (s *site) tryCreate(objects ...client.Object) error {
	var g errgroup.Group
	g.SetLimit(32)
	for _, o := range objects {
		g.Go(func() error { return s.kube.Create(s.Context(), o) })
	}
	return g.Wait()
}

func (s *site) group(machines int) {
	s.create(&v1alpha1.NodeGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: v1alpha1.NodeGroupSpec{
			Provider: v1alpha1.ProviderKwok, MaxNodes: int32(machines), Zone: "zone-a",
			Template: v1alpha1.NodeTemplate{Capacity: gpuMachine},
			Kwok:     &v1alpha1.KwokPool{},
		},
	})
}

// request creates n requests for count pods with so many GPUs each.
func (s *site) request(n, count int, class string, gpus int64, changes ...func(*provreq.ProvisioningRequest)) {
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("gpus-%d", gpus), Namespace: metav1.NamespaceDefault}}
	template.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)},
		Limits:   corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)},
	}}}
	if err := s.kube.Create(s.Context(), template); client.IgnoreAlreadyExists(err) != nil {
		s.Fatal(err)
	}
	s.names = map[string]bool{}
	objects := make([]client.Object, n)
	for i := range objects {
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("r-%04d", i), Namespace: metav1.NamespaceDefault}}
		r.Spec.ProvisioningClassName = class
		r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: template.Name}, Count: int32(count)}}
		for _, change := range changes {
			change(r)
		}
		s.names[r.Name] = true
		objects[i] = r
	}
	s.before, s.began = s.count(), time.Now()
	go func() {
		if err := s.tryCreate(objects...); err != nil {
			s.Error(err)
		}
	}()
}

// await waits until n requests are Provisioned, notes how long each took, and returns
// what all did.
func (s *site) await(n int) time.Duration {
	ctx, cancel := pressure.WithTimeout(s.Context(), patience)
	defer cancel()
	s.took = nil
	done := map[string]bool{}
	note := func(r *provreq.ProvisioningRequest) {
		if meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Failed) {
			s.Fatalf("request %s failed: %v", r.Name, r.Status.Conditions)
		}
		if s.names[r.Name] && !done[r.Name] && meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned) {
			done[r.Name] = true
			s.took = append(s.took, time.Since(s.began))
		}
	}
	for len(done) < n {
		// A watch begins with what there is, and may end at any time.
		events, err := s.kube.Watch(ctx, &provreq.ProvisioningRequestList{}, client.InNamespace(metav1.NamespaceDefault))
		if err != nil {
			s.Fatalf("when %d of %d requests were provisioned: %v", len(done), n, err)
		}
		for event := range events.ResultChan() {
			if r, ok := event.Object.(*provreq.ProvisioningRequest); ok {
				note(r)
			}
			if len(done) == n {
				break
			}
		}
		events.Stop()
	}
	return time.Since(s.began)
}

// report reports what the requests took that were awaited. Writes are Muster's own:
// those of the simulator and of Kubernetes' controllers are apart.
func (s *site) report(requests, nodes int) {
	took := s.took[len(s.took)-1]
	after := s.count()
	slices.Sort(s.took)
	s.ReportMetric(float64(requests)/took.Seconds(), "requests/s")
	s.ReportMetric(s.took[len(s.took)*99/100].Seconds(), "p99-s")
	s.ReportMetric(after.apiserverCPU-s.before.apiserverCPU, "apiserver-CPU-s")
	if s.withoutMuster {
		return
	}
	s.ReportMetric((after.statusWrites-s.before.statusWrites)/float64(requests), "status-writes/request")
	s.ReportMetric((after.nodeWrites-s.before.nodeWrites)/float64(nodes), "node-writes/node")
	s.ReportMetric((after.events-s.before.events)/float64(requests), "event-writes/request")
	s.ReportMetric(after.musterCPU-s.before.musterCPU, "muster-CPU-s")
}

func (s *site) poll(what string, holds func() bool) {
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // a benchmark on a real cluster
	}
}

// counters are what the processes count of themselves.
type counters struct {
	// writes of Muster's own: of the status of ProvisioningRequests, of Nodes, and of
	// Events. Machines are the simulator's.
	statusWrites, nodeWrites, events float64

	musterCPU, apiserverCPU float64
}

func (s *site) count() counters {
	muster := s.scrape()
	body, err := s.set.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	apiserver := sum(strings.NewReader(string(body)))
	return counters{
		statusWrites: muster("muster_api_writes_total", `resource="provisioningrequests/status"`),
		nodeWrites:   muster("muster_api_writes_total", `resource="nodes"`),
		events:       muster("muster_api_writes_total", `resource="events"`),
		musterCPU:    muster("process_cpu_seconds_total"),
		apiserverCPU: apiserver("process_cpu_seconds_total"),
	}
}

// scrape reads Muster's metrics; all are zero without it.
func (s *site) scrape() func(name string, labels ...string) float64 {
	if s.withoutMuster {
		return func(string, ...string) float64 { return 0 }
	}
	resp, err := http.Get(s.running.MusterMetrics()) //nolint:noctx // a local read
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	return sum(resp.Body)
}

// sum reads metrics in the text format; the function it returns sums the series of
// a name that have all the given labels.
func sum(r io.Reader) func(name string, labels ...string) float64 {
	var lines []string
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return func(name string, labels ...string) (total float64) {
		for _, line := range lines {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest[0] != '{' && rest[0] != ' ' || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
				continue
			}
			if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
				total += v
			}
		}
		return total
	}
}
