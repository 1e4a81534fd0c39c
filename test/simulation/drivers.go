package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// deviceKinds are the kinds of dynamic resource allocation. Only scenarios with claims have informers for them.
var deviceKinds = []client.Object{
	&resourcev1.DeviceClass{}, &resourcev1.ResourceSlice{}, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimTemplate{},
	&resourcev1.DeviceTaintRule{},
}

// driverFault is what goes wrong with the devices of a node.
type driverFault string

const (
	// emptyPool is complete and contains no devices.
	emptyPool driverFault = "empty"
	// shortPool lacks one device.
	shortPool driverFault = "short"
	// taintedDevice gets its taint some time after it was published.
	taintedDevice driverFault = "tainted"
	// newGeneration publishes all slices again, one after another.
	newGeneration driverFault = "new generation"
	// twoBooks has a device plugin beside the driver offer the same devices.
	twoBooks driverFault = "two books"
)

// driverFaultAnnotation contains the driverFault of a node, and faultAfterAnnotation how long after the first slice it happens.
const (
	driverFaultAnnotation = "simulation/driver-fault"
	faultAfterAnnotation  = "simulation/driver-fault-after"
)

// drawDriverFault may give a node that registers a fault of its group's driver.
func (w *world) drawDriverFault(n *corev1.Node) {
	of := w.drivers[n.Labels[v1alpha1.NodeGroupLabel]]
	if len(of) == 0 || n.Annotations[kwokv1alpha1.ClaimableAnnotation] == "" || w.random.IntN(2) == 0 {
		return
	}
	fault := of[w.random.IntN(len(of))]
	w.feature("driver fault " + string(fault))
	n.Annotations[driverFaultAnnotation] = string(fault)
	n.Annotations[faultAfterAnnotation] = (time.Duration(w.random.IntN(60)) * time.Second).String()
	if fault == twoBooks {
		n.Status.Capacity[gpu], n.Status.Allocatable[gpu] = gpuMachine[gpu], gpuMachine[gpu]
	}
}

// slicesOn returns the slices of a node in the order of their names.
func (w *world) slicesOn(node string) (out []*resourcev1.ResourceSlice) {
	for _, s := range all[*resourcev1.ResourceSlice](w.store) {
		if *s.Spec.NodeName == node {
			out = append(out, s)
		}
	}
	return out
}

// offerDriver is what the DRA drivers of a node do: they publish its pools slice by slice.
func (w *world) offerDriver(n *corev1.Node, offer func(option)) {
	var c kwokv1alpha1.Claimable
	if json.Unmarshal([]byte(n.Annotations[kwokv1alpha1.ClaimableAnnotation]), &c) != nil || !ready(n) {
		return
	}
	published := w.slicesOn(n.Name)
	fault := driverFault(n.Annotations[driverFaultAnnotation])
	vanished := n.Annotations[kwokv1alpha1.VanishedAnnotation]
	if vanished == "true" {
		if len(published) == 0 {
			w.offerReturn(n, &c, offer)
		}
		return
	}
	generation := int64(1)
	if vanished == "over" {
		generation = 2
	}
	at := n.Status.Conditions[0].LastTransitionTime.Add(c.Delay.Duration)
	complete := true
	for _, s := range slicesOf(n, &c, fault, generation) {
		if find[*resourcev1.ResourceSlice](w.store, "", s.Name) == nil {
			complete = false
			offer(option{key: "a driver publishes slice " + s.Name, at: at, within: agentTime, do: func() { w.create(s) }})
		}
	}
	if !complete {
		return
	}
	first := published[0].CreationTimestamp
	if c.Vanish != nil && vanished == "" {
		offer(option{key: "the slices of node " + n.Name + " vanish", at: first.Add(c.Vanish.After.Duration), within: kubeletTime, do: func() {
			w.feature("slices vanished")
			if slices.ContainsFunc(all[*corev1.Pod](w.store), func(p *corev1.Pod) bool {
				return p.Spec.NodeName == n.Name && !finished(p) && len(p.Spec.ResourceClaims) > 0
			}) {
				w.feature("slices vanished under pods")
			}
			for _, s := range w.slicesOn(n.Name) {
				_ = w.store.delete(s)
			}
			change(w.store, n, func(n *corev1.Node) { n.Annotations[kwokv1alpha1.VanishedAnnotation] = "true" })
		}})
	}
	after, _ := time.ParseDuration(n.Annotations[faultAfterAnnotation])
	switch fault {
	case taintedDevice:
		w.offerTaint(n, published, first.Add(after), offer)
	case newGeneration:
		w.offerGeneration(published, first.Add(after), offer)
	}
}

// offerReturn has the drivers of a node publish again.
func (w *world) offerReturn(n *corev1.Node, c *kwokv1alpha1.Claimable, offer func(option)) {
	at := n.Status.Conditions[0].LastTransitionTime.Add(c.Delay.Duration + c.Vanish.After.Duration + c.Vanish.For.Duration)
	offer(option{key: "the drivers of node " + n.Name + " are back", at: at, within: kubeletTime, do: func() {
		change(w.store, n, func(n *corev1.Node) { n.Annotations[kwokv1alpha1.VanishedAnnotation] = "over" })
	}})
}

// offerTaint taints the last device of a node.
func (w *world) offerTaint(n *corev1.Node, published []*resourcev1.ResourceSlice, at time.Time, offer func(option)) {
	last := published[len(published)-1]
	if len(last.Spec.Devices) == 0 || len(last.Spec.Devices[len(last.Spec.Devices)-1].Taints) > 0 {
		return
	}
	offer(option{key: "a device of node " + n.Name + " is tainted", at: at, within: agentTime, do: func() {
		w.feature("device tainted")
		change(w.store, last, func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[len(s.Spec.Devices)-1].Taints = []resourcev1.DeviceTaint{{Key: "gpu.nvidia.com/xid",
				Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		})
	}})
}

// offerGeneration brings the slices of a pool to the next generation one by one; until the last one the pool is incomplete.
func (w *world) offerGeneration(published []*resourcev1.ResourceSlice, at time.Time, offer func(option)) {
	const next = 10
	for _, s := range published {
		if s.Spec.Pool.Generation < next {
			offer(option{key: "slice " + s.Name + " has a new generation", at: at, within: kubeletTime, do: func() {
				w.feature("generation bumped")
				change(w.store, s, func(s *resourcev1.ResourceSlice) { s.Spec.Pool.Generation = next })
			}})
		}
	}
}

// slicesOf returns what the drivers of the node publish.
func slicesOf(n *corev1.Node, c *kwokv1alpha1.Claimable, fault driverFault, generation int64) []*resourcev1.ResourceSlice {
	out := nodegroups.ResourceSlices(c.Pools)
	for _, s := range out {
		s.Name = n.Name + "-" + s.Name
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
		s.Spec.NodeName = &n.Name
		s.Spec.Pool.Name, s.Spec.Pool.Generation = n.Name, generation
	}
	if last := out[len(out)-1]; fault == emptyPool {
		last.Spec.Devices = nil
	} else if fault == shortPool {
		last.Spec.Devices = last.Spec.Devices[:len(last.Spec.Devices)-1]
	}
	return out
}

// offerSlice collects a slice whose node is gone.
func (w *world) offerSlice(s *resourcev1.ResourceSlice, offer func(option)) {
	if n := find[*corev1.Node](w.store, "", *s.Spec.NodeName); n == nil || n.UID != s.OwnerReferences[0].UID {
		offer(option{key: "the collector takes slice " + s.Name, within: collectorTime, do: func() { _ = w.store.delete(s) }})
	}
}

// noteDevices records when devices of a node became fewer, or other pods got some of them.
func (w *world) noteDevices(o client.Object, deleted bool) {
	switch o := o.(type) {
	case *resourcev1.ResourceSlice:
		if deleted || o.Generation > 1 {
			w.worsened[*o.Spec.NodeName] = time.Now()
		}
	case *resourcev1.ResourceClaim:
		if a := o.Status.Allocation; a != nil && !deleted {
			w.feature("claim allocated")
			for i := range a.Devices.Results {
				w.worsened[a.Devices.Results[i].Pool] = time.Now() // a pool has the name of its node
			}
		}
	case *resourcev1.DeviceTaintRule:
		for _, n := range all[*corev1.Node](w.store) {
			w.worsened[n.Name] = time.Now()
		}
	}
}

// deviceInventories are what the machines of a group may have.
var deviceInventories = map[string][]v1alpha1.DevicePool{
	"four GPUs on two roots": {{Driver: gpuDriver, Devices: []v1alpha1.Device{
		twoGPUs("gpu-a", "A", "root-0"), twoGPUs("gpu-b", "A", "root-1"),
	}}},
	"two GPUs beside two others": {{Driver: gpuDriver, Devices: []v1alpha1.Device{
		twoGPUs("gpu-a", "A", "root-0"), twoGPUs("gpu-b", "B", "root-1"),
	}}},
	"two GPUs in partitions": {{Driver: gpuDriver, SharedCounters: []resourcev1.CounterSet{memoryOf("gpu-0", 4), memoryOf("gpu-1", 4)},
		Devices: slices.Concat(partitioned("gpu-0"), partitioned("gpu-1"))}},
}

const gpuDriver = "gpu.example.com"

// inventoryNames are the keys of deviceInventories in order.
var inventoryNames = slices.Sorted(maps.Keys(deviceInventories))

func twoGPUs(name, model, root string) v1alpha1.Device {
	return v1alpha1.Device{Name: name, Count: 2, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"kind": {StringValue: new("gpu")}, "model": {StringValue: &model}, "resource.kubernetes.io/pcieRoot": {StringValue: &root}}}
}

func memoryOf(set string, slices int64) resourcev1.CounterSet {
	return resourcev1.CounterSet{Name: set, Counters: map[string]resourcev1.Counter{"slices": {Value: quantity(slices)}}}
}

// partitioned returns a GPU of four slices, and its partitions of one and of two.
func partitioned(set string) []v1alpha1.Device {
	device := func(suffix, kind string, count int32, takes int64) v1alpha1.Device {
		return v1alpha1.Device{Name: set + suffix, Count: count, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"kind": {StringValue: &kind}, "model": {StringValue: new(fmt.Sprint(takes))},
		}, ConsumesCounters: []resourcev1.DeviceCounterConsumption{{CounterSet: set,
			Counters: map[string]resourcev1.Counter{"slices": {Value: quantity(takes)}}}}}
	}
	return []v1alpha1.Device{device("", "gpu", 1, 4), device("-small-", "part", 4, 1), device("-large-", "part", 2, 2)}
}
