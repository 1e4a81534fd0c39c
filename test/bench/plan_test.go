// Package bench measures. Seeds are fixed; machines are noisy, so compare two
// versions by ratio in one run:
//
//	git stash; make bench ARGS='-count=10' > old.txt; git stash pop
//	make bench ARGS='-count=10' > new.txt; benchstat old.txt new.txt
package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

const seed = 1

// BenchmarkPlan plans a gang of 64 pods in 3 podSets against a cluster that is
// nearly full, so that every node and every group is looked at.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ nodes, groups int }{{100, 10}, {1000, 50}, {5000, 200}} {
		b.Run(fmt.Sprintf("nodes=%d/groups=%d", size.nodes, size.groups), func(b *testing.B) {
			s := crowded(size.nodes, size.groups)
			gang := gangOf64()
			policy := provisioning.DefaultPolicy(provisioning.AtomicScaleUp)
			took := make([]time.Duration, 0, 1000)
			for b.Loop() {
				start := time.Now()
				if v := provisioning.Plan(s, gang, policy); v.Outcome != provisioning.Launch {
					b.Fatalf("plan is %s: %s", v.Outcome, v.Message())
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// crowded is a cluster whose nodes have random scraps of room left.
func crowded(nodes, groups int) *provisioning.Snapshot {
	random := rand.New(rand.NewPCG(seed, seed))
	s := &provisioning.Snapshot{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	machine := nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}
	for i := range groups {
		zone := fmt.Sprintf("zone-%d", i%3)
		s.Groups = append(s.Groups, nodegroups.Group{
			Name: fmt.Sprintf("group-%04d", i), Zone: zone, CapacityType: v1alpha1.OnDemand, Max: 100,
			MicroUSDPerHour: 90e6 + random.Int64N(20e6), Allocatable: machine,
			Labels: map[string]string{corev1.LabelTopologyZone: zone},
		})
	}
	for i := range nodes {
		g := s.Groups[i%groups]
		free := machine.Clone()
		free["cpu"] = random.Int64N(4000)
		free["memory"] = random.Int64N(1 << 30)
		free["nvidia.com/gpu"] = 0
		s.Nodes = append(s.Nodes, provisioning.Node{
			Name: fmt.Sprintf("node-%06d", i), Group: g.Name, Labels: g.Labels, Ready: true,
			Allocatable: machine, Free: free, Pods: 1,
		})
	}
	return s
}

func gangOf64() provisioning.Gang {
	podSet := func(name string, count int, cpu, gpus string) provisioning.PodSet {
		t := &corev1.PodTemplateSpec{}
		t.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu": resource.MustParse(cpu), "nvidia.com/gpu": resource.MustParse(gpus),
		}}}}
		return provisioning.PodSet{Name: name, Count: count, Template: t}
	}
	return provisioning.Gang{Name: "bench/gang", PodSets: []provisioning.PodSet{
		podSet("launcher", 1, "8", "0"), podSet("workers", 56, "8", "8"), podSet("readers", 7, "4", "0"),
	}}
}
