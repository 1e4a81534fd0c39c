package bench

import (
	"fmt"
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

// BenchmarkSharing plans gangs of a fifth of a machine that arrive at once, each after the ones before: as a cycle of the queue does, and
// as the provisioner does once it has started all of them and a node has changed.
func BenchmarkSharing(b *testing.B) {
	policy := state.DefaultPolicy(state.AtomicScaleUp)
	for _, gangs := range []int{100, 1000} {
		list := make([]state.Gang, gangs)
		for i := range list {
			list[i] = fifth(types.UID(fmt.Sprintf("gang-%04d", i)))
		}
		b.Run(fmt.Sprintf("cycle/gangs=%d", gangs), func(b *testing.B) {
			for b.Loop() {
				s := empty(nil)
				launched := 0
				for _, g := range list {
					plan := planner.Plan(s, g, policy)
					for _, l := range plan.Launches {
						launched += l.Count
					}
					s = s.Taking(g.UID, state.Tenant{}, &plan)
				}
				if launched != gangs/5 {
					b.Fatalf("%d machines were launched, want %d", launched, gangs/5)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*gangs), "µs/gang")
		})
		b.Run(fmt.Sprintf("again/flying=%d", gangs), func(b *testing.B) {
			flying := make([]planner.UpcomingAttempt, gangs)
			for i, g := range list {
				flying[i] = planner.UpcomingAttempt{Gang: g, Policy: policy, Held: true}
				flying[i].Gang.Launch = state.Token(g.UID, 1)
				if i%5 == 0 {
					flying[i].Launches = []planner.GroupCount{{Group: "big", Count: 1}}
				}
			}
			for b.Loop() {
				if plan := planner.Plan(empty(flying), fifth("next"), policy); len(plan.Launches) != 1 {
					b.Fatalf("plan is %s %v %v", plan.Outcome, plan.Launches, plan.Shares)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*gangs), "µs/gang")
		})
	}
}

// empty returns a cluster of a group without machines except for those of the attempts.
func empty(flying []planner.UpcomingAttempt) *planner.Snapshot {
	room := nodegroups.Resources{corev1.ResourceCPU: 100_000, corev1.ResourcePods: 110}
	s := planner.NewSnapshot(time.Unix(0, 0), nodeset.New(), []nodegroups.Group{{
		Name: "big", CapacityType: v1alpha1.OnDemand, Max: 10_000, Allocatable: room, Promised: room, MicroUSDPerHour: 4e6,
		Labels: map[string]string{v1alpha1.NodeGroupLabel: "big"},
	}}, nil)
	before := *s
	before.Nodes = s.Nodes.Clone()
	s.Upcoming = planner.NewUpcoming(&before, flying)
	return s
}

// fifth is a gang of ten pods that take a fifth of a machine.
func fifth(uid types.UID) state.Gang {
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}
	return state.Gang{Namespace: "team", Name: "team/" + string(uid), UID: uid, Key: string(uid),
		PodSets: []state.PodSet{{Name: "main", Count: 10, Template: template}}}
}
