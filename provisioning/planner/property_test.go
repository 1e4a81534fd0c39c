package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
)

// TestPlansHold makes random clusters and gangs, and checks of every plan that it
// places each pod once, takes no room that is not there and grows no group beyond
// its bounds; that it is the same when made again; and that its snapshot is as it
// was before.
func TestPlansHold(t *testing.T) {
	cases := randomCases(20_000)
	outcomes := map[Outcome]int{}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, gang, policy := randomSnapshot(r), randomGang(r), randomPolicy(r)
		before := dump(s)
		v := Plan(s, gang, policy)
		outcomes[v.Outcome]++
		if diff := cmp.Diff(v, Plan(s, gang, policy), cmpopts.IgnoreFields(Verdict{}, "Gang")); diff != "" {
			t.Fatalf("seed %d: the same input gave another plan:\n%s", seed, diff)
		}
		if dump(s) != before {
			t.Fatalf("seed %d: the plan changed its snapshot", seed)
		}
		if err := holds(s, gang, policy, v); err != nil {
			t.Fatalf("seed %d: %v\nplan %+v", seed, err, v)
		}
	}
	for _, o := range []Outcome{Fits, Launch, Wait, Never} {
		if outcomes[o] < cases/100 {
			t.Errorf("only %d of %d random cases came to %s: the cases say little about it", outcomes[o], cases, o)
		}
	}
}

// holds says what is wrong with a plan.
func holds(s *Snapshot, gang state.Gang, policy state.Policy, v Verdict) error {
	if v.Outcome == Wait || v.Outcome == Never {
		if len(v.Reasons) == 0 || v.Message() == "" {
			return fmt.Errorf("%s without a reason", v.Outcome)
		}
		return nil
	}
	placed := make([]int, len(gang.PodSets))
	zones := map[string]bool{}
	for _, p := range v.Placement {
		n := s.Nodes.Find(p.Node)
		free, ok := n.AvailableTo(&gang)
		if !ok {
			return fmt.Errorf("node %s is not to be had", n.Name)
		}
		used := nodegroups.Resources{}
		for i, count := range p.Pods {
			pod, _ := gang.PodSets[i].Read(gang.Namespace, fit.Objects{})
			if count > 0 && !pod.Matches(n.Name, n.Labels, n.Taints) {
				return fmt.Errorf("podSet %d does not suit node %s", i, n.Name)
			}
			used.Add(pod.Requests, count)
			placed[i] += count
		}
		if name, by, short := free.Short(used); short {
			return fmt.Errorf("node %s is %d %s short", n.Name, by, name)
		}
		if p.Whole != n.AloneOn(&gang) {
			return fmt.Errorf("node %s is taken whole: %t", n.Name, p.Whole)
		}
		zones[n.Labels[corev1.LabelTopologyZone]] = true
	}
	left, room, price := nodegroups.Resources{}, nodegroups.Resources{}, int64(0)
	for i, ps := range gang.PodSets {
		pod, _ := ps.Read(gang.Namespace, fit.Objects{})
		if placed[i] > ps.Count {
			return fmt.Errorf("podSet %d has %d pods and %d are placed", i, ps.Count, placed[i])
		}
		left.Add(pod.Requests, ps.Count-placed[i])
	}
	for _, l := range v.Launches {
		g := s.FindGroup(l.Group)
		if l.Count > g.Max-g.Machines || len(g.Backoffs) > 0 {
			return fmt.Errorf("group %s cannot give %d machines", g.Name, l.Count)
		}
		room.Add(g.Usable, l.Count)
		if g.PriceUnknown && (policy.MaxMicroUSDPerHour >= 0 || !slices.Contains(v.Unpriced, g.Name)) {
			return fmt.Errorf("the price of group %s is not known, allowed %d, told %v", g.Name, policy.MaxMicroUSDPerHour, v.Unpriced)
		}
		price += int64(l.Count) * g.MicroUSDPerHour
		zones[g.Zone] = true
	}
	if name, by, short := room.Short(left); short {
		return fmt.Errorf("the launched machines are %d %s short", by, name)
	}
	if len(zones) > 1 && policy.Split != v1alpha1.AnyZone {
		return fmt.Errorf("the gang is spread over zones %v", zones)
	}
	if price != v.MicroUSDPerHour || policy.MaxMicroUSDPerHour >= 0 && price > policy.MaxMicroUSDPerHour {
		return fmt.Errorf("price %d, told %d, allowed %d", price, v.MicroUSDPerHour, policy.MaxMicroUSDPerHour)
	}
	if (v.Outcome == Launch) != (len(v.Launches) > 0) || v.Outcome == Launch && policy.Class == state.CheckCapacity {
		return fmt.Errorf("%s with launches %v", v.Outcome, v.Launches)
	}
	return nil
}

// randomCases is the number of random cases that a test plays: with -short, a quarter.
func randomCases(all int) int {
	if testing.Short() {
		return all / 4
	}
	return all
}

func randomSnapshot(r *rand.Rand) *Snapshot {
	var groups []nodegroups.Group
	nodes := nodeset.New()
	capacityTypes := []v1alpha1.CapacityType{v1alpha1.Reserved, v1alpha1.Spot, v1alpha1.OnDemand}
	for i := range r.IntN(4) {
		g := nodegroups.Group{
			Name: fmt.Sprintf("group-%d", i), Zone: randomZone(r), CapacityType: capacityTypes[r.IntN(3)], MicroUSDPerHour: r.Int64N(5) * 1e6,
			Max: r.IntN(6), Allocatable: nodegroups.Resources{"cpu": 8000, "pods": 10, "nvidia.com/gpu": r.Int64N(3) * 4},
		}
		if r.IntN(6) == 0 {
			g.MicroUSDPerHour, g.PriceUnknown = 0, true
		}
		g.Labels = map[string]string{corev1.LabelTopologyZone: g.Zone, v1alpha1.NodeGroupLabel: g.Name}
		g.Promised = g.Allocatable
		g.Machines = r.IntN(g.Max + 1)
		if r.IntN(4) == 0 {
			g.Backoffs = []v1alpha1.Backoff{{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 1, Until: metav1.NewTime(noon.Add(time.Minute))}}
		}
		if r.IntN(4) == 0 {
			g.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
		}
		groups = append(groups, g)
	}
	for i := range r.IntN(6) {
		zone := randomZone(r)
		n := &state.Node{
			Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{corev1.LabelTopologyZone: zone}, Ready: r.IntN(8) > 0,
			Allocatable: nodegroups.Resources{"cpu": 8000, "pods": 10, "nvidia.com/gpu": 4},
			Cordon: []state.Cordon{state.Open, state.Open, state.Open, state.Held, state.Joining,
				state.ScalingDown, state.Foreign}[r.IntN(7)],
		}
		if len(groups) > 0 && r.IntN(2) == 0 {
			g := &groups[r.IntN(len(groups))]
			n.Group, n.Labels, n.Taints = g.Name, g.Labels, g.Taints
		}
		n.Free = nodegroups.Resources{"cpu": r.Int64N(9) * 1000, "pods": r.Int64N(11), "nvidia.com/gpu": r.Int64N(5)}
		n.Pods = r.IntN(2)
		if r.IntN(3) == 0 {
			n.Bookings = []state.Booking{{
				Key: "other", UID: []types.UID{"other", "gang"}[r.IntN(2)],
				Remaining: nodegroups.Resources{"cpu": r.Int64N(4) * 1000, "nvidia.com/gpu": r.Int64N(3)},
			}}
			n.Labelled = n.Bookings
		}
		nodes.Set(n)
	}
	var daemonSets []state.DaemonSet
	if r.IntN(3) == 0 {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "ds", Namespace: "kube-system", Name: "agent"}}
		d.Spec.Template = *randomTemplate(r)
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		daemonSets = append(daemonSets, state.NewDaemonSet(d))
	}
	return NewSnapshot(noon, nodes, groups, daemonSets)
}

func randomZone(r *rand.Rand) string { return []string{"a", "b"}[r.IntN(2)] }

func randomGang(r *rand.Rand) state.Gang {
	g := state.Gang{Name: "ns/gang", UID: "gang", Key: "gang"}
	for i := range 1 + r.IntN(3) {
		g.PodSets = append(g.PodSets, state.PodSet{Name: fmt.Sprint(i), Count: 1 + r.IntN(6), Template: randomTemplate(r)})
	}
	return g
}

func randomTemplate(r *rand.Rand) *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{}
	t.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		"cpu": *resource.NewQuantity(1+r.Int64N(5), resource.DecimalSI), "nvidia.com/gpu": *resource.NewQuantity(r.Int64N(5), resource.DecimalSI),
	}}}}
	if r.IntN(3) > 0 {
		t.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if r.IntN(5) == 0 {
		t.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: randomZone(r)}
	}
	return t
}

func randomPolicy(r *rand.Rand) state.Policy {
	p := state.DefaultPolicy([]state.Class{state.CheckCapacity, state.AtomicScaleUp, state.AtomicScaleUp}[r.IntN(3)])
	p.Split = []v1alpha1.Split{v1alpha1.SingleGroup, v1alpha1.SingleZone, v1alpha1.AnyZone}[r.IntN(3)]
	if r.IntN(4) == 0 {
		p.MaxMicroUSDPerHour = r.Int64N(20) * 1e6
	}
	if r.IntN(4) == 0 {
		p.CapacityTypes = p.CapacityTypes[r.IntN(3):]
	}
	return p
}

// dump renders all that a plan could change.
func dump(s *Snapshot) string {
	var b strings.Builder
	for n := range s.Nodes.All() {
		fmt.Fprintf(&b, "%+v\n", *n)
	}
	for c, count := range s.Nodes.Classes(asItIs) {
		fmt.Fprintf(&b, "%d of %+v\n", count, *c)
	}
	fmt.Fprintf(&b, "%+v", s.Groups)
	return b.String()
}
