package provisioning

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
)

// Snapshot is all that a plan sees. It is read-only: a plan works on copies.
type Snapshot struct {
	Now time.Time
	// Nodes in the order of their names.
	Nodes []Node
	// Groups in the order of their names.
	Groups []nodegroups.Group
	// DaemonSets whose pods will take room on new nodes.
	DaemonSets []DaemonSet
}

// Node is an existing node.
type Node struct {
	Name       string
	ProviderID string
	Group      string
	Labels     map[string]string
	Taints     []corev1.Taint
	// Ready for pods: the node's Ready condition is true and it is not being
	// deleted.
	Ready  bool
	Cordon Cordon
	// Marked says that the node bears the mark of a cordon of Muster's, also where
	// somebody else has lifted the cordon itself.
	Marked bool
	// Launch is the token of the launch that made the node, if Muster did.
	Launch string
	// InFlight says that the attempt of that launch is not over: it may still take
	// the machine back.
	InFlight bool

	Allocatable nodegroups.Resources
	// Free is what pods that run here leave. Bookings are not taken off.
	Free nodegroups.Resources
	// Pods on the node that do not belong to a DaemonSet and have not finished.
	Pods int
	// Daemons names the DaemonSets whose pods have been bound to the node.
	Daemons map[types.UID]bool
	// Bookings of live requests whose pods have not all come yet.
	Bookings []Booking
	// Labelled is every booking that the node bears, those of requests that are
	// over or gone included.
	Labelled []Booking
	// Created is when the node registered.
	Created time.Time
	// IdleSince is when the last pod left or the node was first seen without
	// one; zero while it has pods.
	IdleSince time.Time
}

// Cordon says who keeps pods off a node, and why.
type Cordon int

const (
	// Open nodes take any pod.
	Open Cordon = iota
	// Joining nodes belong to a launch in flight: only its request may book them.
	Joining
	// Held nodes are cordoned for those who have booked them.
	Held
	// GivingBack nodes are about to go: nobody may book them.
	GivingBack
	// Foreign cordons were put by somebody else: hands off.
	Foreign
)

// DaemonSet is a workload that runs on every node that suits it.
type DaemonSet struct {
	UID      types.UID
	Name     string
	Template *corev1.PodTemplateSpec
}

// availableTo says how much of the node the gang may book: what is free, less what
// others have booked, plus what its own pods take of its own booking there. ok is
// false where it may book nothing at all; also on a node that bears the same
// label for another request, since a node has room for one value of it only.
func (n *Node) availableTo(g *Gang) (free nodegroups.Resources, ok bool) {
	if !n.Ready || n.Cordon == GivingBack || n.Cordon == Foreign {
		return nil, false
	}
	if (n.Cordon == Joining || n.InFlight) && !launchedFor(n, g) {
		return nil, false
	}
	for i := range n.Labelled {
		if b := &n.Labelled[i]; g.Key != "" && b.Key == g.Key && b.UID != g.UID {
			return nil, false
		}
	}
	free = n.Free.Clone()
	for i := range n.Bookings {
		if b := &n.Bookings[i]; b.UID == g.UID {
			free.Add(b.Used, 1)
		} else {
			free.Sub(b.Remaining, 1)
		}
	}
	return free, true
}

// aloneOn says that nobody but the gang uses or has booked the node.
func (n *Node) aloneOn(g *Gang) bool {
	others := n.Pods
	for i := range n.Bookings {
		b := &n.Bookings[i]
		if b.UID != g.UID {
			return false
		}
		others -= b.Running
	}
	return others <= 0
}

// zone of the node.
func (n *Node) zone() string { return n.Labels[corev1.LabelTopologyZone] }
