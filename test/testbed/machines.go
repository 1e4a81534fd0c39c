package testbed

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// GPU is the device that machines have eight of.
	GPU = corev1.ResourceName("nvidia.com/gpu")
	// SiteLabel keeps the pods of one site on its own nodes.
	SiteLabel = "e2e.muster.dev/site"
)

// GPUTaint keeps pods without GPU requests off the machines of groups.
var GPUTaint = corev1.Taint{Key: string(GPU), Effect: corev1.TaintEffectNoSchedule}

// Machine is 96 cores, 1 TiB and 8 GPUs.
func Machine() corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"), GPU: resource.MustParse("8")}
}

// WholeMachine returns the requests of a container that needs a whole machine.
func WholeMachine() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("8"), GPU: resource.MustParse("8")}}
}

// After is a duration as API objects have it.
func After(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// NewGroup creates a pool of eight machines of the site that boot in half a second and are scaled down when idle for one.
func (s *Site) NewGroup(suffix string, change func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.Name + suffix}}
	g.Spec = v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderKwok, MaxNodes: 8, CapacityType: v1alpha1.OnDemand, Zone: "zone-a",
		PricePerHour: new(resource.MustParse("98.32")),
		JoinTimeout:  After(90 * time.Second), IdleTimeout: After(time.Second),
		Template: v1alpha1.NodeTemplate{Labels: map[string]string{SiteLabel: s.Name}, Taints: []corev1.Taint{GPUTaint}, Capacity: Machine()},
		Kwok:     &v1alpha1.KwokPool{BootDelay: metav1.Duration{Duration: 500 * time.Millisecond}},
	}
	if change != nil {
		change(g)
	}
	return g
}

// Group creates a NewGroup.
func (s *Site) Group(suffix string, change func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	s.Helper()
	g := s.NewGroup(suffix, change)
	s.Create(g)
	return g
}

// Left names the machines of a group that have not ended, and its nodes.
func (s *Site) Left(group string) (names []string) {
	var machines kwokv1alpha1.MachineList
	var nodes corev1.NodeList
	if s.Kube.List(s.Context(), &machines) != nil || s.Kube.List(s.Context(), &nodes,
		client.MatchingLabels{v1alpha1.NodeGroupLabel: group}) != nil {
		return []string{"(the API server does not answer)"}
	}
	for _, m := range machines.Items {
		if m.Spec.Group == group && m.Status.Phase != kwokv1alpha1.MachineTerminated {
			names = append(names, "machine/"+m.Name)
		}
	}
	for _, n := range nodes.Items {
		names = append(names, "node/"+n.Name)
	}
	return names
}

// BreakDown ends the machine of a node as the cloud does when it takes a Spot machine back, and deletes the node.
func (s *Site) BreakDown(node string) {
	s.Helper()
	m := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if !s.Get(m) {
		s.Fatalf("machine %s is gone", node)
	}
	before := client.MergeFrom(m.DeepCopy())
	m.Status.Phase, m.Status.Reason, m.Status.TerminatedAt = kwokv1alpha1.MachineTerminated,
		kwokv1alpha1.ReasonSpotReclaimed, new(metav1.Now())
	if err := s.Kube.Status().Patch(s.Context(), m, before); err != nil {
		s.Fatal(err)
	}
	s.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
}

// podsOn names the pods on the nodes of a group, which keep them from being terminated.
func (s *Site) podsOn(group string) (names []string) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if s.Kube.List(s.Context(), &nodes, client.MatchingLabels{v1alpha1.NodeGroupLabel: group}) != nil ||
		s.Kube.List(s.Context(), &pods) != nil {
		return []string{"(the API server does not answer)"}
	}
	for _, p := range pods.Items {
		if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == p.Spec.NodeName }) {
			names = append(names, fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, p.Status.Phase))
		}
	}
	return names
}

// Empty waits until nothing of the groups is left.
func (s *Site) Empty(groups ...string) {
	s.Helper()
	for _, g := range groups {
		var left []string
		s.Eventually("no machine or node of group "+g, func() bool {
			left = s.Left(g)
			return len(left) == 0
		}, func() string { return fmt.Sprintf("left: %v, with the pods %v", left, s.podsOn(g)) })
	}
}
