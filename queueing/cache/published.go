package cache

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Selectors evaluates the selectors of devices.
type Selectors interface {
	// Matches reports whether a device of the driver satisfies all selectors. It returns the error of the first selector that cannot be
	// evaluated on the device.
	Matches(selectors []resourcev1.DeviceSelector, driver string, d *resourcev1.Device) (bool, error)
}

// published are the devices of the drivers that sources of resources.deviceClassMappings name: those in complete pools of the cluster,
// and those that the next machine of each NodeGroup is expected to have. Devices that differ only in what identifies them are one kind.
type published struct {
	selectors Selectors
	// slices maps the name of each ResourceSlice to it. Pools indexes them; its lists are never modified.
	slices map[string]*resourcev1.ResourceSlice
	pools  map[pool][]*resourcev1.ResourceSlice
	groups map[string][]v1alpha1.DevicePool
	kinds  map[string]deviceKind
	// charges caches what requests are charged.
	charges map[string]sourceCharge
	// numbers and content report a change of the number of devices of a kind, and of the set of kinds, since Workloads were last read.
	numbers, content bool
}

// pool identifies a pool of devices.
type pool struct{ driver, name string }

// deviceKind is a number of devices that are equal but for what identifies them.
type deviceKind struct {
	driver string
	device resourcev1.Device
	n      int64
}

func newPublished() published {
	return published{
		slices: map[string]*resourcev1.ResourceSlice{}, pools: map[pool][]*resourcev1.ResourceSlice{},
		groups: map[string][]v1alpha1.DevicePool{}, kinds: map[string]deviceKind{}, charges: map[string]sourceCharge{},
	}
}

func (p *published) clone() published {
	out := *p
	out.slices, out.pools, out.groups, out.kinds = maps.Clone(p.slices), maps.Clone(p.pools), maps.Clone(p.groups), maps.Clone(p.kinds)
	out.charges = map[string]sourceCharge{}
	return out
}

// CountWith sets what evaluates the selectors of sources. Without sources none is needed.
func (s *Cache) CountWith(selectors Selectors) { s.devices.selectors = selectors }

// setSlice stores a ResourceSlice, or removes a deleted one.
func (s *Cache) setSlice(o *resourcev1.ResourceSlice, deleted bool) {
	s.devices.setNodeSlice(o, deleted)
	p := &s.devices.published
	if old := p.slices[o.Name]; old != nil {
		delete(p.slices, o.Name)
		id := pool{old.Spec.Driver, old.Spec.Pool.Name}
		p.setPool(id, slices.DeleteFunc(slices.Clone(p.pools[id]), func(x *resourcev1.ResourceSlice) bool { return x.Name == o.Name }))
	}
	if deleted || !s.isSource(o.Spec.Driver) {
		return
	}
	p.slices[o.Name] = o
	id := pool{o.Spec.Driver, o.Spec.Pool.Name}
	p.setPool(id, append(slices.Clone(p.pools[id]), o))
}

func (p *published) setPool(id pool, now []*resourcev1.ResourceSlice) {
	// The new devices are added first, so that kinds which stay are never gone.
	p.add(complete(now), +1)
	p.add(complete(p.pools[id]), -1)
	p.pools[id] = now
	if len(now) == 0 {
		delete(p.pools, id)
	}
}

// complete returns the slices of the newest generation of a pool, or none if some are missing.
func complete(all []*resourcev1.ResourceSlice) (out []*resourcev1.ResourceSlice) {
	out = fit.NewestOf(all)
	if len(out) == 0 || int64(len(out)) != out[0].Spec.Pool.ResourceSliceCount {
		return nil
	}
	return out
}

// setGroup stores the devices of a NodeGroup, or removes those of a deleted one.
func (s *Cache) setGroup(o *v1alpha1.NodeGroup, deleted bool) {
	p := &s.devices.published
	var now []v1alpha1.DevicePool
	if !deleted {
		now = slices.DeleteFunc(slices.Clone(nodegroups.DevicesOf(o)), func(x v1alpha1.DevicePool) bool { return !s.isSource(x.Driver) })
	}
	if equality.Semantic.DeepEqual(now, p.groups[o.Name]) {
		return // most changes of a NodeGroup are in other fields
	}
	p.add(nodegroups.ResourceSlices(now), +1)
	p.add(nodegroups.ResourceSlices(p.groups[o.Name]), -1)
	p.groups[o.Name] = now
	if len(now) == 0 {
		delete(p.groups, o.Name)
	}
}

// add counts the devices of slices n times, which may be negative.
func (p *published) add(of []*resourcev1.ResourceSlice, n int64) {
	for _, s := range of {
		for i := range s.Spec.Devices {
			device := withoutIdentity(&s.Spec.Devices[i])
			key := kindKey(s.Spec.Driver, &device)
			kind, known := p.kinds[key]
			kind = deviceKind{s.Spec.Driver, device, kind.n + n}
			p.kinds[key] = kind
			if kind.n == 0 {
				delete(p.kinds, key)
			}
			p.numbers, p.content = true, p.content || !known || kind.n == 0
		}
	}
	clear(p.charges)
}

// kindKey is equal for devices of one kind. The device is one without identity.
func kindKey(driver string, d *resourcev1.Device) string {
	text, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("a device cannot be marshalled: %v", err)) // it came as JSON
	}
	return driver + " " + string(text)
}

// withoutIdentity returns what selectors and sources read of a device.
func withoutIdentity(d *resourcev1.Device) resourcev1.Device {
	out := resourcev1.Device{Attributes: maps.Clone(d.Attributes), Capacity: d.Capacity, AllowMultipleAllocations: d.AllowMultipleAllocations}
	maps.DeleteFunc(out.Attributes, func(name resourcev1.QualifiedName, _ resourcev1.DeviceAttribute) bool { return fit.IsIdentity(name) })
	for _, c := range d.ConsumesCounters {
		// Each device that can be partitioned names a counter set of its own.
		out.ConsumesCounters = append(out.ConsumesCounters, resourcev1.DeviceCounterConsumption{Counters: c.Counters})
	}
	return out
}

// RereadDevices recomputes the requests of the Workloads that sources count, if the devices have changed. A change in numbers matters
// only to those that lacked devices.
func (s *Cache) RereadDevices() {
	p := &s.devices.published
	if !p.numbers {
		return
	}
	content := p.content
	p.numbers, p.content = false, false
	s.rereadPods(func(w *Workload) bool { return w.sourced && (content || len(w.refusedClaims) > 0) })
}
