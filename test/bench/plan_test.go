// Package bench measures. Seeds are fixed; machines are noisy, so compare two
// versions by ratio in one run:
//
//	git stash; make bench ARGS='-count=10' > old.txt; git stash pop
//	make bench ARGS='-count=10' > new.txt; benchstat old.txt new.txt
package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

const seed = 1

// scraps is how many different amounts of room the nodes of a crowded cluster have
// left.
const scraps = 1000

// BenchmarkPlan plans a gang of 64 pods in 3 podSets, one of which names its hosts, against a cluster that is nearly full, so that every
// class of nodes and every group is examined. The bound is 1 ms at p99 for 5,000 nodes, and 1.5 times that for ten times the nodes in the
// same classes.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ nodes, groups int }{{1000, 50}, {5000, 200}, {50_000, 200}, {100_000, 200}} {
		b.Run(fmt.Sprintf("nodes=%d/groups=%d", size.nodes, size.groups), func(b *testing.B) {
			s := crowded(size.nodes, size.groups)
			gang := gangOf64()
			policy := state.DefaultPolicy(state.AtomicScaleUp)
			took := make([]time.Duration, 0, 1000)
			for b.Loop() {
				start := time.Now()
				if v := planner.Plan(s, gang, policy); v.Outcome != planner.Launch {
					b.Fatalf("plan is %s: %s", v.Outcome, v.Message())
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkNodeChange changes one node of many and hands out a snapshot, as each
// event of a watch does.
func BenchmarkNodeChange(b *testing.B) {
	for _, nodes := range []int{5000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			set := crowded(nodes, 200).Nodes
			random := rand.New(rand.NewPCG(seed, 2))
			for b.Loop() {
				n := *set.Find(fmt.Sprintf("node-%06d", random.IntN(nodes)))
				n.Free = n.Free.Clone()
				n.Free["cpu"] = random.Int64N(4000)
				set.Set(&n)
				set.Clone()
			}
		})
	}
}

// BenchmarkMemory measures what a node and a booking take in the snapshot that plans
// are made from.
func BenchmarkMemory(b *testing.B) {
	const nodes = 10_000
	for _, bookings := range []int{0, 1} {
		b.Run(fmt.Sprintf("bookings=%d", bookings), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				s := crowded(nodes, 200)
				for i := range nodes * bookings {
					n := *s.Nodes.Find(fmt.Sprintf("node-%06d", i))
					n.Bookings = []state.Booking{{
						Key: fmt.Sprintf("gang-%d", i), Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%032d", i)),
						Remaining: nodegroups.Resources{"cpu": 1000, "nvidia.com/gpu": 8, "pods": 1},
					}}
					n.Labelled = n.Bookings
					s.Nodes.Set(&n)
				}
				b.ReportMetric(float64(heap()-before)/nodes, "B/node")
				runtime.KeepAlive(s)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// crowded is a cluster whose nodes have scraps of room left.
func crowded(nodes, groups int) *planner.Snapshot {
	random := rand.New(rand.NewPCG(seed, seed))
	machine := nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}
	var list []nodegroups.Group
	for i := range groups {
		zone := fmt.Sprintf("zone-%d", i%3)
		name := fmt.Sprintf("group-%04d", i)
		list = append(list, nodegroups.Group{
			Name: name, Zone: zone, CapacityType: v1alpha1.OnDemand, Max: 100,
			MicroUSDPerHour: 90e6 + random.Int64N(20e6), Allocatable: machine, Promised: machine,
			Labels: map[string]string{corev1.LabelTopologyZone: zone, v1alpha1.NodeGroupLabel: name},
		})
	}
	type scrap struct{ cpu, memory int64 }
	left := make([]scrap, scraps)
	for i := range left {
		left[i] = scrap{200 + random.Int64N(3800), 1<<25 + random.Int64N(1<<30)}
	}
	set := nodeset.New()
	for i := range nodes {
		// The same amount is always left in the same group, so that more nodes
		// make no more classes.
		g, scrap := &list[i%scraps%groups], left[i%scraps]
		name := fmt.Sprintf("node-%06d", i)
		set.Set(&state.Node{
			Name: name, Group: g.Name, Ready: true, Allocatable: machine, Pods: 1,
			Labels: map[string]string{
				corev1.LabelTopologyZone: g.Zone, v1alpha1.NodeGroupLabel: g.Name, corev1.LabelHostname: name,
			},
			Free: nodegroups.Resources{"cpu": scrap.cpu, "memory": scrap.memory, "pods": 100, "nvidia.com/gpu": 0},
		})
	}
	return planner.NewSnapshot(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), set, list, nil)
}

// gangOf64 requests GPUs for most of its pods and little memory for its readers, so that every node is examined for the readers.
func gangOf64() state.Gang {
	podSet := func(name string, count int, cpu, gpus string) state.PodSet {
		t := &corev1.PodTemplateSpec{}
		t.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu": resource.MustParse(cpu), "memory": resource.MustParse("16Mi"), "nvidia.com/gpu": resource.MustParse(gpus),
		}}}}
		return state.PodSet{Name: name, Count: count, Template: t}
	}
	launcher := podSet("launcher", 1, "100m", "0")
	launcher.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-000007"}
	return state.Gang{Namespace: "bench", Name: "bench/gang", PodSets: []state.PodSet{
		launcher, podSet("workers", 56, "8", "8"), podSet("readers", 7, "4", "0"),
	}}
}
