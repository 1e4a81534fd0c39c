// Package devices allocates claims of devices on a node, or on a machine that may be launched, with the allocator of
// kube-scheduler itself. What nodes publish is kept once for all nodes that publish the same, and what was allocated of it is
// remembered: a plan asks for many nodes, and few of them differ.
package devices

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Catalog has the inventories that nodes publish, as the DeviceClasses of one time see them. It is safe for use by many
// goroutines.
type Catalog struct {
	fit.Classes
	// names of the classes, in order, and the resource by which each is counted.
	names   []string
	amounts map[string]corev1.ResourceName
	cel     *cel.Cache

	mu          sync.Mutex
	inventories map[string]*inventory
}

// mostInventories are kept at most, and mostExpressions of CEL. More are worked out again.
const (
	mostInventories = 4096
	mostExpressions = 256
)

// NewCatalog is the catalog of these classes. They must not be changed later.
func NewCatalog(classes iter.Seq[*resourcev1.DeviceClass]) *Catalog {
	c := &Catalog{
		Classes: fit.NewClasses(classes), amounts: map[string]corev1.ResourceName{}, inventories: map[string]*inventory{},
		cel: cel.NewCache(mostExpressions, cel.Features{EnableConsumableCapacity: true}),
	}
	c.names = c.Names()
	for _, name := range c.names {
		c.amounts[name] = c.AmountName(c.Class(name))
	}
	return c
}

// List and Get make the catalog a lister of classes for the allocator.
func (c *Catalog) List() ([]*resourcev1.DeviceClass, error) {
	var out []*resourcev1.DeviceClass
	for _, name := range c.names {
		out = append(out, c.Class(name))
	}
	return out, nil
}

// Get returns the class of that name.
func (c *Catalog) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c.Class(name); class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}

// Offer is what a node publishes, or what a machine will.
type Offer struct {
	// Slices of the node. Those whose devices are not the node's alone are left out: other nodes may take them.
	Slices []*resourcev1.ResourceSlice
	// Rules are the DeviceTaintRules of the cluster.
	Rules []*resourcev1.DeviceTaintRule
	// Plugin are the amounts that device plugins offer on the node.
	Plugin nodegroups.Resources
}

// Publish reads the offer; it is nil where nothing is published.
func (c *Catalog) Publish(o Offer) *Published {
	i, pools := c.read(o)
	if i == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.inventories[i.key]
	if known == nil {
		if len(c.inventories) >= mostInventories {
			clear(c.inventories)
		}
		i.count()
		known = i
		c.inventories[i.key] = i
	}
	return &Published{known, pools}
}

// Published are the devices that a node publishes.
type Published struct {
	*inventory
	// pools have the names of the inventory by driver and name.
	pools map[Pool]string
}

// Pool is a pool of devices by its driver and name.
type Pool struct{ Driver, Name string }

// Pools are those that the node publishes.
func (p *Published) Pools() []Pool {
	return slices.Collect(maps.Keys(p.pools))
}

// All are the devices of which none is allocated.
func (p *Published) All() fit.Devices { return p.state(nil) }

// Without are the devices without those that were allocated. What was allocated of other nodes' pools counts for nothing.
func (p *Published) Without(allocated []resourcev1.DeviceRequestAllocationResult) fit.Devices {
	var taken []allocation
	for i := range allocated {
		r := &allocated[i]
		pool, ok := p.pools[Pool{r.Driver, r.Pool}]
		if ok && !ptr.Deref(r.AdminAccess, false) {
			taken = append(taken, allocation{r.Driver, pool, r.Device, consumed(r)})
		}
	}
	return p.state(taken)
}

// node is the name of the node in inventories, where nodes that publish the same are the same.
const node = "node"

// read makes an inventory of what the node publishes, without what tells it from nodes that are alike.
func (c *Catalog) read(o Offer) (*inventory, map[Pool]string) {
	i := &inventory{catalog: c, states: map[string]*state{}}
	pools := map[Pool][]*resourcev1.ResourceSlice{}
	for _, s := range o.Slices {
		if s.Spec.NodeName == nil {
			continue
		}
		id := Pool{s.Spec.Driver, s.Spec.Pool.Name}
		if of := pools[id]; len(of) > 0 && of[0].Spec.Pool.Generation != s.Spec.Pool.Generation {
			if of[0].Spec.Pool.Generation > s.Spec.Pool.Generation {
				continue
			}
			pools[id] = nil
		}
		pools[id] = append(pools[id], s)
	}
	if len(pools) == 0 {
		return nil, nil
	}
	names, values := map[Pool]string{}, map[string]string{}
	for n, id := range slices.SortedFunc(maps.Keys(pools), func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name))
	}) {
		slicesOf := pools[id]
		slices.SortFunc(slicesOf, func(a, b *resourcev1.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
		if want := slicesOf[0].Spec.Pool.ResourceSliceCount; int64(len(slicesOf)) != want {
			i.unpublished = append(i.unpublished, fmt.Sprintf("driver %s has published %d of the %d ResourceSlices of its pool", id.Driver,
				len(slicesOf), want))
		}
		pool := fmt.Sprintf("pool-%03d", n)
		names[id] = pool
		for k, s := range slicesOf {
			i.slices = append(i.slices, canonical(s, pool, k, o.Rules, values))
		}
	}
	i.plugin = c.plugged(o.Plugin)
	text, err := json.Marshal([]any{i.slices, i.plugin})
	if err != nil {
		panic(fmt.Sprintf("ResourceSlices cannot be marshalled: %v", err)) // they came as JSON
	}
	sum := sha256.Sum256(text)
	i.key = hex.EncodeToString(sum[:16])
	return i, names
}

// plugged are the extended resources that a device plugin offers and that a DeviceClass stands for: there the node has no claims
// for them.
func (c *Catalog) plugged(plugin nodegroups.Resources) (out []corev1.ResourceName) {
	for _, name := range plugin.Names() {
		if plugin[name] > 0 && c.ClassOf(name) != nil {
			out = append(out, name)
		}
	}
	return out
}

// canonical is a slice as those of nodes that are alike have it: with names by their order, and values that identify a device by
// the order in which they first come.
func canonical(s *resourcev1.ResourceSlice, pool string, k int, rules []*resourcev1.DeviceTaintRule,
	values map[string]string,
) *resourcev1.ResourceSlice {
	out := &resourcev1.ResourceSlice{Spec: *s.Spec.DeepCopy()}
	out.Name = fmt.Sprintf("%s-%03d", pool, k)
	name := node
	out.Spec.NodeName = &name
	out.Spec.Pool.Name, out.Spec.Pool.Generation = pool, 1
	for n := range out.Spec.Devices {
		d := &out.Spec.Devices[n]
		for _, key := range slices.Sorted(maps.Keys(d.Attributes)) {
			a := d.Attributes[key]
			value, ok := identityOf(key, a)
			if !ok {
				continue
			}
			known, ok := values[value]
			if !ok {
				known = fmt.Sprintf("value-%03d", len(values))
				values[value] = known
			}
			a.StringValue = &known
			d.Attributes[key] = a
		}
		for _, r := range rules {
			if taint, ok := taintOf(r, s.Spec.Driver, s.Spec.Pool.Name, d.Name); ok {
				d.Taints = append(d.Taints, taint)
			}
		}
		for t := range d.Taints {
			d.Taints[t].TimeAdded = nil
		}
	}
	return out
}

// taintOf is the taint that a rule puts on a device.
func taintOf(r *resourcev1.DeviceTaintRule, driver, pool, device string) (taint resourcev1.DeviceTaint, ok bool) {
	if s := r.Spec.DeviceSelector; s != nil {
		for _, pair := range [][2]*string{{s.Driver, &driver}, {s.Pool, &pool}, {s.Device, &device}} {
			if pair[0] != nil && *pair[0] != *pair[1] {
				return taint, false
			}
		}
	}
	return r.Spec.Taint, true
}
