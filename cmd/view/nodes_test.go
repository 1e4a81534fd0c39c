package view

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestNodesHaveTheirDevicesByClass: those of claims, under the extended resource of their DeviceClass or its implicit name. A device that
// pods share is one.
func TestNodesHaveTheirDevicesByClass(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Allocatable = corev1.ResourceList{"example.com/nic": resource.MustParse("2")}
	objects := []client.Object{node}
	for name, extended := range map[string]*string{"gpu": new("example.com/gpu"), "share": nil} {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		class.Spec.ExtendedResourceName = extended
		class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: "device.driver == '" + name + ".example.com'"}}}
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: name + ".example.com", NodeName: new("n"),
			Pool:    resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].AllowMultipleAllocations = new(name == "share")
		}
		if name == "gpu" {
			slice.Spec.Devices[2].Taints = []resourcev1.DeviceTaint{{Key: "gpu.example.com/xid", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		objects = append(objects, class, slice)
	}
	p := New(clock.RealClock{}, DefaultSettings(), &Reading{Objects: objects})
	want := []NodeDevices{
		{Resource: "deviceclass.resource.kubernetes.io/share", Capacity: 3, Free: 3}, {Resource: "example.com/gpu", Capacity: 2, Free: 2},
		{Resource: "example.com/nic", Capacity: 2, Free: 2},
	}
	if nodes := p.NodesIn("").Nodes; len(nodes) != 1 || !slices.Equal(nodes[0].Devices, want) {
		t.Errorf("the nodes are %+v, want one with %+v", nodes, want)
	} else if want := "claims without a toleration get no device c (taint gpu.example.com/xid)"; nodes[0].Words != want {
		t.Errorf("the node is %q, want %q", nodes[0].Words, want)
	}
}
