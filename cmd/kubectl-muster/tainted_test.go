package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// claimable are a NodeGroup and its nodes of two GPUs by claim. The second GPU of each node has a taint by its driver, and the first of
// node n0 one by a DeviceTaintRule.
func claimable(nodes int) []client.Object {
	class := &resourcev1.DeviceClass{ObjectMeta: meta("gpu")}
	class.Namespace = ""
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: meta("repair")}
	rule.Namespace = ""
	rule.Spec.Taint = resourcev1.DeviceTaint{Key: "example.com/repair", Effect: resourcev1.DeviceTaintEffectNoExecute}
	rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{Pool: new("n0"), Device: new("a")}
	out := []client.Object{class, rule, group("h100", 8, func(g *v1alpha1.NodeGroup) {
		g.Spec.Template.Devices = []v1alpha1.DevicePool{{Driver: "gpu.example.com", Devices: []v1alpha1.Device{{Name: "a"}, {Name: "b"}}}}
	})}
	for i := range nodes {
		n := node(fmt.Sprintf("n%d", i), "h100")
		n.Labels[v1alpha1.NodeGroupLabel] = "h100"
		slice := &resourcev1.ResourceSlice{ObjectMeta: meta(n.Name)}
		slice.Namespace = ""
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &n.Name,
			Pool: resourcev1.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "a"}, {Name: "b",
				Taints: []resourcev1.DeviceTaint{{Key: "gpu.example.com/xid", Effect: resourcev1.DeviceTaintEffectNoSchedule}}}}}
		out = append(out, n, slice)
	}
	return out
}

// TestTaintedDevicesAreNamedAlike by nodes, capacity and explain, whether a driver or a DeviceTaintRule has put the taint.
func TestTaintedDevicesAreNamedAlike(t *testing.T) {
	const words = "claims without a toleration get no device a (taint example.com/repair), b (taint gpu.example.com/xid)"
	c := &fakeCluster{objects: claimable(6)}
	kube := c.client(t)
	o := &options{config: newConfigFlags(), clock: clocktesting.NewFakeClock(noon)}
	answerOf := func(a answer, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return printed(t, a)
	}
	p := pictureOf(nil, c.objects...)
	lacks(t, printed(t, nodes{p.NodesIn("")}), "node n0 is free: "+words)
	lacks(t, answerOf(o.capacityIn(t.Context(), kube, "default")),
		"node n0: "+words+"; node n1: claims without a toleration get no device b (",
		"; 2 nodes more with such devices: `kubectl muster nodes --group h100` names them")
	lacks(t, answerOf(o.explainNode(t.Context(), kube, "default", "n0")), "Node n0 is free, in NodeGroup h100.", "Why\n- "+words,
		"Devices free\n- 8 of 8 nvidia.com/gpu")
	lacks(t, answerOf(o.explainNode(t.Context(), kube, "default", "n1")), "Devices free\n- 1 of 1 deviceclass.resource.kubernetes.io/gpu")
	if _, err := o.explainNode(t.Context(), kube, "default", "m"); err == nil || !strings.Contains(err.Error(), `node "m" does not exist`) {
		t.Errorf("a node that does not exist: %v", err)
	}
}

// TestCapacitySaysThatItMayNotReadDevices, to a caller that may read the NodeGroups and no slices, if there are devices at all.
func TestCapacitySaysThatItMayNotReadDevices(t *testing.T) {
	o := &options{config: newConfigFlags(), clock: clocktesting.NewFakeClock(noon)}
	for said, objects := range map[bool][]client.Object{true: claimable(1), false: {group("h100", 8, nil)}} {
		kube := interceptor.NewClient((&fakeCluster{objects: objects}).client(t).(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, kube client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if _, ok := l.(*resourcev1.ResourceSliceList); ok {
					return apierrors.NewForbidden(resourcev1.Resource("resourceslices"), "", nil)
				}
				return kube.List(ctx, l, opts...)
			},
		})
		a, err := o.capacityIn(t.Context(), kube, "default")
		if err != nil {
			t.Fatal(err)
		}
		text := printed(t, a)
		lacks(t, text, "h100 OnDemand 10.00 0 of 8")
		if got := strings.Contains(text, "Missing rights: devices with a taint are not among the troubles"); got != said {
			t.Errorf("the missing right is named: %t, want %t:\n%s", got, said, text)
		}
	}
}
