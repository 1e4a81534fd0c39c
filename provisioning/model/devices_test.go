package model

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// byClaim adds a node without a device plugin, for which a driver publishes GPUs.
func byClaim(m *Model, v *version, change ...func(*resourcev1.ResourceSlice)) {
	m.Set(v.node(func(n *corev1.Node) { delete(n.Status.Allocatable, gpu) }))
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
	class.Spec.ExtendedResourceName = new(string(gpu))
	m.Set(class)
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n-gpus", ResourceVersion: v.next()}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: new("n"),
		Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1}}
	for i := range 8 {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	for _, c := range change {
		c(s)
	}
	m.Set(s)
}

// claim returns a pod's claim for GPUs, with the given ones allocated.
func (v *version) claim(pod types.UID, count int64, allocated ...int) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim-of-" + string(pod),
		ResourceVersion: v.next()}}
	c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: pod, Controller: new(true)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu",
		Count: count}}}
	for _, i := range allocated {
		if c.Status.Allocation == nil {
			c.Status.Allocation = &resourcev1.AllocationResult{}
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Driver: "gpu.example.com", Pool: "n", Device: fmt.Sprintf("gpu-%d", i)})
	}
	return c
}

func TestDevicesThatAreClaimedAreTaken(t *testing.T) {
	m, v := newModel()
	byClaim(m, v)
	want := func(allocatable, free int64) {
		t.Helper()
		n := only(t, m)
		if n.Allocatable[gpu] != allocatable || n.Free[gpu] != free {
			t.Errorf("%d of %d GPUs are free, want %d of %d", n.Free[gpu], n.Allocatable[gpu], free, allocatable)
		}
		if pods, _ := n.Claimable.Allocate(&fit.Claims{Key: "one", Extended: []fit.ExtendedRequest{{Resource: gpu, Class: "gpu",
			Count: 1}}}, 20); int64(pods) != free {
			t.Errorf("%d GPUs can be claimed, want %d", pods, free)
		}
	}
	want(8, 8)
	m.Set(v.claim("p", 2))
	want(8, 8)
	m.Set(v.claim("p", 2, 0, 1))
	want(8, 6)
	m.Set(v.pod("p", "n", 0)) // it takes what its claim has
	want(8, 6)
	// A pod that requests the class by its extended resource gets its claim from the scheduler.
	m.Set(v.pod("q", "n", 3))
	of := v.claim("q", 3, 4, 5, 6)
	of.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	m.Set(of)
	want(8, 3)
	m.Delete(of)
	m.Delete(v.pod("q", "n", 3))
	want(8, 6)
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken", ResourceVersion: v.next()}}
	rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{Device: new("gpu-7")}
	rule.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoSchedule
	m.Set(rule)
	want(7, 5)
	m.Delete(rule)
	want(8, 6)
}

// The pods that claim what was booked for them consume the booking, even if their claims arrive after them.
func TestClaimsConsumeBookings(t *testing.T) {
	for _, claimFirst := range []bool{true, false} {
		m, v := newModel()
		m.Set(v.request("gang", "Accepted", "Provisioned"))
		byClaim(m, v)
		m.Set(v.node(booked, func(n *corev1.Node) { delete(n.Status.Allocatable, gpu) }))
		if claimFirst {
			m.Set(v.claim("p", 3, 0, 1, 2))
		}
		m.Set(v.pod("p", "n", 0, consumes))
		if !claimFirst {
			m.Set(v.claim("p", 3, 0, 1, 2))
		}
		n := only(t, m)
		if b := n.BookingOf("gang"); b == nil || b.Remaining[gpu] != 5 || len(b.Came) != 1 || b.Came[0][gpu] != 3 {
			t.Errorf("claim first %t: booking %+v, want 5 of 8 GPUs left", claimFirst, b)
		}
	}
}

// kube-scheduler writes the claims of a pod before it binds the pod: until then the devices that are booked for it count once.
func TestClaimsOfPodsThatComeConsumeNoDevicesTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		claims  int
		booked  int64
		another bool
		want    int64 // free beside the booking
	}{
		"one pod of two":             {1, 8, false, 0},
		"both pods":                  {2, 8, false, 0},
		"a pod of another gang":      {1, 4, true, 0},
		"more pods than were booked": {2, 4, false, 0},
		"a part is booked":           {1, 4, false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			m, v := newModel()
			m.Set(v.request("gang", "Accepted", "Provisioned"))
			byClaim(m, v)
			m.Set(v.node(booked, func(n *corev1.Node) {
				delete(n.Status.Allocatable, gpu)
				n.Annotations[state.BookingLabel("gang")] = state.Booking{UID: "gang", Since: noon,
					Booked: nodegroups.Resources{gpu: tc.booked}}.Encode()
			}))
			for i := range tc.claims {
				pod := types.UID(fmt.Sprint("p", i))
				m.Set(v.pod(string(pod), "", 0, func(p *corev1.Pod) {
					if !tc.another {
						consumes(p)
					}
				}))
				m.Set(v.claim(pod, 4, 4*i, 4*i+1, 4*i+2, 4*i+3))
			}
			n := only(t, m)
			if got := n.Unbooked()[gpu]; got != tc.want {
				t.Errorf("%d GPUs are free beside the booking, want %d (free %d, %+v)", got, tc.want, n.Free[gpu], n.Bookings)
			}
			if free := n.Claimable.Amounts()[gpu]; free != n.Free[gpu] {
				t.Errorf("%d GPUs can be claimed, and %d are free", free, n.Free[gpu])
			}
		})
	}
}

// A driver that restarts deletes its slices for a while.
func TestDevicesVanishForAWhile(t *testing.T) {
	m, v := newModel()
	byClaim(m, v)
	if n := only(t, m); n.Allocatable[gpu] != 8 {
		t.Fatal(n.Allocatable)
	}
	m.Delete(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n-gpus"}})
	if n := only(t, m); n.Allocatable[gpu] != 0 || !n.DevicesSince.Equal(noon) {
		t.Errorf("%v since %s", n.Allocatable, n.DevicesSince)
	}
}

// A pool counts once all of its slices are published; a complete and empty pool has no devices.
func TestPoolsAreWhole(t *testing.T) {
	for name, change := range map[string]func(*resourcev1.ResourceSlice){
		"one of two slices": func(s *resourcev1.ResourceSlice) { s.Spec.Pool.ResourceSliceCount = 2 },
		"no devices":        func(s *resourcev1.ResourceSlice) { s.Spec.Devices = nil },
		"of another node":   func(s *resourcev1.ResourceSlice) { s.Spec.NodeName = new("m") },
		"of all nodes":      func(s *resourcev1.ResourceSlice) { s.Spec.NodeName, s.Spec.AllNodes = nil, new(true) },
	} {
		m, v := newModel()
		byClaim(m, v, change)
		if n := only(t, m); n.Allocatable[gpu] != 0 {
			t.Errorf("%s: %v", name, n.Allocatable)
		}
	}
}

// planClaims plans five pods that claim two GPUs each. There are no nodes, and a group of up to ten machines.
func planClaims(class func(*resourcev1.DeviceClass), group func(*v1alpha1.NodeGroup)) planner.Verdict {
	return planClaimsOf(resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 2}, class, group)
}

// planClaimsOf is planClaims of another request.
func planClaimsOf(request resourcev1.ExactDeviceRequest, class func(*resourcev1.DeviceClass),
	group func(*v1alpha1.NodeGroup),
) planner.Verdict {
	m, v := newModel()
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
	class(c)
	m.Set(c)
	claims := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "two", ResourceVersion: v.next()}}
	request.AllocationMode = resourcev1.DeviceAllocationModeExactCount
	claims.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &request}}
	m.Set(claims)
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", ResourceVersion: v.next()}}
	g.Spec.MaxNodes, g.Spec.CapacityType = 10, v1alpha1.OnDemand
	g.Spec.Template.Capacity = capacity(0)
	group(g)
	m.Set(g)
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Name: "c"}}
	template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: new("two")}}
	s := m.Snapshot(noon)
	gang := state.Gang{Namespace: "ns", Name: "ns/gang", UID: "gang", PodSets: []state.PodSet{
		state.NewPodSet("ns", "workers", 5, template, s.Objects)}}
	return planner.Plan(s, gang, state.DefaultPolicy(state.AtomicScaleUp))
}

// A gang that claims devices is launched from zero if the group declares them or has learned them.
func TestClaimsAreLaunched(t *testing.T) {
	pools := []v1alpha1.DevicePool{{Driver: "gpu.example.com", Devices: []v1alpha1.Device{{Name: "gpu-", Count: 4}}}}
	for name, change := range map[string]func(*v1alpha1.NodeGroup){
		"declared": func(g *v1alpha1.NodeGroup) { g.Spec.Template.Devices = pools },
		"learned": func(g *v1alpha1.NodeGroup) {
			g.Status.Shape = nodegroups.LearnShape(nil, g.Spec.Template, []nodegroups.SeenNode{{Name: "m",
				Allocatable: nodegroups.Resources{"cpu": 8000,
					"memory": 8, "pods": 10}, Devices: pools, Registered: noon.Add(-1e12)}}, noon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planClaims(func(c *resourcev1.DeviceClass) { c.Spec.ExtendedResourceName = new(string(gpu)) },
				func(g *v1alpha1.NodeGroup) {
					delete(g.Spec.Template.Capacity, gpu)
					change(g)
				})
			if plan.Outcome != planner.Launch || len(plan.Launches) != 1 || plan.Launches[0].Count != 3 {
				t.Errorf("%s %v: %s; want 3 machines of 4 GPUs for 5 pods of 2", plan.Outcome, plan.Launches, plan.Message())
			}
		})
	}
}

// A device that pods share counts as often as its capacity allows.
func TestSharedDevicesAreLaunched(t *testing.T) {
	type amounts = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity
	device := v1alpha1.Device{Name: "gpu", AllowMultipleAllocations: true, Capacity: amounts{"memory": {Value: resource.MustParse("80Gi")}}}
	request := resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 1, Capacity: &resourcev1.CapacityRequirements{
		Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("20Gi")}}}
	plan := planClaimsOf(request, func(*resourcev1.DeviceClass) {}, func(g *v1alpha1.NodeGroup) {
		g.Spec.Template.Devices = []v1alpha1.DevicePool{{Driver: "gpu.example.com", Devices: []v1alpha1.Device{device}}}
	})
	if plan.Outcome != planner.Launch || len(plan.Launches) != 1 || plan.Launches[0].Count != 2 {
		t.Errorf("%s %v: %s; want 2 machines of 80Gi for 5 pods of 20Gi", plan.Outcome, plan.Launches, plan.Message())
	}
}

// A group without declared devices may have some: a gang that claims them waits, with a reason.
func TestClaimsThatNoGroupDeclaresWait(t *testing.T) {
	plan := planClaims(func(*resourcev1.DeviceClass) {}, func(*v1alpha1.NodeGroup) {})
	if plan.Outcome != planner.Wait {
		t.Errorf("%s: %s", plan.Outcome, plan.Message())
	}
}

// A gang that must be in one rack gets the one that has its devices: the claims are allocated on each node of a domain.
func TestClaimsAreAllocatedInDomains(t *testing.T) {
	m, v := newModel()
	m.Set(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}})
	claims := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pair", ResourceVersion: v.next()}}
	claims.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}}}
	claims.Spec.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{
		MatchAttribute: new(resourcev1.FullyQualifiedName("example.com/numa"))}}
	m.Set(claims)
	// Each node has four GPUs. Only in rack b are two of them on each side.
	for rack, onOneSide := range map[string]int{"a": 1, "b": 2} {
		for _, name := range []string{rack + "-1", rack + "-2"} {
			m.Set(v.node(func(n *corev1.Node) {
				delete(n.Status.Allocatable, gpu)
				n.Name, n.Labels = name, map[string]string{"rack": rack}
			}))
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "of-" + name, ResourceVersion: v.next()}}
			s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &name,
				Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}
			for i := range 4 {
				side := "far"
				if i < onOneSide {
					side = "near"
				}
				s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i),
					Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"example.com/numa": {StringValue: &side}}})
			}
			m.Set(s)
		}
	}
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Name: "c"}}
	template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: new("pair")}}
	policy := state.DefaultPolicy(state.AtomicScaleUp)
	policy.Topology = "rack"
	for pods, want := range map[int]planner.Outcome{4: planner.Fits, 5: planner.Wait} {
		snapshot := m.Snapshot(noon)
		plan := planner.Plan(snapshot, state.Gang{Namespace: "ns", Name: "ns/gang", UID: "gang", PodSets: []state.PodSet{
			state.NewPodSet("ns", "workers", pods, template, snapshot.Objects)}}, policy)
		if plan.Outcome != want {
			t.Errorf("%d pods: %s: %s, want %s", pods, plan.Outcome, plan.Message(), want)
		}
		for _, at := range plan.Placement {
			if node := snapshot.Nodes.Find(at.Node); node.Labels["rack"] != "b" {
				t.Errorf("%d pods: node %s is in rack %s, want b", pods, at.Node, node.Labels["rack"])
			}
		}
	}
}
