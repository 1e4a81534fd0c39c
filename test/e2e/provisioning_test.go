package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/model"
)

func TestRequestGrowsAGroupAndDeletionGivesItBack(t *testing.T) {
	s := newSite(t)
	g := s.group("", nil)
	r := s.request("four", 4, nil)
	c := s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	if c.Reason != provisioning.ReasonCapacityProvisioned {
		t.Errorf("reason is %s", c.Reason)
	}
	nodes := s.nodes(g.Name)
	if len(nodes) != 4 {
		t.Fatalf("%d nodes, want 4", len(nodes))
	}
	for _, n := range nodes {
		if !n.Spec.Unschedulable || n.Labels[provisioning.BookingLabel("four")] != s.name || n.Status.Allocatable.Name("nvidia.com/gpu", "").Value() != 8 {
			t.Errorf("node %s: cordoned %t, labels %v, allocatable %v", n.Name, n.Spec.Unschedulable, n.Labels, n.Status.Allocatable)
		}
	}
	s.delete(r)
	s.empty(g.Name)
}

func TestCheckCapacityBooksWhatIsThereAndLaunchesNothing(t *testing.T) {
	s := newSite(t)
	g := s.group("", func(g *v1alpha1.NodeGroup) { g.Spec.IdleTimeout.Duration = time.Hour })
	first := s.request("first", 2, nil)
	s.condition(first, provreq.Provisioned, metav1.ConditionTrue)

	checks := func(r *provreq.ProvisioningRequest) { r.Spec.ProvisioningClassName = model.ClassCheckCapacity }
	second := s.request("second", 2, checks)
	if c := s.condition(second, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, "0 of the 2 pods") {
		t.Errorf("the booked machines are not free, yet the request says: %s", c.Message)
	}
	s.delete(first)
	if c := s.condition(second, provreq.Provisioned, metav1.ConditionTrue); c.Reason != provisioning.ReasonCapacityIsFound {
		t.Errorf("reason is %s", c.Reason)
	}
	if n := len(s.nodes(g.Name)); n != 2 {
		t.Errorf("%d nodes, want the same 2", n)
	}
	s.delete(second)
	s.idleAtOnce(g)
	s.empty(g.Name)
}

func TestAPoolThatGivesPartKeepsNothing(t *testing.T) {
	s := newSite(t)
	holds := int32(7)
	g := s.group("", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.Holds = &holds })
	r := s.request("eight", 8, nil)
	c := s.condition(r, provreq.Provisioned, metav1.ConditionFalse)
	if c.Reason != provisioning.ReasonCapacityIsNotFound || !strings.Contains(c.Message, "7 of 8 machines came") || !strings.Contains(c.Message, "tried again at") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if left := s.left(g.Name); len(left) > 0 {
		t.Errorf("the request says that nothing was found, and %v are left", left)
	}
	s.eventually("the group remembers the stockout", func() bool {
		return s.get(g) && g.Status.BackoffUntil != nil && len(g.Status.Attempts) == 1 &&
			g.Status.Attempts[0].Class == v1alpha1.Stockout && g.Status.Attempts[0].Got == 7
	}, func() string { return fmt.Sprintf("its status is %+v", g.Status) })
}

func TestAMachineThatDiesWhileItBootsIsNotTheEnd(t *testing.T) {
	s := newSite(t)
	first := s.group("-first", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Machines: []int64{1}}}
		cheap := resource.MustParse("1")
		g.Spec.PricePerHour = &cheap
	})
	second := s.group("-second", nil)
	r := s.request("three", 3, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	if n := len(s.nodes(second.Name)); n != 3 {
		t.Errorf("%d nodes of the second group, want 3", n)
	}
	if left := s.left(first.Name); len(left) > 0 {
		t.Errorf("%v are left of the first group", left)
	}
	s.delete(r)
	s.empty(second.Name)
}

func TestOthersWaitAndDaemonsDoNot(t *testing.T) {
	s := newSite(t)
	g := s.group("", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.DeviceDelay.Duration = 500 * time.Millisecond })
	// A pod without a request that would fit on the very same machine.
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "other"}, Spec: s.podSpec()}
	s.create(other)
	r := s.request("one", 1, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	node := s.nodes(g.Name)[0]
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace("kube-system")); err != nil {
		t.Fatal(err)
	}
	daemons := 0
	for _, p := range pods.Items {
		if p.Spec.NodeName == node.Name {
			daemons++
		}
	}
	if daemons != 1 {
		t.Errorf("%d pods of DaemonSets run on the booked node, want the device plugin", daemons)
	}
	// The gang's pod comes as one that names its request, and nothing else.
	gang := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "gang",
		Annotations: map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "one"}}, Spec: s.podSpec()}
	s.create(gang)
	if c := s.condition(r, provreq.BookingExpired, metav1.ConditionTrue); c.Reason != provisioning.ReasonBookingConsumed {
		t.Errorf("the booking is over because of %s", c.Reason)
	}
	if !s.get(gang) || gang.Spec.NodeName != node.Name {
		t.Errorf("the gang's pod is on %q, want %s", gang.Spec.NodeName, node.Name)
	}
	if !s.get(other) || other.Spec.NodeName != "" {
		t.Errorf("a pod without a request took %q", other.Spec.NodeName)
	}
	s.eventually("the cordon is lifted", func() bool { n := s.nodes(g.Name); return len(n) == 1 && !n[0].Spec.Unschedulable },
		func() string { return "" })
	s.delete(gang)
	s.eventually("the other pod gets the machine now", func() bool { return s.get(other) && other.Spec.NodeName == node.Name },
		func() string { return "" })
	s.delete(other)
	s.empty(g.Name)
}

func TestAHumansCordonStays(t *testing.T) {
	s := newSite(t)
	g := s.group("", func(g *v1alpha1.NodeGroup) { g.Spec.IdleTimeout.Duration = time.Hour })
	first := s.request("first", 2, nil)
	s.condition(first, provreq.Provisioned, metav1.ConditionTrue)
	s.delete(first)
	s.eventually("both nodes are open", func() bool {
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
	if err := kube.Patch(t.Context(), &node, patch); err != nil {
		t.Fatal(err)
	}
	second := s.request("second", 2, func(r *provreq.ProvisioningRequest) { r.Spec.ProvisioningClassName = model.ClassCheckCapacity })
	if c := s.condition(second, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, "1 of the 2 pods") {
		t.Errorf("the request says: %s", c.Message)
	}
	if !s.get(&node) || !node.Spec.Unschedulable {
		t.Error("the human's cordon is gone")
	}
	s.delete(second)
	node.Spec.Unschedulable = false
	if err := kube.Update(t.Context(), &node); err != nil {
		t.Fatal(err)
	}
	s.idleAtOnce(g)
	s.empty(g.Name)
}

func TestDeletingTheRequestOfARunningGangStopsNothing(t *testing.T) {
	s := newSite(t)
	g := s.group("", nil)
	r := s.request("gang", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "gang"}}
	two := int32(2)
	j.Spec.Parallelism, j.Spec.Completions = &two, &two
	j.Spec.Template.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang", "kwok.muster.dev/run-for": "6s"}
	j.Spec.Template.Spec = s.podSpec()
	s.create(j)
	s.condition(r, provreq.BookingExpired, metav1.ConditionTrue)
	s.delete(r)
	s.complete(j)
	if j.Status.Failed != 0 {
		t.Errorf("%d pods failed", j.Status.Failed)
	}
	s.empty(g.Name)
}

func (s *site) nodes(group string) []corev1.Node {
	s.Helper()
	var nodes corev1.NodeList
	if err := kube.List(s.Context(), &nodes, client.MatchingLabels{v1alpha1.NodeGroupLabel: group}); err != nil {
		s.Fatal(err)
	}
	return nodes.Items
}

// idleAtOnce lets the group give back what is idle.
func (s *site) idleAtOnce(g *v1alpha1.NodeGroup) {
	s.Helper()
	patch := client.MergeFrom(g.DeepCopy())
	g.Spec.IdleTimeout = &metav1.Duration{}
	if err := kube.Patch(s.Context(), g, patch); err != nil {
		s.Fatal(err)
	}
}
