package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

func TestStoryRequestGrowsAGroupAndDeletionGivesItBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	r := s.request("four", 4, nil)
	c := s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	if c.Reason != transaction.ReasonCapacityProvisioned {
		t.Errorf("reason is %s", c.Reason)
	}
	nodes := s.opened("four", 4)
	for _, n := range nodes {
		if !n.Spec.Unschedulable || n.Labels[v1alpha1.NodeGroupLabel] != g.Name || n.Status.Allocatable.Name("nvidia.com/gpu", "").Value() != 8 {
			t.Errorf("node %s: cordoned %t, labels %v, allocatable %v", n.Name, n.Spec.Unschedulable, n.Labels, n.Status.Allocatable)
		}
	}
	s.Delete(r)
	s.Empty(g.Name)
}

func TestStoryCheckCapacityBooksWhatIsThereAndLaunchesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.IdleTimeout.Duration = time.Hour })
	first := s.request("first", 2, nil)
	s.condition(first, provreq.Provisioned, metav1.ConditionTrue)

	checks := func(r *provreq.ProvisioningRequest) { r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity }
	second := s.request("second", 2, checks)
	if c := s.condition(second, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, "0 of the 2 pods") {
		t.Errorf("the booked machines are not free, yet the request says: %s", c.Message)
	}
	s.Delete(first)
	if c := s.condition(second, provreq.Provisioned, metav1.ConditionTrue); c.Reason != transaction.ReasonCapacityIsFound {
		t.Errorf("reason is %s", c.Reason)
	}
	if n := len(s.nodes(g.Name)); n != 2 {
		t.Errorf("%d nodes, want the same 2", n)
	}
	s.Delete(second)
	s.idleAtOnce(g)
	s.Empty(g.Name)
}

func TestAPoolThatGivesPartKeepsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holds := int32(7)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.Holds = &holds })
	r := s.request("eight", 8, nil)
	s.Empty(g.Name)
	// While the seven end, they count.
	var c metav1.Condition
	s.Eventually("the request says what came of the attempt, and when the next one is due", func() bool {
		c = s.condition(r, provreq.Provisioned, metav1.ConditionFalse)
		return c.Reason == transaction.ReasonCapacityIsNotFound && strings.Contains(c.Message, "7 of 8 machines were made") &&
			strings.Contains(c.Message, "next attempt at")
	}, func() string { return c.Reason + ": " + c.Message })
	s.Eventually("the group remembers the stockout", func() bool {
		return s.Get(g) && g.Status.BackoffUntil != nil && len(g.Status.Attempts) == 1 &&
			g.Status.Attempts[0].Class == v1alpha1.Stockout && g.Status.Attempts[0].Got == 7
	}, func() string { return fmt.Sprintf("its status is %+v", g.Status) })
}

func TestMachinesThatAllDieWhileTheyBootAreNotTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	all := int32(100)
	first := s.Group("-first", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Percent: &all}}
		cheap := resource.MustParse("1")
		g.Spec.PricePerHour = &cheap
	})
	second := s.Group("-second", nil)
	r := s.request("three", 3, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	if n := len(s.nodes(second.Name)); n != 3 {
		t.Errorf("%d nodes of the second group, want 3", n)
	}
	if left := s.Left(first.Name); len(left) > 0 {
		t.Errorf("%v are left of the first group", left)
	}
	s.Delete(r)
	s.Empty(second.Name)
}

func TestOthersWaitAndDaemonsDoNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// The first machine is complete two seconds before the second: time enough for
	// others to take it, were it open.
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultLateDevices, Machines: []int64{1}, After: testbed.After(2 * time.Second)}}
		g.Spec.MinNodes = 2
	})
	r := s.request("two", 2, nil)
	// These pods have no request and would fit on the same machines. New ones are created all the time, since the scheduler backs off
	// from those that it has tried.
	others := 0
	other := func() *corev1.Pod {
		others++
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("other-%d", others)}, Spec: s.podSpec()}
	}
	s.Eventually("the request is Provisioned", func() bool {
		s.Create(other())
		return s.Get(r) && meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned)
	}, func() string { return fmt.Sprint(r.Status.Conditions) })
	s.Create(other())

	daemons, taken := map[string]int{}, 0
	var pods corev1.PodList
	if err := s.Kube.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		switch {
		case p.Namespace == "kube-system":
			daemons[p.Spec.NodeName]++
		case p.Namespace == s.Name && p.Spec.NodeName != "":
			taken++
		}
	}
	if taken > 0 {
		t.Errorf("%d of %d pods without a request took a machine of the gang", taken, others)
	}
	nodes := s.nodes(g.Name)
	for _, n := range nodes {
		if daemons[n.Name] != 1 {
			t.Errorf("%d pods of DaemonSets run on the booked node %s, want the device plugin", daemons[n.Name], n.Name)
		}
	}
	// The gang's pods come as such that name their request, and nothing else.
	gang := make([]*corev1.Pod, 2)
	for i := range gang {
		gang[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("gang-%d", i),
			Annotations: map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "two"}}, Spec: s.podSpec()}
		s.Create(gang[i])
	}
	if c := s.condition(r, provreq.BookingExpired, metav1.ConditionTrue); c.Reason != transaction.ReasonBookingConsumed {
		t.Errorf("the booking is over because of %s", c.Reason)
	}
	s.Eventually("the cordons are lifted", func() bool {
		nodes := s.nodes(g.Name)
		return len(nodes) == 2 && !nodes[0].Spec.Unschedulable && !nodes[1].Spec.Unschedulable
	}, func() string { return "" })
	s.Delete(gang[0])
	s.Eventually("another pod gets the machine now", func() bool {
		var pods corev1.PodList
		if s.Kube.List(t.Context(), &pods, client.InNamespace(s.Name)) != nil {
			return false
		}
		bound := 0
		for _, p := range pods.Items {
			if p.Spec.NodeName != "" && strings.HasPrefix(p.Name, "other-") {
				bound++
			}
		}
		return bound == 1
	}, func() string { return "" })
	s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	s.idleAtOnce(g)
	s.Empty(g.Name)
}

func TestAHumansCordonStays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MinNodes = 2 }) // else idle machines are held
	first := s.request("first", 2, nil)
	s.condition(first, provreq.Provisioned, metav1.ConditionTrue)
	s.Delete(first)
	s.Eventually("both nodes are open", func() bool {
		open := 0
		for _, n := range s.nodes(g.Name) {
			if !n.Spec.Unschedulable {
				open++
			}
		}
		return open == 2
	}, func() string { return "" })
	node := s.nodes(g.Name)[0]
	patch := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = true
	if err := s.Kube.Patch(t.Context(), &node, patch); err != nil {
		t.Fatal(err)
	}
	second := s.request("second", 2, func(r *provreq.ProvisioningRequest) { r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity })
	if c := s.condition(second, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, "1 of the 2 pods") {
		t.Errorf("the request says: %s", c.Message)
	}
	if !s.Get(&node) || !node.Spec.Unschedulable {
		t.Error("the human's cordon is gone")
	}
	s.Delete(second)
	patch = client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = false
	if err := s.Kube.Patch(t.Context(), &node, patch); err != nil {
		t.Fatal(err)
	}
	s.idleAtOnce(g)
	s.Empty(g.Name)
}

func TestDeletingTheRequestOfARunningGangStopsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	r := s.request("gang", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "gang"}}
	two := int32(2)
	j.Spec.Parallelism, j.Spec.Completions = &two, &two
	j.Spec.Template.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang", "kwok.muster.dev/run-for": "6s"}
	j.Spec.Template.Spec = s.podSpec()
	s.Create(j)
	s.condition(r, provreq.BookingExpired, metav1.ConditionTrue)
	s.Delete(r)
	s.complete(j)
	if j.Status.Failed != 0 {
		t.Errorf("%d pods failed", j.Status.Failed)
	}
	s.Empty(g.Name)
}

// opened waits until the request's pods may come to n nodes, which is a moment
// after it is Provisioned.
func (s *site) opened(request string, n int) []corev1.Node {
	s.Helper()
	var nodes corev1.NodeList
	s.Eventually(fmt.Sprintf("%d nodes are open to the pods of request %s", n, request), func() bool {
		return s.Kube.List(s.Context(), &nodes, client.MatchingLabels{state.BookingLabel(request): s.Name}) == nil && len(nodes.Items) == n
	}, func() string { return fmt.Sprintf("%d are", len(nodes.Items)) })
	return nodes.Items
}

func (s *site) nodes(group string) []corev1.Node {
	s.Helper()
	var nodes corev1.NodeList
	if err := s.Kube.List(s.Context(), &nodes, client.MatchingLabels{v1alpha1.NodeGroupLabel: group}); err != nil {
		s.Fatal(err)
	}
	return nodes.Items
}

// idleAtOnce lets the group scale down idle machines at once.
func (s *site) idleAtOnce(g *v1alpha1.NodeGroup) {
	s.Helper()
	patch := client.MergeFrom(g.DeepCopy())
	g.Spec.IdleTimeout, g.Spec.MinNodes = &metav1.Duration{}, 0
	if err := s.Kube.Patch(s.Context(), g, patch); err != nil {
		s.Fatal(err)
	}
}
