package model

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// claimable contains what DRA drivers publish for nodes, and the claims that have devices allocated.
type claimable struct {
	classes map[string]*resourcev1.DeviceClass
	rules   map[string]*resourcev1.DeviceTaintRule
	slices  map[string]*resourcev1.ResourceSlice
	claims  map[types.NamespacedName]*resourcev1.ResourceClaim
	// catalog is built from classes.
	catalog *devices.Catalog

	// onNode indexes slices by node; nodeOf is the node of each pool.
	onNode index[string, string]
	nodeOf map[devices.Pool]string
	// takes indexes claims by the pools of their devices.
	takes index[devices.Pool, types.NamespacedName]
	// ofPod indexes the claims with allocated devices by the pods that own or use them.
	ofPod index[types.UID, types.NamespacedName]
	// published caches what each node publishes; a missing node is read again.
	published map[string]*devices.Published
	// charges counts the devices that each claim of a pod takes, under the names returned by AmountName.
	charges map[types.UID]map[types.NamespacedName]nodegroups.Resources
}

func newClaimable() claimable {
	return claimable{
		classes: map[string]*resourcev1.DeviceClass{}, rules: map[string]*resourcev1.DeviceTaintRule{},
		slices: map[string]*resourcev1.ResourceSlice{}, claims: map[types.NamespacedName]*resourcev1.ResourceClaim{},
		catalog: devices.NewCatalog(maps.Values(map[string]*resourcev1.DeviceClass{})),
		onNode:  index[string, string]{}, nodeOf: map[devices.Pool]string{},
		takes: index[devices.Pool, types.NamespacedName]{}, ofPod: index[types.UID, types.NamespacedName]{},
		published: map[string]*devices.Published{},
		charges:   map[types.UID]map[types.NamespacedName]nodegroups.Resources{},
	}
}

// setSlice stores a slice. Slices without spec.nodeName are stored but never offered: several nodes may use their devices.
func (c *claimable) setSlice(s *resourcev1.ResourceSlice) effect {
	old := c.slices[s.Name]
	if !objects.Put(c.slices, s.Name, s) {
		return unchanged
	}
	c.fileSlice(old, false)
	c.fileSlice(s, true)
	return frees
}

func (c *claimable) removeSlice(name string) effect {
	c.fileSlice(c.slices[name], false)
	return removed(c.slices, name)
}

func (c *claimable) fileSlice(s *resourcev1.ResourceSlice, in bool) {
	if s == nil || s.Spec.NodeName == nil {
		return
	}
	c.onNode.set(*s.Spec.NodeName, s.Name, in)
	if in {
		// The entry outlives the slices: claims keep devices of the pool meanwhile.
		c.nodeOf[devices.Pool{Driver: s.Spec.Driver, Name: s.Spec.Pool.Name}] = *s.Spec.NodeName
	}
	delete(c.published, *s.Spec.NodeName)
}

// setClaim stores a claim.
func (c *claimable) setClaim(o *resourcev1.ResourceClaim) effect {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	old := c.claims[key]
	if !objects.Put(c.claims, key, o) {
		return unchanged
	}
	c.fileClaim(key, old, false)
	c.fileClaim(key, o, true)
	c.charge(key, o)
	return frees
}

func (c *claimable) removeClaim(key types.NamespacedName) effect {
	c.fileClaim(key, c.claims[key], false)
	if removed(c.claims, key) == unchanged {
		return unchanged
	}
	return frees
}

func (c *claimable) fileClaim(key types.NamespacedName, o *resourcev1.ResourceClaim, in bool) {
	for _, r := range resultsOf(o) {
		c.takes.set(devices.Pool{Driver: r.Driver, Name: r.Pool}, key, in)
	}
	if len(resultsOf(o)) > 0 {
		for _, uid := range podsOf(o) {
			c.ofPod.set(uid, key, in)
		}
	}
}

func resultsOf(o *resourcev1.ResourceClaim) []resourcev1.DeviceRequestAllocationResult {
	if o == nil || o.Status.Allocation == nil {
		return nil
	}
	return o.Status.Allocation.Devices.Results
}

// charge records the devices of a claim for its pods. A claim for extended resources is skipped, because the pod's own requests
// count them.
func (c *claimable) charge(key types.NamespacedName, o *resourcev1.ResourceClaim) {
	if o.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" {
		return
	}
	for _, uid := range podsOf(o) {
		if c.charges[uid] == nil {
			c.charges[uid] = map[types.NamespacedName]nodegroups.Resources{}
		}
		c.charges[uid][key] = c.catalog.Charge(&o.Spec.Devices)
	}
}

// podsOf returns the pods that own or use a claim.
func podsOf(o *resourcev1.ResourceClaim) (out []types.UID) {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "Pod" {
		out = append(out, owner.UID)
	}
	for i := range o.Status.ReservedFor {
		if r := &o.Status.ReservedFor[i]; r.Resource == "pods" && !slices.Contains(out, r.UID) {
			out = append(out, r.UID)
		}
	}
	return out
}

// chargeOf returns the devices of a pod's claims; nil for none.
func (c *claimable) chargeOf(uid types.UID) (out nodegroups.Resources) {
	for _, r := range c.charges[uid] {
		if out == nil {
			out = nodegroups.Resources{}
		}
		out.Add(r, 1)
	}
	return out
}

// setClass stores a DeviceClass, or removes a deleted one, and reads all claims again.
func (c *claimable) setClass(o *resourcev1.DeviceClass, deleted bool) effect {
	if keep(c.classes, o.Name, o, deleted) == unchanged {
		return unchanged
	}
	c.catalog = devices.NewCatalog(maps.Values(c.classes))
	clear(c.published)
	for key, claim := range c.claims {
		c.charge(key, claim)
	}
	return frees
}

// setRule stores a DeviceTaintRule, or removes a deleted one.
func (c *claimable) setRule(o *resourcev1.DeviceTaintRule, deleted bool) effect {
	if keep(c.rules, o.Name, o, deleted) == unchanged {
		return unchanged
	}
	clear(c.published)
	return frees
}

// lookup adds the DeviceClasses to what pod templates refer to.
func (c *claimable) lookup(out fit.Objects) fit.Objects {
	out.Classes = &c.catalog.Classes
	return out
}

// publishedBy returns the devices that a node publishes; nil for none.
func (c *claimable) publishedBy(o *corev1.Node) *devices.Published {
	p, known := c.published[o.Name]
	if !known {
		offer := devices.Offer{Plugin: nodegroups.ResourcesFrom(o.Status.Allocatable)}
		for _, name := range slices.Sorted(maps.Keys(c.onNode[o.Name])) {
			offer.Slices = append(offer.Slices, c.slices[name])
		}
		for _, name := range slices.Sorted(maps.Keys(c.rules)) {
			offer.Rules = append(offer.Rules, c.rules[name])
		}
		p = c.catalog.Publish(offer)
		c.published[o.Name] = p
	}
	return p
}

// add adds the claimable devices of a node to its allocatable and free amounts.
func (c *claimable) add(out *state.Node, o *corev1.Node) {
	p := c.publishedBy(o)
	if p == nil {
		return
	}
	out.Published, out.Claimable = p.All(), p.Without(c.taken(p, nil))
	for name, n := range out.Published.Amounts() {
		out.Allocatable[name] = n
	}
	for name, n := range out.Claimable.Amounts() {
		out.Free[name] = n
	}
}

// taken returns the allocated devices of a node, without those of the claims in but.
func (c *claimable) taken(p *devices.Published, but map[types.NamespacedName]bool) (out []resourcev1.DeviceRequestAllocationResult) {
	for _, pool := range p.Pools() {
		for key := range c.takes[pool] {
			if !but[key] {
				out = append(out, resultsOf(c.claims[key])...)
			}
		}
	}
	return out
}

// awaitClaimers counts devices that are allocated to pods which are not bound yet as free if they are booked for these pods. kube-scheduler
// writes the claims of a pod before it binds the pod; meanwhile both the claim and the booking would count them.
func (ns *nodes) awaitClaimers(out *state.Node) {
	if out.Published == nil || len(out.Labelled) == 0 {
		return
	}
	c := ns.claimable
	p := c.published[out.Name]
	left := make([]nodegroups.Resources, len(out.Labelled))
	for i := range out.Labelled {
		left[i] = out.Labelled[i].Remaining.Clone()
	}
	awaited := map[types.NamespacedName]bool{}
	for _, pool := range p.Pools() {
		for _, key := range slices.SortedFunc(maps.Keys(c.takes[pool]), func(a, b types.NamespacedName) int {
			return strings.Compare(a.String(), b.String())
		}) {
			claim := c.claims[key]
			i := slices.IndexFunc(out.Labelled, func(b state.Booking) bool { return ns.requests.waits(&b) && ns.comes(claim, &b) })
			if i < 0 || awaited[key] {
				continue
			}
			charge := c.catalog.Charge(&claim.Spec.Devices)
			if _, _, short := left[i].Short(charge); short {
				continue
			}
			left[i].Sub(charge, 1)
			awaited[key] = true
		}
	}
	if len(awaited) == 0 {
		return
	}
	before := out.Claimable.Amounts()
	out.Claimable = p.Without(c.taken(p, awaited))
	for name, n := range out.Claimable.Amounts() {
		out.Free[name] += n - before[name]
	}
}

// comes reports whether the pod of a claim is not bound yet and consumes the booking.
func (ns *nodes) comes(claim *resourcev1.ResourceClaim, b *state.Booking) bool {
	return slices.ContainsFunc(podsOf(claim), func(uid types.UID) bool {
		p := ns.pods[uid]
		return p != nil && p.Node == "" && p.Consumes.Namespace == b.Namespace && state.BookingKey(p.Consumes.Name) == b.Key
	})
}

// ofGroup adds the devices that drivers are expected to publish for machines of a group.
func (c *claimable) ofGroup(g planner.Group, ng *v1alpha1.NodeGroup) planner.Group {
	return g.Publish(c.offered(nodegroups.DevicesOf(ng), g.Allocatable), c.offered(ng.Spec.Template.Devices, g.Promised))
}

func (c *claimable) offered(pools []v1alpha1.DevicePool, plugin nodegroups.Resources) fit.Devices {
	p := c.catalog.Publish(devices.Offer{Slices: nodegroups.ResourceSlices(pools), Plugin: plugin})
	if p == nil {
		return nil
	}
	return p.All()
}
