// Package devices allocates device claims with kube-scheduler's own allocator, on a node or on a machine that may be launched.
// Nodes that publish the same devices share one inventory, which caches the allocations tried on it: a plan evaluates many nodes,
// and few of them differ.
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
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Catalog contains the inventories that nodes publish, evaluated against one set of DeviceClasses. It is safe for concurrent use.
type Catalog struct {
	fit.Classes
	// names lists the classes in order; amounts is the resource that counts each of them.
	names     []string
	amounts   map[string]corev1.ResourceName
	selectors Selectors

	mu          sync.Mutex
	inventories map[string]*inventory
}

// mostInventories and mostExpressions limit the caches of inventories and of compiled CEL expressions. Entries beyond the limit are
// computed again.
const (
	mostInventories = 4096
	mostExpressions = 256
)

// NewCatalog returns a catalog of the classes, which must not be modified later.
func NewCatalog(classes iter.Seq[*resourcev1.DeviceClass]) *Catalog {
	c := &Catalog{
		Classes: fit.NewClasses(classes), amounts: map[string]corev1.ResourceName{}, inventories: map[string]*inventory{},
		selectors: NewSelectors(),
	}
	c.names = c.Names()
	for _, name := range c.names {
		c.amounts[name] = c.AmountName(c.Class(name))
	}
	return c
}

// List implements the allocator's lister of DeviceClasses, together with Get.
func (c *Catalog) List() ([]*resourcev1.DeviceClass, error) {
	var out []*resourcev1.DeviceClass
	for _, name := range c.names {
		out = append(out, c.Class(name))
	}
	return out, nil
}

// Get returns the class with that name.
func (c *Catalog) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c.Class(name); class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}

// Offer is the input of Publish for a node, or for a machine that may be launched.
type Offer struct {
	// Slices are the ResourceSlices of the node. A slice without spec.nodeName is skipped: other nodes may take its devices.
	Slices []*resourcev1.ResourceSlice
	// Rules are the DeviceTaintRules of the cluster.
	Rules []*resourcev1.DeviceTaintRule
	// Plugin contains the amounts that device plugins offer on the node.
	Plugin nodegroups.Resources
}

// Publish returns the devices of the offer; nil if there are no slices.
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
		i.separate()
		known = i
		c.inventories[i.key] = i
	}
	return &Published{known, pools}
}

// Published contains the devices that a node publishes.
type Published struct {
	*inventory
	// pools maps each pool to its name in the inventory.
	pools map[Pool]string
}

// Pool identifies a pool of devices by its driver and name.
type Pool struct{ Driver, Name string }

// Pools returns the pools that the node publishes.
func (p *Published) Pools() []Pool {
	return slices.Collect(maps.Keys(p.pools))
}

// All returns the devices with nothing allocated.
func (p *Published) All() fit.Devices { return p.state(nil) }

// Without returns the devices without the allocated ones. Allocations from pools of other nodes are ignored.
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

// node is the placeholder for the node's name in an inventory, which nodes with equal devices share.
const node = "node"

// read builds the inventory of a node and replaces everything that differs between nodes with equal devices.
func (c *Catalog) read(o Offer) (*inventory, map[Pool]string) {
	i := &inventory{catalog: c, states: map[string]*state{}}
	pools := map[Pool][]*resourcev1.ResourceSlice{}
	for _, s := range o.Slices {
		if s.Spec.NodeName == nil {
			continue
		}
		id := Pool{s.Spec.Driver, s.Spec.Pool.Name}
		pools[id] = append(pools[id], s)
	}
	if len(pools) == 0 {
		return nil, nil
	}
	names, values := map[Pool]string{}, map[string]string{}
	for n, id := range slices.SortedFunc(maps.Keys(pools), func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name))
	}) {
		slicesOf := fit.NewestOf(pools[id])
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

// plugged returns the extended resources that both a device plugin offers and a DeviceClass provides: on this node they are not
// claimed.
func (c *Catalog) plugged(plugin nodegroups.Resources) (out []corev1.ResourceName) {
	for _, name := range plugin.Names() {
		if plugin[name] > 0 && c.ClassOf(name) != nil {
			out = append(out, name)
		}
	}
	return out
}

// canonical returns the slice with generated names in place of the node's, pool's and slice's, and with identifying values replaced
// in order of first appearance.
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

// taintOf returns the taint that a rule puts on a device.
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
