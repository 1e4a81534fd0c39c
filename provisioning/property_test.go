package provisioning

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestPlansHold makes random clusters and gangs, and checks of every plan that it
// places each pod once, takes no room that is not there and grows no group beyond
// its bounds; that it is the same when made again; and that its snapshot is as it
// was before.
func TestPlansHold(t *testing.T) {
	const cases = 20_000
	outcomes := map[Outcome]int{}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, gang, policy := randomSnapshot(r), randomGang(r), randomPolicy(r)
		before := fmt.Sprintf("%+v", s)
		v := Plan(s, gang, policy)
		outcomes[v.Outcome]++
		if diff := cmp.Diff(v, Plan(s, gang, policy)); diff != "" {
			t.Fatalf("seed %d: the same input gave another plan:\n%s", seed, diff)
		}
		if fmt.Sprintf("%+v", s) != before {
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
func holds(s *Snapshot, gang Gang, policy Policy, v Verdict) error {
	if v.Outcome == Wait || v.Outcome == Never {
		if len(v.Reasons) == 0 || v.Message() == "" {
			return fmt.Errorf("%s without a reason", v.Outcome)
		}
		return nil
	}
	placed := make([]int, len(gang.PodSets))
	zones := map[string]bool{}
	for _, p := range v.Placement {
		n := findNode(s, p.Node)
		free, ok := n.availableTo(&gang)
		if !ok {
			return fmt.Errorf("node %s is not to be had", n.Name)
		}
		used := nodegroups.Resources{}
		for i, count := range p.Pods {
			r, _ := require(gang.PodSets[i])
			if count > 0 && r.mismatch(n.Name, n.Labels, n.Taints) != "" {
				return fmt.Errorf("podSet %d does not suit node %s", i, n.Name)
			}
			used.Add(r.requests, count)
			placed[i] += count
		}
		if name, by, short := free.Short(used); short {
			return fmt.Errorf("node %s is %d %s short", n.Name, by, name)
		}
		if p.Whole != n.aloneOn(&gang) {
			return fmt.Errorf("node %s is taken whole: %t", n.Name, p.Whole)
		}
		zones[n.zone()] = true
	}
	left, room, price := nodegroups.Resources{}, nodegroups.Resources{}, int64(0)
	for i, ps := range gang.PodSets {
		r, _ := require(ps)
		if placed[i] > ps.Count {
			return fmt.Errorf("podSet %d has %d pods and %d are placed", i, ps.Count, placed[i])
		}
		left.Add(r.requests, ps.Count-placed[i])
	}
	for _, l := range v.Launches {
		g := findGroup(s, l.Group)
		if l.Count > g.Max-g.Machines || g.BackoffUntil.After(s.Now) {
			return fmt.Errorf("group %s cannot give %d machines", g.Name, l.Count)
		}
		room.Add(shape(g, s.DaemonSets), l.Count)
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
	if (v.Outcome == Launch) != (len(v.Launches) > 0) || v.Outcome == Launch && policy.Class == CheckCapacity {
		return fmt.Errorf("%s with launches %v", v.Outcome, v.Launches)
	}
	return nil
}

func randomSnapshot(r *rand.Rand) *Snapshot {
	s := &Snapshot{Now: noon}
	markets := []v1alpha1.CapacityType{v1alpha1.Reserved, v1alpha1.Spot, v1alpha1.OnDemand}
	for i := range r.IntN(4) {
		g := nodegroups.Group{
			Name: fmt.Sprintf("group-%d", i), Zone: randomZone(r), CapacityType: markets[r.IntN(3)], MicroUSDPerHour: r.Int64N(5) * 1e6,
			Max: r.IntN(6), Allocatable: nodegroups.Resources{"cpu": 8000, "pods": 10, "nvidia.com/gpu": r.Int64N(3) * 4},
		}
		g.Labels = map[string]string{corev1.LabelTopologyZone: g.Zone, v1alpha1.NodeGroupLabel: g.Name}
		g.Machines = r.IntN(g.Max + 1)
		if r.IntN(4) == 0 {
			g.BackoffUntil = noon.Add(time.Minute)
		}
		if r.IntN(4) == 0 {
			g.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
		}
		s.Groups = append(s.Groups, g)
	}
	for i := range r.IntN(6) {
		zone := randomZone(r)
		n := Node{
			Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{corev1.LabelTopologyZone: zone}, Ready: r.IntN(8) > 0,
			Allocatable: nodegroups.Resources{"cpu": 8000, "pods": 10, "nvidia.com/gpu": 4}, Cordon: []Cordon{Open, Open, Open, Held, Joining, GivingBack, Foreign}[r.IntN(7)],
		}
		if len(s.Groups) > 0 && r.IntN(2) == 0 {
			g := &s.Groups[r.IntN(len(s.Groups))]
			n.Group, n.Labels, n.Taints = g.Name, g.Labels, g.Taints
		}
		n.Free = nodegroups.Resources{"cpu": r.Int64N(9) * 1000, "pods": r.Int64N(11), "nvidia.com/gpu": r.Int64N(5)}
		n.Pods = r.IntN(2)
		if r.IntN(3) == 0 {
			n.Bookings = []Booking{{
				Key: "other", UID: []types.UID{"other", "gang"}[r.IntN(2)],
				Remaining: nodegroups.Resources{"cpu": r.Int64N(4) * 1000, "nvidia.com/gpu": r.Int64N(3)},
			}}
			n.Labelled = n.Bookings
		}
		s.Nodes = append(s.Nodes, n)
	}
	if r.IntN(3) == 0 {
		t := randomTemplate(r)
		t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		s.DaemonSets = []DaemonSet{{UID: "ds", Name: "agent", Template: t}}
	}
	return s
}

func randomZone(r *rand.Rand) string { return []string{"a", "b"}[r.IntN(2)] }

func randomGang(r *rand.Rand) Gang {
	g := Gang{Name: "ns/gang", UID: "gang", Key: "gang"}
	for i := range 1 + r.IntN(3) {
		g.PodSets = append(g.PodSets, PodSet{Name: fmt.Sprint(i), Count: 1 + r.IntN(6), Template: randomTemplate(r)})
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

func randomPolicy(r *rand.Rand) Policy {
	p := DefaultPolicy([]Class{CheckCapacity, AtomicScaleUp, AtomicScaleUp}[r.IntN(3)])
	p.Split = []v1alpha1.Split{v1alpha1.SingleGroup, v1alpha1.SingleZone, v1alpha1.AnyZone}[r.IntN(3)]
	if r.IntN(4) == 0 {
		p.MaxMicroUSDPerHour = r.Int64N(20) * 1e6
	}
	if r.IntN(4) == 0 {
		p.CapacityTypes = p.CapacityTypes[r.IntN(3):]
	}
	return p
}
