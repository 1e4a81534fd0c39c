package devices

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// mostDescribed limits the size of a description in bytes: it is stored in the status of a NodeGroup.
const mostDescribed = 64 << 10

// Describe implements fit.Devices. It omits taints, because the next machine starts without them.
func (i *inventory) Describe() []v1alpha1.DevicePool {
	i.describing.Do(func() { i.description = i.describe() })
	return i.description
}

func (i *inventory) describe() (out []v1alpha1.DevicePool) {
	if len(i.unpublished) > 0 {
		return nil
	}
	values := map[string]int{}
	for _, s := range i.slices {
		countIdentities(values, s.Spec.Devices)
	}
	last, devices := "", 0
	for _, s := range i.slices {
		if s.Spec.Pool.Name != last {
			last = s.Spec.Pool.Name
			out = append(out, v1alpha1.DevicePool{Driver: s.Spec.Driver})
		}
		pool := &out[len(out)-1]
		pool.SharedCounters = append(pool.SharedCounters, s.Spec.SharedCounters...)
		for k := range s.Spec.Devices {
			devices++
			pool.Devices = join(pool.Devices, described(&s.Spec.Devices[k], values))
		}
	}
	text, err := json.Marshal(out)
	if err != nil || devices == 0 || len(text) > mostDescribed {
		return nil
	}
	return out
}

// described returns the description of one device, without identifying values that no other device shares.
func described(d *resourcev1.Device, values map[string]int) v1alpha1.Device {
	out := v1alpha1.Device{Name: d.Name, Count: 1, Capacity: d.Capacity, ConsumesCounters: d.ConsumesCounters,
		AllowMultipleAllocations: ptr.Deref(d.AllowMultipleAllocations, false)}
	for key, a := range d.Attributes {
		if isOwn(key, a, values) {
			continue
		}
		if out.Attributes == nil {
			out.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
		}
		out.Attributes[key] = a
	}
	return out
}

// join appends a device. If it equals the last entry except for the next number in its name, it increments that entry's count
// instead.
func join(devices []v1alpha1.Device, d v1alpha1.Device) []v1alpha1.Device {
	if len(devices) > 0 {
		last := &devices[len(devices)-1]
		prefix, one := last.Name, last.Count == 1
		if one {
			prefix = strings.TrimSuffix(last.Name, "0")
		}
		like := d
		like.Name, like.Count = last.Name, last.Count
		if (!one || prefix != last.Name) && prefix != "" && d.Name == fmt.Sprintf("%s%d", prefix, last.Count) && reflect.DeepEqual(like,
			*last) {
			last.Name = prefix
			last.Count++
			return devices
		}
	}
	return append(devices, d)
}
