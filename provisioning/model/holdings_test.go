package model

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// limited is a model where namespaces may have ten machines each.
func limited() (*Model, *version) {
	m, v := newModel()
	price, ten := resource.MustParse("2"), int32(10)
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
	g.Spec.PricePerHour = &price
	g.Spec.Template.Capacity = corev1.ResourceList{gpu: resource.MustParse("8")}
	m.Set(g)
	p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "limits", ResourceVersion: v.next()}}
	p.Spec.Limits = &v1alpha1.CapacityLimits{Machines: &ten}
	m.Set(p)
	return m, v
}

// has asks what the namespace has, as a new request sees it.
func has(m *Model, namespace string) transaction.Holdings {
	return m.View(m.Snapshot(noon), &transaction.Request{Namespace: namespace, Name: "next"}).Has
}

func launches(r *provreq.ProvisioningRequest, count int) *provreq.ProvisioningRequest {
	a := transaction.Attempt{Number: 1, Phase: transaction.Launching, Launches: []planner.GroupCount{{Group: "gpu", Count: count}}}
	r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
	return r
}

// The machines of a namespace count from the decision to launch them until they have
// ended, or until they are unused after their request is gone.
func TestWhatANamespaceHas(t *testing.T) {
	m, v := limited()
	machine := func(i int, state cloudprovider.State) cloudprovider.Machine {
		return cloudprovider.Machine{Name: fmt.Sprint(i), Group: "gpu", Launch: "gang-1", ProviderID: fmt.Sprint("id-", i), State: state}
	}
	node := func(i int, changes ...func(*corev1.Node)) *corev1.Node {
		n := v.node(func(n *corev1.Node) {
			n.Name, n.Spec.ProviderID = fmt.Sprint("n", i), fmt.Sprint("id-", i)
			n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: "gang-1"}
		})
		for _, c := range changes {
			c(n)
		}
		return n
	}
	joining := func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonJoining
	}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"nothing yet", func() {}, 0},
		{"an attempt that is about to be on record", func() {
			m.Set(v.request("gang"))
			m.Assume("gang", Assumption{Attempt: transaction.Attempt{Number: 1, Phase: transaction.Launching,
				Launches: []planner.GroupCount{{Group: "gpu", Count: 3}}}})
		}, 3},
		{"that is on record", func() { m.Set(launches(v.request("gang"), 3)); m.Settle("gang") }, 3},
		{"a hold, which is no machine yet", func() {
			hold := machine(9, cloudprovider.Booting)
			hold.Hold, hold.ProviderID = true, ""
			m.SetMachine(hold)
		}, 3},
		{"a part of its machines", func() {
			m.SetMachine(machine(0, cloudprovider.Booting))
			m.SetMachine(machine(1, cloudprovider.Booting))
		}, 3},
		{"all of them", func() { m.SetMachine(machine(2, cloudprovider.Booting)) }, 3},
		{"one has ended", func() { m.SetMachine(machine(2, cloudprovider.Terminated)) }, 2},
		{"their nodes join", func() { m.Set(node(0, joining)); m.Set(node(1, joining)) }, 2},
		{"one is booked", func() { m.Set(node(1, booked)) }, 2},
		{"the request is deleted: what is booked is used, what joins is about to go", func() { m.Delete(v.request("gang")) }, 2},
		{"one is gone", func() { m.SetMachine(machine(0, cloudprovider.Gone)) }, 1},
		{"the gang has ended, and its machine is idle", func() { m.Set(node(1)) }, 0},
	} {
		step.do()
		got := has(m, "ns")
		if got.Machines != step.want || got.Devices[gpu] != int64(8*step.want) || got.MicroUSDPerHour != int64(2e6*step.want) {
			t.Errorf("%s: %+v, want %d machines", step.name, got, step.want)
		}
		if other := has(m, "other"); other.Machines != 0 {
			t.Errorf("%s: another namespace has %+v", step.name, other)
		}
	}
}

// A gang may run for long after its request was deleted, and muster be started again.
func TestAGangWithoutItsRequestCountsAfterARestart(t *testing.T) {
	m, v := limited()
	m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", Launch: "gang-1", ProviderID: "id-a", State: cloudprovider.Running})
	m.Set(v.node(booked, func(n *corev1.Node) {
		n.Spec.ProviderID, n.Annotations[v1alpha1.LaunchAnnotation] = "id-a", "gang-1"
	}))
	if got := has(m, "ns"); got.Machines != 1 {
		t.Errorf("%d machines, want 1", got.Machines)
	}
}

func TestLimitsHoldWhereTheirPolicySelectsTheNamespace(t *testing.T) {
	m, v := newModel()
	policy := func(name string, limits *v1alpha1.CapacityLimits) {
		m.Set(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: v.next()},
			Spec: v1alpha1.CapacityPolicySpec{Limits: limits}})
	}
	namespace := func(name, team string) {
		m.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: v.next(),
			Labels: map[string]string{corev1.LabelMetadataName: name, "team": team}}})
	}
	policy("all", &v1alpha1.CapacityLimits{})
	policy("none", nil)
	policy("ml", &v1alpha1.CapacityLimits{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ml"}}})
	policy("but-one", &v1alpha1.CapacityLimits{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"free"}}}}})
	policy("typo",
		&v1alpha1.CapacityLimits{NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Is"}}}})
	namespace("research", "ml")
	namespace("free", "infra")
	for _, tc := range []struct {
		before          func()
		namespace, want string
	}{
		{func() {}, "research", "[all but-one ml typo]"},
		{func() {}, "free", "[all typo]"},
		{func() {}, "heard-of-later", "[all but-one typo]"},
		{func() { namespace("free", "ml") }, "free", "[all ml typo]"},
		{func() { m.Delete(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}) }, "free", "[ml typo]"},
	} {
		tc.before()
		var names []string
		for _, l := range m.View(m.Snapshot(noon), &transaction.Request{Namespace: tc.namespace}).Limits {
			names = append(names, l.Policy)
		}
		if got := fmt.Sprint(names); got != tc.want {
			t.Errorf("namespace %s: %s, want %s", tc.namespace, got, tc.want)
		}
	}
}
