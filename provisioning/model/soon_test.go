package model

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// sharers is a model with a group of machines of 8 GPUs, where gangs of 4 come.
type sharers struct {
	*Model
	*version
}

func newSharers() sharers {
	m, v := newModel()
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
	g.Spec.CapacityType, g.Spec.MaxNodes = v1alpha1.OnDemand, 1
	g.Spec.Template.Capacity = corev1.ResourceList{gpu: resource.MustParse("8"), "pods": resource.MustParse("110")}
	m.Set(g)
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers", ResourceVersion: v.next()}}
	t.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{gpu: resource.MustParse("1")}}}}
	m.Set(t)
	return sharers{m, v}
}

// gang is a request of a queue for 4 pods, whose first attempt began so many seconds after noon.
func (s sharers) gang(name string, a transaction.Attempt, conditions ...string) {
	r := s.request(name, conditions...)
	r.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload", UID: "w", Controller: new(true)}}
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: "workers"}, Count: 4}}
	if a.Number > 0 {
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
	}
	s.Set(r)
}

func attempt(phase transaction.AttemptPhase, began time.Duration, launches, shares int) transaction.Attempt {
	a := transaction.Attempt{Number: 1, Phase: phase, Started: noon.Add(began)}
	if launches > 0 {
		a.Launches = []planner.GroupCount{{Group: "gpu", Count: launches}}
	}
	if shares > 0 {
		a.Shares = []planner.GroupCount{{Group: "gpu", Count: shares}}
	}
	return a
}

// next is the answer for a gang that comes now: whether it may share the one machine.
func (s sharers) next(t *testing.T) (shares bool) {
	t.Helper()
	e, ok := s.Request("next")
	if !ok {
		s.gang("next", transaction.Attempt{})
		e, _ = s.Request("next")
	}
	plan := planner.Plan(s.Snapshot(noon), e.Gang, e.Policy)
	if plan.Outcome == planner.Never {
		t.Fatalf("plan is %s", plan.Outcome)
	}
	return len(plan.Shares) > 0 || plan.Outcome == planner.Fits // it may book what is left at once
}

// TestWhatIsLeftOfAMachineOnItsWay can be counted on from when its launch is decided until
// it is booked, without a gap.
func TestWhatIsLeftOfAMachineOnItsWay(t *testing.T) {
	s := newSharers()
	node := func(changes ...func(*corev1.Node)) {
		n := s.node(changes...)
		n.Spec.Unschedulable = true
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[v1alpha1.NodeGroupLabel] = "gpu"
		n.Annotations[v1alpha1.LaunchAnnotation] = "gang-1"
		if n.Annotations[v1alpha1.CordonedAnnotation] == "" {
			n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonJoining
		}
		s.Set(n)
	}
	half := func(n *corev1.Node) {
		label := state.BookingLabel("gang")
		n.Labels = map[string]string{label: "ns"}
		n.Annotations = map[string]string{
			label: state.Booking{UID: "gang", Since: noon,
				Booked: map[corev1.ResourceName]int64{gpu: 4, "pods": 4}}.Encode(),
			v1alpha1.CordonedAnnotation: v1alpha1.CordonBooked,
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nobody has begun", func() { s.gang("gang", transaction.Attempt{}) }, false},
		{"decided", func() { s.Assume("gang", Assumption{Attempt: attempt(transaction.Launching, 0, 1, 0)}) }, true},
		{"on record", func() { s.gang("gang", attempt(transaction.Launching, 0, 1, 0)); s.Settle("gang") }, true},
		{"a node", func() { node() }, true},
		{"booked", func() { node(half) }, true},
		{"about to be Provisioned", func() { s.Assume("gang", Assumption{Attempt: attempt(transaction.Done, 0, 1, 0)}) }, true},
		{"Provisioned", func() { s.gang("gang", attempt(transaction.Done, 0, 1, 0), provreq.Provisioned); s.Settle("gang") }, true},
		{"somebody shares it", func() { s.gang("sharer", attempt(transaction.Launching, time.Second, 0, 1)) }, false},
		{"the sharer is gone", func() { s.Delete(s.request("sharer")) }, true},
		{"a stranger comes to the machine", func() { s.Set(s.pod("stranger", "n", 4)) }, false},
		{"its group is gone", func() {
			s.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
			s.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			s.gang("gang", attempt(transaction.Launching, 0, 1, 0))
		}, false},
	} {
		step.do()
		if got := s.next(t); got != step.want {
			t.Errorf("%s: the next gang may share it: %t", step.name, got)
		}
	}
}

// TestGangsThatShareAreWoken: their room may come with any gang's pods, or go with any
// gang's machine. A gang that launches is woken by its own machines.
func TestGangsThatShareAreWoken(t *testing.T) {
	s := newSharers()
	s.gang("launches", attempt(transaction.Launching, 0, 1, 0))
	s.gang("shares", attempt(transaction.Launching, time.Second, 0, 1))
	s.gang("waits", transaction.Attempt{})
	due := func() (names []string) {
		for _, e := range s.Due(nil) {
			names = append(names, e.Name)
		}
		slices.Sort(names)
		return names
	}
	due()
	s.Set(s.node())
	if got, want := due(), []string{"shares", "waits"}; !slices.Equal(got, want) {
		t.Errorf("a free node wakes %v, want %v", got, want)
	}
	s.Set(s.node(func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	if got, want := due(), []string{"shares"}; !slices.Equal(got, want) {
		t.Errorf("a node that is free no more wakes %v, want %v", got, want)
	}
	booked := func(gpus int64) func(*corev1.Node) {
		return func(n *corev1.Node) {
			label := state.BookingLabel("launches")
			n.Spec.Unschedulable, n.Labels = true, map[string]string{label: "ns"}
			n.Annotations = map[string]string{
				label:                       state.Booking{UID: "launches", Since: noon, Booked: map[corev1.ResourceName]int64{gpu: gpus, "pods": gpus}}.Encode(),
				v1alpha1.CordonedAnnotation: v1alpha1.CordonBooked,
			}
		}
	}
	s.gang("launches", attempt(transaction.Done, 0, 1, 0), provreq.Provisioned)
	due()
	for _, step := range []struct {
		gpus int64
		want []string
	}{{4, []string{"launches", "shares", "waits"}}, {6, []string{"launches", "shares"}}, {2, []string{"launches", "shares", "waits"}}} {
		s.Set(s.node(booked(step.gpus)))
		if got := due(); !slices.Equal(got, step.want) {
			t.Errorf("a node that is booked for %d GPUs wakes %v, want %v", step.gpus, got, step.want)
		}
	}
}
