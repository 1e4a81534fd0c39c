package state

import (
	"iter"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Node is an existing node.
type Node struct {
	Name       string
	ProviderID string
	Group      string
	Labels     map[string]string
	Taints     []corev1.Taint
	// Ready for pods: the node's Ready condition is true, it is not being deleted and
	// its machine has not ended.
	Ready bool
	// Ended: the machine has ended for good according to its cloud. Only the Node object is left, until something deletes it.
	Ended bool
	// Forgotten: no cloud lists a machine with the node's provider ID, and none has reported its end.
	Forgotten bool
	// Notice describes an interruption of the machine that is near, such as a reclaimed spot machine or the maintenance of its host;
	// empty for none. With a notice, the node takes no new booking.
	Notice string
	Cordon Cordon
	// Marked reports whether the node has the mark of Muster's cordon, even if others have lifted the cordon itself.
	Marked bool
	// Kept nodes are annotated, not by Muster, against scale-down.
	Kept bool
	// Launch is the token of the launch that made the node, if Muster did.
	Launch string
	// InFlight reports whether the request of that launch has the machine without having
	// booked it, or may still take it back, or whether a launch under way may have made the
	// machine: no other request may book it.
	InFlight bool

	Allocatable nodegroups.Resources
	// Published contains the devices that drivers publish for the node, Claimable the unallocated ones; nil for none. Allocatable
	// and Free count them.
	Published, Claimable fit.Devices
	// Free is what the pods on the node leave, including pods that may be recreated in their place. Bookings are not subtracted.
	Free nodegroups.Resources
	// Machine is the node's machine in its last state; nil if no cloud has listed it, or if it has ended.
	Machine *cloudprovider.Machine
	// Pods on the node that have not finished, those of DaemonSets and static ones
	// apart: they come and go with the node. Of these pods, Terminating have been
	// deleted and are not gone yet.
	Pods, Terminating int
	// Blocked is the number of pods that cannot start.
	Blocked int
	// Strays are the pods that may be moved to another node.
	Strays []Stray
	// UnbookedPods are the pods without a booking on a node that Muster has cordoned, by namespace/name.
	UnbookedPods []string
	// Running are the pods on the node that have not finished, in the form for pod affinity, including those of DaemonSets.
	Running []*fit.Running
	// Daemons names the DaemonSets whose pods have been bound to the node.
	Daemons map[types.UID]bool
	// Bookings of live requests whose pods have not all come yet.
	Bookings []Booking
	// Labelled has every booking on the node, including those of requests that are over or gone.
	Labelled []Booking
	// LeftBy is the tenant whose gang was the last to leave the node; the zero value if unknown.
	LeftBy Tenant
	// Created is when the node registered.
	Created time.Time
	// ReadySince is when the node's Ready condition became true; zero while it is not.
	ReadySince time.Time
	// UnreadySince is when the node's Ready condition was lost; zero while it is
	// true.
	UnreadySince time.Time
	// DevicesSince is when the node was first seen, or last seen to offer fewer devices than before.
	DevicesSince time.Time
	// IdleSince is when the last pod other than a stray left, or when the node was first seen without one, later by the time that the node was
	// booked since; zero while it has such pods.
	IdleSince time.Time
}

// Cordon is why pods are kept off a node.
type Cordon int

const (
	// Open nodes take any pod.
	Open Cordon = iota
	// Joining nodes belong to a launch in flight: only its request may book them.
	Joining
	// Held nodes are cordoned for the requests that have booked them, or that may do so.
	Held
	// ScalingDown nodes are about to go: no request may book them.
	ScalingDown
	// Foreign cordons were not put by Muster, which leaves them alone.
	Foreign
)

// DaemonSet is a workload that runs on every node that suits it.
type DaemonSet struct {
	UID  types.UID
	Name string
	// Requests is what one of its pods requests.
	Requests nodegroups.Resources
	pod      *fit.Pod
}

// daemonTolerations are the tolerations that every pod of a DaemonSet gets from its controller, beside that of a cordon.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// NewDaemonSet reads a DaemonSet.
func NewDaemonSet(d *appsv1.DaemonSet) DaemonSet {
	spec := &d.Spec.Template.Spec
	// Only this decides where the DaemonSet controller places a pod.
	placing := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: spec.NodeSelector, Affinity: &corev1.Affinity{}, Tolerations: slices.Concat(spec.Tolerations, daemonTolerations),
	}}
	if spec.HostNetwork {
		placing.Spec.Tolerations = append(placing.Spec.Tolerations, corev1.Toleration{
			Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	if spec.Affinity != nil {
		placing.Spec.Affinity.NodeAffinity = spec.Affinity.NodeAffinity
	}
	name := d.Namespace + "/" + d.Name
	pod, _ := fit.NewPod(d.Namespace, name, 1, placing, fit.Objects{}) // there is nothing in it to refuse
	return DaemonSet{UID: d.UID, Name: name, Requests: fit.TemplateRequests(spec), pod: pod}
}

// TakesDevices reports whether pods of a DaemonSet request devices. Such a pod prepares no machine for others: it is kept off cordoned
// machines (policies/pods.yaml of the chart), and takes no room there.
func (d *DaemonSet) TakesDevices() bool { return takesDevices(d.Requests) }

func takesDevices(r nodegroups.Resources) bool {
	for name, amount := range r {
		if amount > 0 && nodegroups.Extended(name) {
			return true
		}
	}
	return false
}

// RunsOn reports whether the DaemonSet puts a pod on a node of these labels and
// taints.
func (d *DaemonSet) RunsOn(name string, labels map[string]string, taints []corev1.Taint) bool {
	return d.pod.Matches(name, labels, taints)
}

// OpenToAll reports whether any request may book room on the node, even one that has no relation to it.
func (n *Node) OpenToAll() bool {
	return n.Ready && n.Notice == "" && (n.Cordon == Open || n.Cordon == Held) && !n.InFlight
}

// IsUnattributed reports whether a launch in flight may have made the node's machine, according to its cloud.
func (n *Node) IsUnattributed() bool {
	return n.Machine != nil && n.Machine.Unattributed && n.Launch == ""
}

// InUse reports whether the node runs pods that must not end with its machine, or a request has booked it.
func (n *Node) InUse() bool { return n.Pods > 0 || len(n.Bookings) > 0 }

// EndsAt returns when the cloud ends the node's machine by itself; zero for never.
func (n *Node) EndsAt() (at time.Time) {
	if n.Machine != nil {
		at = n.Machine.EndsAt
	}
	return at
}

// OffersMoreThan reports whether the node may serve a gang that it could not serve as
// it was before; before is nil for a new one.
func (n *Node) OffersMoreThan(before *Node) bool {
	if !n.OpenToAll() {
		return false
	}
	if len(n.Bookings) > 0 { // the remaining room may be booked by count
		left := nodegroups.Resources{}
		if before != nil && before.OpenToAll() {
			left = before.Unbooked()
		}
		_, _, more := left.Short(n.Unbooked())
		return more
	}
	if before == nil || !before.OpenToAll() || len(before.Bookings) > 0 || len(before.Labelled) > len(n.Labelled) ||
		!before.EndsAt().Equal(n.EndsAt()) || len(before.Running) > len(n.Running) || !maps.Equal(before.Labels, n.Labels) ||
		!slices.Equal(before.Taints, n.Taints) {
		return true
	}
	_, _, more := before.Free.Short(n.Free)
	return more
}

// PromisesLessThan reports whether a request that waits for the node in its previous state may now wait in vain; n is nil if the node is
// gone.
func (n *Node) PromisesLessThan(before *Node) bool {
	if n == nil || before == nil {
		return before != nil
	}
	_, _, less := n.Allocatable.Short(before.Allocatable)
	return less
}

// AvailableTo returns how much of the node the gang may book for pods that have yet to arrive. ok is false if it may book nothing: if
// others wait for their pods, since the scheduler might place more of the gang's pods there than were booked, or if the node has the same
// label for another request, since a label has only one value.
func (n *Node) AvailableTo(g *Gang) (free nodegroups.Resources, ok bool) {
	if !n.OpenToAll() {
		if !IsLaunchOf(n, g) || !n.Ready || n.Notice != "" || n.Cordon == ScalingDown || n.Cordon == Foreign {
			return nil, false
		}
	}
	for i := range n.Labelled {
		if b := &n.Labelled[i]; g.Key != "" && b.Key == g.Key && b.UID != g.UID {
			return nil, false
		}
	}
	if len(n.Bookings) > 0 && n.BookingOf(g.UID) == nil || n.isUsedBy(g) {
		return nil, false
	}
	free = n.Free.Clone()
	for i := range n.Bookings {
		if b := &n.Bookings[i]; b.UID != g.UID {
			free.Sub(b.Remaining, 1)
		}
	}
	return free, true
}

// Unbooked returns the room of the node after the bookings of outstanding pods.
func (n *Node) Unbooked() nodegroups.Resources {
	left := n.Free.Clone()
	for i := range n.Bookings {
		left.Sub(n.Bookings[i].Remaining, 1)
	}
	return left
}

// isUsedBy reports whether the gang ran here before the current repair: it may not book that room again.
func (n *Node) isUsedBy(g *Gang) bool {
	return g.UID != "" && n.BookingOf(g.UID) == nil && slices.ContainsFunc(n.Labelled, func(b Booking) bool { return b.UID == g.UID })
}

// Over returns the keys of bookings that are over and without pods here.
func (n *Node) Over() (keys []string) {
	for i := range n.Labelled {
		if b := &n.Labelled[i]; b.Running == 0 && b.KeptUntil.IsZero() && (b.UID == "" || n.BookingOf(b.UID) == nil) {
			keys = append(keys, b.Key)
		}
	}
	return keys
}

// AloneOn reports whether no other gang uses or has booked the node, or has pods to come
// again.
func (n *Node) AloneOn(g *Gang) bool {
	others := n.Pods
	for i := range n.Labelled {
		if b := &n.Labelled[i]; b.UID != g.UID && !b.KeptUntil.IsZero() {
			return false
		}
	}
	for i := range n.Bookings {
		b := &n.Bookings[i]
		if b.UID != g.UID {
			return false
		}
		others -= b.Running
	}
	return others <= 0
}

// Lacks reports whether less is booked than the gang needs. If the booked nodes have the capacity but other pods occupy it, nothing is
// lacking: they may end.
func Lacks(g *Gang, objects fit.Objects, own iter.Seq[*Node]) bool {
	booked, needed := nodegroups.Resources{}, nodegroups.Resources{}
	for n := range own {
		if b := n.BookingOf(g.UID); b != nil {
			booked.Add(b.Booked, 1)
		}
	}
	for i := range g.PodSets {
		if p, _ := g.PodSets[i].Read(g.Namespace, objects); p != nil {
			needed.Add(p.Requests, p.Count)
		}
	}
	_, _, short := booked.Short(needed)
	return short
}

// IsPaidBy reports whether the gang pays for the machine of the node, alone or with others.
func (n *Node) IsPaidBy(g *Gang) bool {
	return IsLaunchOf(n, g) || g.UID != "" && slices.ContainsFunc(n.Labelled, func(b Booking) bool { return b.UID == g.UID })
}

// IsLaunchOf reports whether the node's machine was launched by the gang's attempt.
func IsLaunchOf(n *Node, g *Gang) bool { return g.Launch != "" && AttemptToken(n.Launch) == g.Launch }

// BookingOf returns the booking of the live request with that UID on the node, or nil.
func (n *Node) BookingOf(uid types.UID) *Booking {
	for i := range n.Bookings {
		if n.Bookings[i].UID == uid {
			return &n.Bookings[i]
		}
	}
	return nil
}

// LostAfter is how long a node may be unready before its machine counts as lost, if all pods on it have been deleted. Kubernetes deletes
// them after about 6 minutes. Pods that tolerate an unreachable node, and their gang, continue.
const LostAfter = 10 * time.Minute

// Leaves reports whether the node is to go, and neither pods nor a booking are against that. A node that is booked in part keeps the
// cordon with which it was created.
func (n *Node) Leaves(now time.Time) bool {
	if len(n.Bookings) > 0 {
		return false
	}
	return n.Cordon == Joining && n.Pods == 0 || n.Cordon == ScalingDown && n.Vacant(now) && !n.Kept
}

// Vacant reports whether the node runs nothing that must stay.
func (n *Node) Vacant(now time.Time) bool {
	return n.Pods == len(n.Strays) || n.Lost(now) && n.Pods == n.Terminating
}

// Lost reports whether the node has been unready for so long that it is not waited for.
func (n *Node) Lost(now time.Time) bool {
	at := n.LostAt()
	return !at.IsZero() && !now.Before(at)
}

// LostAt returns when the node is lost if it stays unready; zero if it is not unready.
func (n *Node) LostAt() time.Time {
	if n.UnreadySince.IsZero() {
		return time.Time{}
	}
	return n.UnreadySince.Add(LostAfter)
}
