package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
)

// place is a node with so many pods, or with room for so many, and its domains.
type place struct {
	pods   int
	labels map[string]string
}

// inDomains is how many of the pods are as the layers require: those of whole parts of each layer in one domain. It knows
// nothing of how plans are made.
func inDomains(layers []fit.Layer, places []place) (n int) {
	if len(layers) == 0 {
		for _, p := range places {
			n += p.pods
		}
		return n
	}
	by := map[string][]place{}
	for _, p := range places {
		if value := p.labels[layers[0].Level]; value != "" {
			by[value] = append(by[value], p)
		}
	}
	for _, in := range by {
		n += inDomains(layers[1:], in) / layers[0].Size * layers[0].Size
	}
	return n
}

// TestPlansKeepToDomains has random racks in blocks, and gangs that are bound to them. Pods of each plan are in domains as
// they require; and where nodes have room for a gang of one podSet, it is found.
func TestPlansKeepToDomains(t *testing.T) {
	cases := randomCases(20_000)
	fits, launches, waits := 0, 0, 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, gang := randomRacks(r), boundGang(r)
		policy := state.DefaultPolicy([]state.Class{state.CheckCapacity, state.AtomicScaleUp}[r.IntN(2)])
		if r.IntN(4) == 0 {
			policy.Topology = []string{"block", "rack"}[r.IntN(2)]
		}
		pods, refusal := s.read(&gang)
		if refusal != nil {
			t.Fatalf("seed %d: %s", seed, refusal.Message())
		}
		_, best := newQuery(s, &gang, pods, policy, asItIs).inTime()
		if best == nil {
			waits++
			if n := roomIn(s, pods[0], policy.Topology); len(pods) == 1 && n >= pods[0].Count {
				t.Fatalf("seed %d: nodes have room for %d of %d pods in domains of %v, and it was not found", seed, n, pods[0].Count, pods[0].Domains)
			}
			continue
		}
		if len(best.verdict().Launches) > 0 {
			launches++
		} else {
			fits++
		}
		for i, p := range pods {
			layers := p.Layers
			if policy.Topology != "" {
				layers = append([]fit.Layer{{Level: policy.Topology, Size: p.Count}}, layers...)
			}
			if n := inDomains(append(layers, perNode(p)), placesOf(best, i)); n != p.Count {
				t.Fatalf("seed %d: %d of %d pods of podSet %d are in domains as %+v asks for, policy %q:\n%+v", seed, n, p.Count, i, p.Domains,
					policy.Topology, best.bins)
			}
		}
		if together := slices.Concat(placesOf(best, 0), placesOf(best, len(pods)-1)); pods[0].Group != "" {
			all := []fit.Layer{{Level: pods[0].Layers[0].Level, Size: pods[0].Count + pods[len(pods)-1].Count}}
			if inDomains(all, together) != all[0].Size {
				t.Fatalf("seed %d: the group is not in one domain:\n%+v", seed, best.bins)
			}
		}
		if err := holds(s, gang, policy, best.verdict()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for what, n := range map[string]int{"fit": fits, "launch": launches, "wait": waits} {
		if n < cases/20 {
			t.Errorf("only %d of %d cases %s: they say little about it", n, cases, what)
		}
	}
}

// perNode is the layer of pods that must be on one node.
func perNode(p *fit.Pod) fit.Layer { return fit.Layer{Level: corev1.LabelHostname, Size: p.PerNode} }

// placesOf is where a plan has the pods of a podSet, machines that are launched included.
func placesOf(t *trial, i int) (out []place) {
	for b, bin := range t.bins {
		if bin.pods[i] == 0 {
			continue
		}
		for n := range bin.count {
			labels := map[string]string{}
			if bin.source >= 0 {
				labels = map[string]string{"rack": t.sources[bin.source].label("rack"), "block": t.sources[bin.source].label("block")}
			} else {
				for _, level := range []string{"rack", "block"} {
					labels[level] = t.offers[bin.offer].Labels[level]
				}
				for in := bin.in; in != nil; in = in.within {
					labels[in.level] = fmt.Sprintf("new %p", in)
				}
			}
			labels[corev1.LabelHostname] = fmt.Sprint(b, "/", n)
			out = append(out, place{bin.pods[i], labels})
		}
	}
	return out
}

// roomIn is for how many pods, alone on the nodes that there are, domains have room as they require it.
func roomIn(s *Snapshot, p *fit.Pod, within string) (most int) {
	by := map[string][]place{}
	for n := range s.Nodes.All() {
		labels := map[string]string{"rack": n.Labels["rack"], "block": n.Labels["block"], corev1.LabelHostname: n.Name}
		if value, has := n.Labels[within]; has || within == "" {
			by[value] = append(by[value], place{int(n.Free["nvidia.com/gpu"] / p.Requests["nvidia.com/gpu"]), labels})
		}
	}
	for _, places := range by {
		most = max(most, inDomains(append(p.Layers, perNode(p)), places))
	}
	return most
}

func randomRacks(r *rand.Rand) *Snapshot {
	nodes := nodeset.New()
	racks := 1 + r.IntN(5)
	for i := range r.IntN(12) {
		rack := r.IntN(racks)
		n := &state.Node{Name: fmt.Sprintf("node-%d", i), Ready: true,
			Labels: map[string]string{"rack": fmt.Sprint("r", rack), "block": fmt.Sprint("b", rack/2)}}
		if r.IntN(8) == 0 {
			delete(n.Labels, "rack")
		}
		n.Allocatable = nodegroups.Resources{"nvidia.com/gpu": 8, "pods": 10}
		n.Free = nodegroups.Resources{"nvidia.com/gpu": r.Int64N(9), "pods": 10}
		nodes.Set(n)
	}
	var groups []nodegroups.Group
	for i := range r.IntN(3) {
		g := nodegroups.Group{Name: fmt.Sprintf("group-%d", i), CapacityType: v1alpha1.OnDemand, MicroUSDPerHour: 1e6, Max: r.IntN(7),
			Allocatable: nodegroups.Resources{"nvidia.com/gpu": 8, "pods": 10}, Levels: map[string]int{}}
		g.Promised, g.Labels = g.Allocatable, map[string]string{v1alpha1.NodeGroupLabel: g.Name}
		switch r.IntN(4) {
		case 0:
			rack := r.IntN(racks)
			g.Labels["rack"], g.Labels["block"] = fmt.Sprint("r", rack), fmt.Sprint("b", rack/2)
		case 1:
			g.Levels = map[string]int{"rack": r.IntN(5), "block": 0}
		case 2:
			g.Levels = map[string]int{"rack": 1 + r.IntN(4)}
			g.Labels["block"] = "b0"
		}
		groups = append(groups, g)
	}
	return NewSnapshot(noon, nodes, groups, nil)
}

// boundGang has podSets with annotations. The sizes of slices divide the pods, as those of all layers do.
func boundGang(r *rand.Rand) state.Gang {
	g := state.Gang{Name: "ns/gang", UID: "gang", Key: "gang"}
	grouped := r.IntN(6) == 0
	shared := []string{"rack", "block"}[r.IntN(2)]
	for i := range 1 + r.IntN(2) {
		slice := 1 + r.IntN(3)
		inner := 1 + r.IntN(2)
		t := &corev1.PodTemplateSpec{}
		t.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"nvidia.com/gpu": *resource.NewQuantity(1+r.Int64N(4), resource.DecimalSI)}}}}
		t.Annotations = map[string]string{}
		if grouped {
			t.Annotations["kueue.x-k8s.io/podset-required-topology"], t.Annotations["kueue.x-k8s.io/podset-group-name"] = shared, "together"
			if level := []string{"", "rack", corev1.LabelHostname}[r.IntN(3)]; level != "" && level != shared {
				t.Annotations["kueue.x-k8s.io/podset-slice-required-topology"] = level
				t.Annotations["kueue.x-k8s.io/podset-slice-size"] = fmt.Sprint(slice * inner)
			}
		} else {
			level := []string{"", "block", "rack", corev1.LabelHostname}[r.IntN(4)]
			if level != "" {
				t.Annotations["kueue.x-k8s.io/podset-required-topology"] = level
			}
			switch kinds := r.IntN(4); {
			case level == corev1.LabelHostname || level == "rack" && kinds == 1:
			case kinds == 0:
				t.Annotations["kueue.x-k8s.io/podset-slice-required-topology"] = []string{"rack", corev1.LabelHostname}[r.IntN(2)]
				t.Annotations["kueue.x-k8s.io/podset-slice-size"] = fmt.Sprint(slice * inner)
			case kinds == 1:
				t.Annotations["kueue.x-k8s.io/podset-slice-required-topology-constraints"] = fmt.Sprintf(
					`[{"topology": "block", "size": %d}, {"topology": "%s", "size": %d}]`, slice*inner,
					[]string{"rack", corev1.LabelHostname}[r.IntN(2)], inner)
			}
		}
		g.PodSets = append(g.PodSets, state.PodSet{Name: fmt.Sprint(i), Count: slice * inner * (1 + r.IntN(3)), Template: t})
	}
	return g
}
