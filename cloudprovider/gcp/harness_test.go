package gcp_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/conformance"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cloudprovider/gcp/permissions"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	project = "lab"
	cluster = "prod"
	h100    = "a3-highgpu-8g"
	zoneA   = "us-central1-a"
	zoneB   = "us-central1-b"
	region  = "us-central1"
)

const (
	// callTimeout is how long the adapters of tests with a cloud that does not answer wait for it.
	callTimeout = 250 * time.Millisecond
	// patience with a cloud that answers, on whatever machine.
	patience = time.Minute
)

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// labs of all tests, for what they have seen together.
var labs struct {
	sync.Mutex
	all []*lab
}

// TestMain compares the calls that the tests have made, and the permissions that those have needed, with those that the package
// reports, once all of the tests have run.
func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" {
		if missing, unknown := compareCalls(); len(missing)+len(unknown) > 0 {
			fmt.Fprintf(os.Stderr, "permissions.ByMethod: no test has made the calls %q; calls that are not listed: %q\n", missing, unknown)
			code = 1
		}
		if diff := cmp.Diff(permissions.All(), usedPermissions()); diff != "" {
			fmt.Fprintf(os.Stderr, "permissions (-listed +needed by the cloud):\n%s\n", diff)
			code = 1
		}
	}
	os.Exit(code)
}

// usedPermissions are those that the cloud has requested in any test, in order.
func usedPermissions() (out []string) {
	for _, l := range labs.all {
		out = append(out, l.front.Used()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func compareCalls() (missing, unknown []string) {
	seen := map[string]bool{}
	for _, l := range labs.all {
		for action := range l.world.Calls(v1alpha1.ProviderGCP) {
			seen[action] = true
			if _, ok := permissions.ByMethod[action]; !ok && !slices.Contains(unknown, action) {
				unknown = append(unknown, action)
			}
		}
	}
	for _, action := range slices.Sorted(maps.Keys(permissions.ByMethod)) {
		if !seen[action] {
			missing = append(missing, action)
		}
	}
	return missing, unknown
}

// lab is a simulated cloud and what a cluster knows of it.
type lab struct {
	*testing.T
	world *cloudsim.World
	front *gcpsim.Front
	url   string
	clock *clocktesting.FakeClock
	// slow is the clock of the world.
	slow *conformance.SlowClock
	// callTimeout of the adapters.
	callTimeout time.Duration
	groups      []*v1alpha1.NodeGroup
	// inUse reports which machines run pods; nil for none.
	inUse cloudprovider.InUse
}

// newLab returns a lab over the wire.
func newLab(t *testing.T, world cloudsim.Config, project gcpsim.Config) *lab {
	t.Helper()
	l := &lab{T: t, clock: clocktesting.NewFakeClock(began), callTimeout: patience}
	l.slow = conformance.NewSlowClock(l.clock)
	var err error
	if l.world, err = cloudsim.New(world, l.slow); err != nil {
		t.Fatal(err)
	}
	if l.front, err = gcpsim.New(project, l.world); err != nil {
		t.Fatal(err)
	}
	l.url = l.serve(l.world.Handler(l.front))
	labs.Lock()
	defer labs.Unlock()
	labs.all = append(labs.all, l)
	return l
}

// provider is a new adapter, as after a restart.
func (l *lab) provider() *gcp.Provider { return l.providerOf(cluster) }

func (l *lab) providerOf(cluster string) *gcp.Provider { return l.providerThat(cluster, nil) }

// providerThat changes something only while it may.
func (l *lab) providerThat(cluster string, mayAct func() error) *gcp.Provider {
	l.Helper()
	p, err := gcp.New(context.Background(), gcp.Config{
		Project: project, Cluster: cluster, ClusterUID: "uid-of-" + cluster, Location: region, Clock: l.clock, Endpoint: l.url,
		CallsPerSecond: 100_000, CallTimeout: l.callTimeout, MayAct: mayAct,
		Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return l.groups, nil },
		InUse: func(ctx context.Context, machines []cloudprovider.Machine) (map[string]bool, error) {
			if l.inUse == nil {
				return nil, nil
			}
			return l.inUse(ctx, machines)
		},
	})
	if err != nil {
		l.Fatal(err)
	}
	return p
}

// list is what a watch reports first.
func (l *lab) list(p *gcp.Provider) []cloudprovider.Machine {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out []cloudprovider.Machine
	err := p.Watch(ctx, func(m cloudprovider.Machine) { out = append(out, m) }, cancel)
	if err != nil {
		l.Fatal(err)
	}
	slices.SortFunc(out, func(a, b cloudprovider.Machine) int { return compareStrings(a.Group+a.Name, b.Group+b.Name) })
	return out
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// watch has the last state of each machine that a watch has reported.
type watch struct {
	*lab
	mu   sync.Mutex
	seen map[string]cloudprovider.Machine
}

// watch begins to watch, until the test ends.
func (l *lab) watch(p *gcp.Provider) *watch {
	w := &watch{lab: l, seen: map[string]cloudprovider.Machine{}}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		_ = p.Watch(ctx, func(m cloudprovider.Machine) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen[m.Name] = m
		}, func() {})
	})
	l.Cleanup(func() { cancel(); done.Wait() })
	return w
}

// pass lets time pass, by the second.
func (w *watch) pass(d time.Duration) {
	for range int(d / time.Second) {
		w.untilAsleep()
		w.clock.Step(time.Second)
	}
	w.untilAsleep()
}

// left are the machines of a group whose end the watch has not reported.
func (w *watch) left(group string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, m := range w.seen {
		if m.Group == group && m.State < cloudprovider.Terminated {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// open are the lines of the bill that are still running.
func (l *lab) open() (out []cloudsim.Line) {
	for _, line := range l.world.Bill() {
		if line.Open {
			out = append(out, line)
		}
	}
	return out
}

// callsSince are the calls that have come since, by action.
func (l *lab) callsSince(before map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for action, n := range l.world.Calls(v1alpha1.ProviderGCP) {
		if n > before[action] {
			out[action] = n - before[action]
		}
	}
	return out
}

func names(machines []cloudprovider.Machine) (out []string) {
	for _, m := range machines {
		out = append(out, m.Name)
	}
	return out
}

// pool of machines of a zone.
func pool(zone string, capacityType v1alpha1.CapacityType, holds int32, faults ...v1alpha1.KwokFault) cloudsim.Pool {
	return cloudsim.Pool{
		PoolKey: cloudsim.PoolKey{Cloud: v1alpha1.ProviderGCP, Type: h100, Zone: zone, CapacityType: capacityType},
		Script:  v1alpha1.KwokPool{Holds: &holds, BootDelay: metav1.Duration{Duration: time.Minute}, Faults: faults},
		Prices:  []cloudsim.Price{{PerHour: resource.MustParse("88")}},
	}
}

// joins is the metadata of a template whose machines join that cluster.
func joins(cluster string) map[string]string { return map[string]string{"muster-dev-cluster": cluster} }

// simulated is a project with a group for each way of launching, and a regional one.
func simulated() gcpsim.Config {
	return gcpsim.Config{
		Project: project,
		MachineTypes: []gcpsim.MachineType{
			{Name: h100, VCPUs: 208, MemoryMB: 1872 * 1024, GPUs: 8, GPUType: "nvidia-h100-80gb"},
			{Name: "g2-standard-96", VCPUs: 96, MemoryMB: 384 * 1024, GPUs: 8, GPUType: "nvidia-l4"},
		},
		Templates: []gcpsim.Template{
			{Name: "plain", MachineType: h100, Metadata: joins(cluster)},
			{Name: "spot", MachineType: h100, ProvisioningModel: "SPOT", Metadata: joins(cluster)},
			{Name: "flex", MachineType: h100, ProvisioningModel: "FLEX_START", Metadata: joins(cluster)},
		},
		Groups: []gcpsim.Group{
			{Name: "bulk", Zone: zoneA, Template: "plain"},
			{Name: "spot", Zone: zoneA, Template: "spot"},
			{Name: "flex", Zone: zoneA, Template: "flex", ActionOnFailure: "DO_NOTHING"},
			{Name: "owned", Zone: zoneA, Template: "plain", ActionOnFailure: "DO_NOTHING"},
			{Name: "spread", Region: region, Zones: []string{zoneA, zoneB}, Template: "plain"},
			{Name: "flex-regional", Region: region, Zones: []string{zoneB}, Template: "flex", ActionOnFailure: "DO_NOTHING"},
			{Name: "owned-regional", Region: region, Zones: []string{zoneB}, Template: "plain", ActionOnFailure: "DO_NOTHING"},
		},
	}
}

// nodeGroup of one of the groups of simulated.
func (l *lab) nodeGroup(name string) *v1alpha1.NodeGroup {
	l.Helper()
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name + ".h100"}, Spec: v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderGCP, MaxNodes: 100, CapacityType: v1alpha1.OnDemand, Zone: zoneA,
		Template: v1alpha1.NodeTemplate{Capacity: corev1.ResourceList{"cpu": resource.MustParse("208"), "memory": resource.MustParse("1800Gi")}},
		GCP: &v1alpha1.GCPGroup{
			Project: project, Location: zoneA, InstanceGroupManager: name, MachineType: h100, LaunchMethod: v1alpha1.GCPBulkInsert,
		},
	}}
	switch name {
	case "spot":
		g.Spec.CapacityType = v1alpha1.Spot
	case "flex", "flex-regional":
		g.Spec.GCP.LaunchMethod = v1alpha1.GCPResizeRequest
	case "owned", "owned-regional":
		g.Spec.GCP.LaunchMethod = v1alpha1.GCPCreateInstances
	case "spread":
		g.Spec.GCP.Location, g.Spec.Zone = region, zoneB
	}
	if name == "flex-regional" || name == "owned-regional" {
		g.Spec.GCP.Location, g.Spec.Zone = region, zoneB
	}
	l.groups = append(l.groups, g)
	return g
}

const token = "6f9619ff-8b86-d011-b42d-00c04fc964ff-1"

func launchOf(g *v1alpha1.NodeGroup, count int) cloudprovider.LaunchRequest {
	return cloudprovider.LaunchRequest{Group: g, Count: count, Token: token, Request: "team-a/training"}
}

// every is a pool for every capacity type and zone of simulated.
func every(holds int32, faults ...v1alpha1.KwokFault) []cloudsim.Pool {
	return []cloudsim.Pool{
		pool(zoneA, v1alpha1.OnDemand, holds, faults...), pool(zoneA, v1alpha1.Spot, holds, faults...), pool(zoneB, v1alpha1.OnDemand, holds, faults...),
	}
}

// methods are the groups of simulated by which the ways of launching are tried.
var methods = []string{"bulk", "spot", "spread", "flex", "flex-regional", "owned", "owned-regional"}
