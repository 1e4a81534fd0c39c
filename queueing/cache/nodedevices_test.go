package cache

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	catalog "github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/config"
)

// onOneNode is a Cache with a flavor that has a Topology, one node and three DeviceClasses: of GPUs, of large GPUs and of all else.
func onOneNode(t *testing.T) counted {
	t.Helper()
	s := counted{New(config.Config{}), t}
	s.CountWith(catalog.NewSelectors())
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}
	s.Set(topology)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}}
	flavor.Spec.TopologyName = new(kueue.TopologyReference("hosts"))
	s.Set(flavor)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelHostname: "n"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Allocatable = corev1.ResourceList{"example.com/nic": resource.MustParse("4")}
	s.Set(node)
	for _, class := range unmarshal[[]resourcev1.DeviceClass](t, `
- {metadata: {name: gpu}, spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}}
- {metadata: {name: large}, spec: {selectors: [{cel: {expression: "device.attributes['gpu.example.com'].model == 'l'"}}]}}
- {metadata: {name: nic}, spec: {extendedResourceName: example.com/nic, selectors: [{cel: {expression: "device.driver == 'nic.example.com'"}}]}}
`) {
		s.Set(class.DeepCopy())
	}
	s.Rebuild()
	return s
}

// free compares the free devices of the node.
func (s counted) free(want nodegroups.Resources) {
	s.t.Helper()
	s.RefreshDevices()
	got := s.Nodes.Occupancy("spot")[0].Free
	maps.DeleteFunc(got, func(_ corev1.ResourceName, n int64) bool { return n == 0 })
	if !maps.Equal(got, want) {
		s.t.Errorf("free are %v, want %v", got, want)
	}
}

// TestDevicesCountOnTheirNode in each class that has them.
func TestDevicesCountOnTheirNode(t *testing.T) {
	const large = "deviceclass.resource.kubernetes.io/large"
	for name, c := range map[string]struct {
		devices string
		of      int64
		want    nodegroups.Resources
	}{
		"of one class":      {devices: "[{name: a}, {name: b}]", of: 1, want: nodegroups.Resources{"example.com/gpu": 2, "example.com/nic": 4}},
		"of two":            {devices: "[{name: a}, {name: b, attributes: {gpu.example.com/model: {string: l}}}]", of: 1, want: nodegroups.Resources{"example.com/gpu": 2, large: 1, "example.com/nic": 4}},
		"with a taint":      {devices: "[{name: a}, {name: b, taints: [{key: lost, effect: NoExecute}]}]", of: 1, want: nodegroups.Resources{"example.com/gpu": 1, "example.com/nic": 4}},
		"with a dry taint":  {devices: "[{name: a}, {name: b, taints: [{key: lost, effect: None}]}]", of: 1, want: nodegroups.Resources{"example.com/gpu": 2, "example.com/nic": 4}},
		"that pods share":   {devices: "[{name: a, allowMultipleAllocations: true}]", of: 1, want: nodegroups.Resources{"example.com/gpu": fit.SharesOfDevice, "example.com/nic": 4}},
		"of part of a pool": {devices: "[{name: a}, {name: b}]", of: 2, want: nodegroups.Resources{"example.com/nic": 4}},
	} {
		t.Run(name, func(t *testing.T) {
			s := onOneNode(t)
			s.Set(s.slice("a", "n", 1, c.of, c.devices))
			s.free(c.want)
		})
	}
}

// TestDevicesOnNodesFollow their slices, their classes, and the pods that claim them.
func TestDevicesOnNodesFollow(t *testing.T) {
	s := onOneNode(t)
	gpus := func(n int64) nodegroups.Resources {
		return nodegroups.Resources{"example.com/gpu": n, "example.com/nic": 4}
	}
	s.free(nodegroups.Resources{"example.com/nic": 4})
	s.Nodes.NodeChanged()
	s.Set(s.slice("a", "n", 1, 1, "[{name: a}, {name: b}, {name: c}, {name: d}]"))
	s.free(gpus(4))
	if !s.Nodes.CapacityFreed() || !s.Nodes.NodeChanged() {
		t.Error("what waits for devices is not evaluated again")
	}
	booked := s.Nodes.ForNodes(func(*corev1.Node) ([]nodegroups.Resources, bool) {
		return []nodegroups.Resources{{"example.com/gpu": 1}}, true
	})
	if got := booked.Occupancy("spot")[0].Free["example.com/gpu"]; got != 3 {
		t.Errorf("a booked node has %d GPUs, want 3: 4 without the one that another booking holds", got)
	}
	nics := s.slice("nics", "n", 1, 1, "[{name: a}]")
	nics.Spec.Driver = "nic.example.com"
	s.Set(nics)
	s.free(gpus(4)) // a device plugin offers them

	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}}
	template.Spec.Spec.Devices = unmarshal[resourcev1.DeviceClaim](t, request("gpu", "count: 2"))
	s.Set(template)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "p"}}
	pod.Spec.NodeName = "n"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: new("c")}}
	list := corev1.ResourceList{"deviceclass.resource.kubernetes.io/gpu": resource.MustParse("1")}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
	s.Set(pod)
	s.free(gpus(1))
	copied := counted{s.WithoutWorkloads(), t}
	copied.Rebuild()
	copied.free(gpus(1))
	s.Delete(pod)

	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	s.Set(class) // without an extended resource, and of all drivers
	s.free(nodegroups.Resources{"deviceclass.resource.kubernetes.io/gpu": 5, "example.com/nic": 4})
	s.Delete(s.slice("a", "n", 1, 1, "[]"))
	s.free(nodegroups.Resources{"deviceclass.resource.kubernetes.io/gpu": 1, "example.com/nic": 4})
	s.ForgetNodes()
	if len(s.devices.byNode)+len(s.devices.outdated) > 0 {
		t.Error("devices are left of nodes that are forgotten")
	}
}
