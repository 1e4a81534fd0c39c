package oracle

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// TestPlansCanBeScheduled plans the gangs of random worlds, books the planned nodes as Muster does, by the label that the pods select,
// and runs the scheduler for the pods one after another: each must fit on its node.
func TestPlansCanBeScheduled(t *testing.T) {
	const worlds = 8_000
	s := newScheduler(t, storage.objects()...)
	outcomes, apart := map[planner.Outcome]int{}, 0
	for seed := range uint64(worlds) {
		w := newWorld(newSeeded(seed), true)
		gang, between := w.gang()
		v := planner.Plan(w.snapshot(), gang, anywhere())
		outcomes[v.Outcome]++
		if v.Outcome != planner.Fits {
			continue
		}
		if between {
			apart++
		}
		if err := w.schedule(s, v); err != nil && !errors.IsInvalid(err) {
			t.Fatalf("seed %d: %v\nplan %+v\n%s", seed, err, v.Placement, w)
		}
	}
	t.Logf("%d plans fit, %d of them of pods with a say about others; %d wait, %d never", outcomes[planner.Fits], apart,
		outcomes[planner.Wait], outcomes[planner.Never])
	for what, n := range map[string]int{
		"fit": outcomes[planner.Fits], "wait": outcomes[planner.Wait], "are refused": outcomes[planner.Never], "place pods apart": apart,
	} {
		if n < worlds/100 {
			t.Errorf("only %d plans %s: the worlds say little about it", n, what)
		}
	}
}

func anywhere() state.Policy {
	p := state.DefaultPolicy(state.CheckCapacity)
	p.Split = v1alpha1.AnyZone
	return p
}

// gang of the world; between says that some of its pods have a say about others.
func (w *world) gang() (g state.Gang, between bool) {
	g = state.Gang{Namespace: team, Name: team + "/gang", UID: "gang", Key: "gang"}
	for i, set := range w.sets {
		name := fmt.Sprintf("set%d", i)
		g.PodSets = append(g.PodSets, state.NewPodSet(team, name, set.count, set.template, storage.lookups()))
		if p, _ := fit.NewPod(team, name, set.count, set.template, storage.lookups()); p != nil && p.Between() {
			between = true
		}
	}
	return g, between
}

func (w *world) snapshot() *planner.Snapshot {
	nodes := nodeset.New()
	for _, o := range w.nodes {
		n := &state.Node{Name: o.Name, Labels: o.Labels, Taints: o.Spec.Taints, Ready: true,
			Allocatable: nodegroups.ResourcesFrom(o.Status.Allocatable)}
		if o.Spec.Unschedulable {
			n.Cordon = state.Held // another's would rule the node out
		}
		n.Free = n.Allocatable.Clone()
		for _, p := range w.running {
			if p.Spec.NodeName == o.Name {
				n.Free.Sub(fit.PodRequests(p), 1)
				n.Running = append(n.Running, fit.ReadRunning(p))
			}
		}
		nodes.Set(n)
	}
	return planner.NewSnapshot(time.Time{}, nodes, nil, nil)
}

// slot is a pod's place by the plan.
type slot struct {
	set  int
	node string
}

// schedule books the nodes of the plan and has the scheduler take the pods, each on the
// node that the plan gives it. Pods come in any order, so one that would have to
// wait for others is passed over.
func (w *world) schedule(s *kubeScheduler, v planner.Verdict) error {
	booked := map[string]bool{}
	var left []slot
	for _, p := range v.Placement {
		booked[p.Node] = true
	}
	for i := range w.sets {
		for round := range maxCount {
			for _, p := range v.Placement {
				if p.Pods[i] > round {
					left = append(left, slot{i, p.Node})
				}
			}
		}
	}
	nodes := make([]*corev1.Node, len(w.nodes))
	for i, o := range w.nodes {
		nodes[i] = o.DeepCopy()
		if booked[o.Name] {
			nodes[i].Labels[bookedKey] = team
		}
	}
	running := w.running
	var undo []func()
	defer func() {
		for _, f := range undo {
			f()
		}
	}()
	made := make([]int, len(w.sets))
	for len(left) > 0 {
		at := -1
		for k, slot := range left {
			pod, err := create(podName(slot.set, made[slot.set]), w.sets[slot.set].template)
			if err != nil {
				return nil // features may exclude each other
			}
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[bookedKey] = team
			s.set(nodes, running)
			a := s.try(pod)
			if yes, _ := a.verdict(slot.node); !yes {
				continue
			}
			f, err := a.reserve(slot.node)
			if err != nil {
				return err
			}
			undo = append(undo, f)
			pod.Spec.NodeName = slot.node
			running = append(running[:len(running):len(running)], pod)
			at = k
			made[slot.set]++
			break
		}
		if at < 0 {
			pod, _ := create(podName(left[0].set, made[left[0].set]), w.sets[left[0].set].template)
			pod.Spec.NodeSelector = map[string]string{bookedKey: team}
			_, plugin := s.try(pod).verdict(left[0].node)
			return fmt.Errorf("%d pods cannot be scheduled where they were planned, the first of them set%d on %s because of %s", len(left),
				left[0].set, left[0].node, plugin)
		}
		left = append(left[:at], left[at+1:]...)
	}
	return nil
}
