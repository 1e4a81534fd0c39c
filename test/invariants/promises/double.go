package promises

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodegroups"
)

// judgeBooking: a booking fits beside the other promises and pods on the node (P3). Muster may not have observed pods that were bound
// just before the booking was written. It must have observed them when the request becomes Provisioned, and the booking is judged again
// then. Until then the booking is a claim, and simultaneous claims of other gangs are no violation.
func (c *Checker) judgeBooking(e Event, n *node, b booking) {
	r := c.live(b)
	if r == nil {
		return // no live request relies on it
	}
	if e.Listed || len(n.allocatable) == 0 || c.unsure(e.Revision, Pods, Nodes, ProvisioningRequests) {
		c.unjudged(Bookings)
		return
	}
	c.judged(Bookings)
	c.judgeSum(e, n, e.Time.Add(-c.config.Race), knownPods, "booking|"+string(r.uid),
		fmt.Sprintf("it was booked with %s for %s", amounts(b.amounts), r))
}

// judgeConsumer: a pod of a gang uses what its own gang has booked, not what is promised to another gang (P3). Other pods that are
// scheduled on a partly booked node are not Muster's, and are allowed. So are pods that a gang creates again after its booking is over.
// Pods that were there before all bookings were counted by them.
func (c *Checker) judgeConsumer(e Event, p *pod) {
	n := c.node(p.node)
	if p.consumes.Name == "" || n.uid == "" || len(n.allocatable) == 0 || !c.servedPod(p) {
		return
	}
	var first time.Time
	for _, b := range n.bookings {
		if r := c.live(b); r != nil && isPromise(r, b) && (first.IsZero() || b.since.Before(first)) {
			first = b.since
		}
	}
	if first.IsZero() {
		return
	}
	if c.unsure(e.Revision, Pods, Nodes, ProvisioningRequests) {
		c.unjudged(Consumed)
		return
	}
	c.judged(Consumed)
	c.judgeSum(e, n, first.Add(-c.config.Race), allPods, "consumer|"+p.consumes.String(), p.String()+" was bound")
}

// isPromise reports whether pods of the request may come to the booking, or the request is Provisioned. Before that, the booking is a
// claim that may be dropped.
func isPromise(r *request, b booking) bool { return r.provisioned || b.namespace != "" }

// What judgeSum counts of the pods of gangs.
const (
	// allPods, whenever they were bound.
	allPods = true
	// knownPods: only pods that were bound long enough before count.
	knownPods = false
)

// servedPod says that the pod consumes a booking of a request that Muster serves.
func (c *Checker) servedPod(p *pod) bool {
	return slices.ContainsFunc(c.named[p.consumes], func(r *request) bool { return r.awaits(c.now) })
}

// judgeSum adds up what is promised on a node: the pods of gangs, the pods that were bound before known, and the rest of the live
// bookings. On launched machines, nothing is booked before the pods of DaemonSets are bound, so these count at once. Claims do not count
// against a bound pod, since they may be dropped.
func (c *Checker) judgeSum(e Event, n *node, known time.Time, all bool, key, when string) {
	counts := func(p *pod) bool {
		limit := known
		if p.daemon && n.token != "" {
			limit = known.Add(c.config.Race)
		}
		return !p.finished && (all && c.servedPod(p) || p.boundAt.Before(limit))
	}
	total := nodegroups.Resources{}
	for _, p := range n.pods {
		if counts(p) {
			total.Add(p.requests, 1)
		}
	}
	var counted []booking
	for _, b := range n.bookings {
		if r := c.live(b); r != nil && (!all || isPromise(r, b)) {
			counted = append(counted, b)
			total.Add(n.remaining(b), 1)
		}
	}
	over := short(c.room(n), total)
	if over == nil {
		return
	}
	var parts []string
	for _, p := range n.pods {
		if counts(p) {
			parts = append(parts, fmt.Sprintf("%s %s", p, amounts(p.requests)))
		}
	}
	for _, b := range counted {
		parts = append(parts, fmt.Sprintf("the booking of %s since resourceVersion %d still %s", b, b.revision, amounts(n.remaining(b))))
	}
	slices.Sort(parts)
	c.suspect("sum|"+n.name+"|"+key, e, NoDouble, n.String(),
		"when %s, more was promised than the node has, by %s: it has %s; promised are: %s",
		when, amounts(over), amounts(n.allocatable), strings.Join(parts, "; "))
}

// promised describes the live bookings of a node that wait for pods, save for
// that of a request whose own attempt, which made the node, has failed.
func (c *Checker) promised(n *node, token string) []string {
	var out []string
	for _, b := range n.bookings {
		r := c.live(b)
		if r == nil || short(nil, n.remaining(b)) == nil {
			continue
		}
		if own, a := c.attemptOf(token); own == r && a != nil && !a.failed.IsZero() {
			continue
		}
		out = append(out, fmt.Sprintf("%s waits for pods with %s", r, amounts(n.remaining(b))))
	}
	return out
}

// loss is a node that went while it was promised, and whose Machine may be seen
// to be Terminated in a moment: the two are different objects.
type loss struct {
	Event
	node, machine string
	promised      []string
}

const scaledDown = "went while it was promised, and was not Terminated by its cloud: %s"

// judgeMachineGone: no machine is deleted while it is promised (P3). A machine that is Terminated before was taken by the cloud.
func (c *Checker) judgeMachineGone(e Event, m *machine) {
	c.losses = slices.DeleteFunc(c.losses, func(l loss) bool {
		if l.machine == m.name && !m.terminated {
			c.suspect("gone|"+string(m.uid), e, NoDouble, "Machine "+m.name, scaledDown, strings.Join(l.promised, "; "))
		}
		return l.machine == m.name
	})
	if e.Listed || c.unsure(e.Revision, Nodes, ProvisioningRequests) {
		c.unjudged(Departures)
		return
	}
	c.judged(Departures)
	n := c.nodes[m.name]
	if m.terminated || n == nil || n.owner != m.name {
		return
	}
	c.judgeHarm(e, m, n)
	if promised := c.promised(n, m.token); len(promised) > 0 {
		c.suspect("gone|"+string(m.uid), e, NoDouble, "Machine "+m.name, scaledDown, strings.Join(promised, "; "))
	}
}

// judgeNodeGone: the same for nodes whose Machine is still there. A node without
// a Machine is not Muster's to delete, so another client has deleted it.
func (c *Checker) judgeNodeGone(e Event, n *node) {
	m := c.machines[n.owner]
	promised := c.promised(n, n.token)
	switch {
	case len(promised) == 0 || m == nil:
		return
	case e.Listed || c.unsure(e.Revision, ProvisioningRequests):
		c.unjudged(Departures)
		return
	}
	c.judged(Departures)
	if m.terminated || !n.reclaimAt.IsZero() && !e.Time.Before(n.reclaimAt.Add(-c.config.Race)) {
		return
	}
	c.losses = append(c.losses, loss{Event: e, node: n.name, machine: m.name, promised: promised})
}

// sweepLosses blames what no cloud has owned up to.
func (c *Checker) sweepLosses() {
	c.losses = slices.DeleteFunc(c.losses, func(l loss) bool {
		m := c.machines[l.machine]
		if m == nil || m.terminated {
			return true
		}
		if !c.overdue(l.Time, c.config.LossBound) {
			return false
		}
		c.accuse("lost|"+string(l.Object.GetUID()), NoDouble, "Node "+l.node, scaledDown+"; its Machine is still there",
			strings.Join(l.promised, "; "))
		return true
	})
}
