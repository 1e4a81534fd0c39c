package nodegroups

import (
	"fmt"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// inSlice is the maximum number of devices in one ResourceSlice, for devices of every type.
const inSlice = 64

// ResourceSlices returns the slices that drivers publish for a machine with these pools, with placeholders as names of node, pool
// and slice.
func ResourceSlices(pools []v1alpha1.DevicePool) (out []*resourcev1.ResourceSlice) {
	for i := range pools {
		p := &pools[i]
		of := []*resourcev1.ResourceSlice{}
		slice := func() *resourcev1.ResourceSlice {
			node := "node"
			s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: p.Driver, NodeName: &node}}
			s.Name = fmt.Sprintf("pool-%03d-%03d", i, len(of))
			of = append(of, s)
			return s
		}
		if len(p.SharedCounters) > 0 {
			slice().Spec.SharedCounters = p.SharedCounters
		}
		var devices []resourcev1.Device
		for k := range p.Devices {
			devices = append(devices, expanded(&p.Devices[k])...)
		}
		for ; len(devices) > 0; devices = devices[min(inSlice, len(devices)):] {
			slice().Spec.Devices = devices[:min(inSlice, len(devices))]
		}
		for _, s := range of {
			s.Spec.Pool = resourcev1.ResourcePool{Name: fmt.Sprintf("pool-%03d", i), Generation: 1, ResourceSliceCount: int64(len(of))}
		}
		out = append(out, of...)
	}
	return out
}

// DevicesOf returns the devices that drivers are expected to publish for machines of a group: what its nodes have published, otherwise
// what its template declares.
func DevicesOf(g *v1alpha1.NodeGroup) []v1alpha1.DevicePool {
	if s := g.Status.Shape; s != nil && len(s.Devices) > 0 && IsShapeOf(s, g.Spec.Template) {
		return s.Devices
	}
	return g.Spec.Template.Devices
}

// expanded returns the devices that one entry describes.
func expanded(d *v1alpha1.Device) (out []resourcev1.Device) {
	for n := range max(1, d.Count) {
		name := d.Name
		if d.Count > 1 {
			name += strconv.Itoa(int(n))
		}
		device := resourcev1.Device{Name: name, Attributes: d.Attributes, Capacity: d.Capacity, ConsumesCounters: d.ConsumesCounters}
		if d.AllowMultipleAllocations {
			device.AllowMultipleAllocations = &d.AllowMultipleAllocations
		}
		out = append(out, device)
	}
	return out
}
