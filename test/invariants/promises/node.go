package promises

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// node is the state of a node. It has no uid while only its pods were observed.
type node struct {
	name string
	uid  types.UID
	seen time.Time

	labels       map[string]string
	group, token string
	// owner is the name of the Machine that owns the node.
	owner string
	ready bool
	// foreign reports whether the node is cordoned, and not by Muster.
	foreign bool
	// reclaimAt is when the simulated cloud takes the node away.
	reclaimAt   time.Time
	allocatable nodegroups.Resources
	// claimable is the number of devices that pods can claim.
	claimable int64
	// had is what was allocatable until there were fewer devices, at gone.
	had      nodegroups.Resources
	gone     time.Time
	bookings []booking
	// claims are what requests count on here, see Checker.claim.
	claims []booking
	pods   map[types.UID]*pod
	// spent are pods of gangs that succeeded here and whose objects are gone: the
	// booking that they used up does not come back.
	spent []*pod
	// lastBusy is when the node was last seen to be needed, lastHeld when by others
	// than the request that launched it.
	lastBusy, lastHeld time.Time
	// lastRan is when it last ran pods but those of DaemonSets.
	lastRan time.Time
	// awaits is until when a pod of a gang that ran here may be made again.
	awaits time.Time
	// booked: a booking was written on it, then or now, be it of a request that was gone.
	booked bool
	// opened: others have lifted Muster's cordon, then or now.
	opened bool
	// outlives is since when the node has had no machine; zero where it has one.
	outlives time.Time
}

// booking is the record of one. The namespace is that of its label, and empty until it is
// first opened: pods that were bound while it was open are its own once it is closed, too.
type booking struct {
	key, namespace string
	uid            types.UID
	amounts        nodegroups.Resources
	// repair is the number of the repair of a gang that ran that it is for; 0 for none.
	repair int
	// revision and since are of the first version that bore it.
	revision uint64
	since    time.Time
}

func (c *Checker) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{name: name, pods: map[types.UID]*pod{}}
		c.nodes[name] = n
	}
	return n
}

func (c *Checker) applyNode(e Event, o *corev1.Node) {
	n := c.node(o.Name)
	c.noteBusy(n)
	if e.Deleted {
		c.nodeGone(e, n)
		return
	}
	if n.uid != o.UID {
		// New, or another of the same name whose predecessor's end was missed.
		pods := n.pods
		for _, b := range n.claims {
			c.lapse(n, b, e.Time)
		}
		*n = node{name: o.Name, uid: o.UID, seen: e.Time, pods: pods}
		n.read(o)
		c.nodeSeen(e, n)
	}
	before, owner := n.allocatable, n.owner
	n.read(o)
	if n.owner != owner {
		c.part(n, owner)
	}
	if short(n.allocatable, before) != nil {
		n.had, n.gone = before, e.Time
	}
	if o.Annotations[kwokv1alpha1.MachineGoneAnnotation] != "" && n.outlives.IsZero() {
		n.outlives = e.Time
	}
	booked := n.bookings
	n.bookings = bookingsOf(e, o, booked)
	c.claim(e, n)
	c.noteBusy(n)
	for _, b := range n.bookings {
		if grown(booked, b) {
			c.judgeBooking(e, n, b)
		}
	}
}

func (n *node) read(o *corev1.Node) {
	n.labels = o.Labels
	n.group = o.Labels[v1alpha1.NodeGroupLabel]
	n.token = o.Annotations[v1alpha1.LaunchAnnotation]
	n.ready = o.DeletionTimestamp == nil && slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	_, ours := o.Annotations[v1alpha1.CordonedAnnotation]
	n.foreign = o.Spec.Unschedulable && !ours
	n.opened = n.opened || ours && !o.Spec.Unschedulable
	n.allocatable, n.claimable = nodegroups.ResourcesFrom(o.Status.Allocatable), claimableOn(o)
	n.reclaimAt, _ = time.Parse(time.RFC3339, o.Annotations[kwokv1alpha1.ReclaimAtAnnotation])
	n.owner = ""
	for _, ref := range o.OwnerReferences {
		if ref.Kind == string(Machines) {
			n.owner = ref.Name
		}
	}
}

// devicesGrace is how long devices that are gone count as there: a device plugin that restarts takes them away for a while.
const devicesGrace = 2 * time.Minute

// room is what may be promised on the node, to pods with such requests among others.
func (c *Checker) room(n *node, others ...nodegroups.Resources) nodegroups.Resources {
	restarting := c.now.Sub(n.gone) <= devicesGrace+c.config.Race
	if !restarting && n.claimable == 0 {
		return n.allocatable
	}
	out := n.allocatable.Clone()
	if n.claimable > 0 {
		n.addClaimable(out, others)
	}
	if restarting {
		for name, amount := range n.had {
			if nodegroups.Extended(name) {
				out[name] = max(out[name], amount)
			}
		}
	}
	return out
}

// addClaimable adds the claimable devices under every extended resource in use, whatever their DeviceClass: for each, the number
// that the simulated cloud declared for the machine.
func (n *node) addClaimable(room nodegroups.Resources, others []nodegroups.Resources) {
	add := func(promised nodegroups.Resources) {
		for name := range promised {
			if nodegroups.Extended(name) && n.allocatable[name] == 0 {
				room[name] = n.claimable
			}
		}
	}
	for i := range n.bookings {
		add(n.bookings[i].amounts)
	}
	for _, p := range n.pods {
		add(p.requests)
	}
	for _, requests := range others {
		add(requests)
	}
}

// claimableOn returns the number of devices that drivers publish for a simulated machine.
func claimableOn(o *corev1.Node) (devices int64) {
	var c kwokv1alpha1.Claimable
	if json.Unmarshal([]byte(o.Annotations[kwokv1alpha1.ClaimableAnnotation]), &c) != nil {
		return 0
	}
	for _, s := range nodegroups.ResourceSlices(c.Pools) {
		devices += int64(len(s.Spec.Devices))
	}
	return devices
}

// bookingsOf reads the bookings of a node. Bookings that it had before keep their start. It does not use provisioning.BookingsOn, because
// that is checked here.
func bookingsOf(e Event, o *corev1.Node, before []booking) []booking {
	var out []booking
	for name, text := range o.Annotations {
		key, ok := strings.CutPrefix(name, v1alpha1.BookedLabelPrefix)
		if !ok {
			continue
		}
		var record state.BookingRecord
		if json.Unmarshal([]byte(text), &record) != nil {
			continue
		}
		b := booking{key: key, namespace: o.Labels[name], uid: record.UID, amounts: nodegroups.ResourcesFrom(record.Requests),
			repair: record.Repair, revision: e.Revision, since: e.Time}
		if e.Listed {
			b.revision = 0
		}
		if i := slices.IndexFunc(before, func(old booking) bool { return old.uid == b.uid }); i >= 0 {
			b.revision, b.since = before[i].revision, before[i].since
			b.namespace = cmp.Or(b.namespace, before[i].namespace)
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b booking) int { return strings.Compare(a.namespace+"/"+a.key, b.namespace+"/"+b.key) })
	return out
}

// grown says that the booking is new or holds more than before.
func grown(before []booking, b booking) bool {
	i := slices.IndexFunc(before, func(old booking) bool { return old.uid == b.uid })
	return i < 0 || short(before[i].amounts, b.amounts) != nil
}

// nodeGone forgets a node, and judges its deletion if a request relied on it.
func (c *Checker) nodeGone(e Event, n *node) {
	if n.uid == "" {
		return
	}
	c.judgeNodeGone(e, n)
	c.part(n, n.owner)
	for _, b := range n.claims {
		c.lapse(n, b, e.Time)
	}
	if n.owner == "" {
		c.countGone(n.token) // of other nodes the Machine's end counts
	}
	if len(n.pods) == 0 {
		delete(c.nodes, n.name)
		return
	}
	*n = node{name: n.name, pods: n.pods}
}

// part notes on a machine what its node, which it has no more, was needed for.
func (c *Checker) part(n *node, owner string) {
	if m := c.machines[owner]; m != nil {
		m.busy, m.held, m.ran, m.booked = n.lastBusy, n.lastHeld, n.lastRan, n.booked
	}
}

// live says whether the booking is a promise: its request exists and is not over.
func (c *Checker) live(b booking) *request {
	r := c.requests[b.uid]
	if r == nil || !r.live() || !r.is(b) || b.repair != r.repair {
		return nil
	}
	return r
}

// remaining is what is promised to the pods of the gang that have not come yet.
// Pods that were bound before the booking was made are those of an earlier gang
// of the same name.
func (n *node) remaining(b booking) nodegroups.Resources {
	left := b.amounts.Clone()
	use := func(p *pod) {
		if b.isConsumedBy(p) {
			left.Sub(p.requests, 1)
		}
	}
	for _, p := range n.pods {
		use(p)
	}
	for _, p := range n.spent {
		use(p)
	}
	for name := range left {
		left[name] = max(0, left[name])
	}
	return left
}

// isConsumedBy reports whether a pod on the node takes a part of the booking.
func (b *booking) isConsumedBy(p *pod) bool {
	return p.consumes.Namespace == b.namespace && state.BookingKey(p.consumes.Name) == b.key && p.bound >= b.revision &&
		(!p.finished || p.succeeded)
}

// noteBusy remembers until when a node was needed. It is called before and after
// each change that bears on it, so that no short while is missed.
func (c *Checker) noteBusy(n *node) {
	n.booked = n.booked || len(n.bookings) > 0
	if !c.busy(n, "") {
		return
	}
	n.lastBusy = c.now
	if n.hasPods() {
		n.lastRan = c.now
	}
	if c.busy(n, state.TokenUID(n.token)) {
		n.lastHeld = c.now
	}
}

// busy reports whether the node runs pods, is booked by requests other than that one, or
// has a cordon that is not Muster's.
func (c *Checker) busy(n *node, but types.UID) bool {
	if n.foreign || n.hasPods() {
		return true
	}
	return slices.ContainsFunc(n.bookings, func(b booking) bool {
		return b.uid != but && (c.live(b) != nil || c.now.Before(n.awaits) && c.goesOn(b))
	})
}

// goesOn reports whether the gang of the booking runs: its request is over, or it requests what it has lost since, and is there.
func (c *Checker) goesOn(b booking) bool {
	r := c.requests[b.uid]
	return r != nil && r.served && (r.over || b.repair < r.repair) && !r.deleted && r.is(b)
}

// hasPods says that pods run here that belong to no DaemonSet.
func (n *node) hasPods() bool {
	for _, p := range n.pods {
		if !p.finished && !p.daemon {
			return true
		}
	}
	return false
}

func (n *node) String() string { return "Node " + n.name }

func (b booking) String() string { return fmt.Sprintf("%s/%s", b.namespace, b.key) }
