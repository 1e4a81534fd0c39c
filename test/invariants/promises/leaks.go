package promises

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// judgeLaunch: every machine belongs to an attempt that was on record, for this
// group and at least as many machines, before the machine was made (P2).
//
// A machine that an outsider deletes and Muster makes again counts twice.
func (c *Checker) judgeLaunch(e Event, object string, uid types.UID, token, group string) {
	key := launch{token, group}
	if c.made[key] == nil {
		c.made[key] = map[types.UID]bool{}
	}
	c.made[key][uid] = true
	if r, number := c.boughtBy(token); r != nil {
		c.judgeBought(e, object, uid, r, number)
	}
	if e.Listed {
		return
	}
	if c.unsure(e.Revision, ProvisioningRequests, NodeGroups) {
		c.unjudged(Launches)
		return
	}
	c.judged(Launches)
	blame := func(format string, args ...any) {
		c.suspect("launch|"+string(uid), e, NoLeak, object, "was made in group %s with the launch token %q, but %s",
			group, token, fmt.Sprintf(format, args...))
	}
	if g := c.groups[group]; g != nil && g.foreign {
		if asked := g.launches[token]; asked.count == 0 || asked.recorded >= e.Revision || len(c.made[key]) > asked.count {
			blame("a cluster-autoscaler has asked for %d machines under that token, in resourceVersion %d, and this is number %d", asked.count,
				asked.recorded, len(c.made[key]))
		}
		return
	}
	r, a := c.attemptOf(token)
	switch {
	case r == nil:
		blame("no ProvisioningRequest with UID %q has ever been seen", state.TokenUID(token))
		return
	case a == nil:
		blame("%s has not recorded that attempt", r)
		return
	case a.calls[key].recorded >= e.Revision:
		blame("%s recorded that attempt only in resourceVersion %d", r, a.calls[key].recorded)
		return
	}
	if made := len(c.made[key]); made > a.calls[key].count {
		blame("that attempt of %s asks for %d machines of the group, and this is number %d", r, a.calls[key].count, made)
	}
}

// countGone counts the machines that went as they should.
func (c *Checker) countGone(token string) {
	if token == "" {
		return
	}
	if r, a := c.attemptOf(token); a != nil && (!a.failed.IsZero() || r.deleted && a.phase != transaction.Done) {
		c.judged(RollBacks)
	} else {
		c.judged(ScaledDown)
	}
}

// unit is a machine, or a node that shows none.
type unit struct {
	object, token, group string
	uid                  types.UID
	seen                 time.Time
	machine              *machine
	node                 *node
}

// units are all machines and nodes that Muster has launched and that still cost.
func (c *Checker) units() []unit {
	var out []unit
	for _, m := range c.machines {
		if m.terminated {
			continue
		}
		u := unit{object: "Machine " + m.name, token: m.token, group: m.group, uid: m.uid, seen: m.seen, machine: m}
		if n := c.nodes[m.name]; n != nil && n.owner == m.name {
			u.node = n
		}
		out = append(out, u)
	}
	for _, n := range c.nodes {
		if m := c.machines[n.owner]; n.token == "" || m != nil && !m.terminated {
			continue
		}
		u := unit{object: n.String(), token: n.token, group: n.group, uid: n.uid, seen: n.seen, node: n}
		if n.owner != "" {
			u.object += " (its Machine is gone)"
		}
		out = append(out, u)
	}
	return out
}

// remainsFor is how long a node that has outlived its machine is left to other controllers.
const remainsFor = time.Minute

// remains is until when such a node may be left. A process that was started since has not heard of the machine, nor has one that
// saw its end before the node; and of many a person has to decide.
func (c *Checker) remains(n *node) time.Time {
	if c.resumed.After(n.outlives) || n.outlives.Sub(n.seen) <= c.config.Race {
		return n.outlives.Add(state.LostAfter + time.Minute)
	}
	return n.outlives.Add(remainsFor)
}

// sweepMachines: of a failed attempt nothing is left, and what is idle goes (P2).
//
// A machine without a node counts as idle from when it was last seen to be waited
// for, or the node that it had to be needed.
func (c *Checker) sweepMachines() {
	units := c.units()
	sizes := map[string]int{}
	for _, u := range units {
		if u.node == nil || u.node.outlives.IsZero() {
			sizes[u.group]++
		}
	}
	for name, g := range c.groups {
		switch {
		case sizes[name] <= int(g.min):
			g.spare = time.Time{}
		case g.spare.IsZero():
			g.spare = c.now
		}
	}
	for _, u := range units {
		since := u.seen
		if u.node != nil {
			c.noteBusy(u.node)
			if !u.node.outlives.IsZero() {
				if c.groups[u.group] == nil {
					continue // it is not known whether its machine still runs
				}
				since = later(since, c.remains(u.node))
			}
		}
		r, a := c.attemptOf(u.token)
		switch {
		case a != nil && c.isLeftTo(u, cmp.Or(a.failed, r.deletedAt)):
			c.judgeIdle(u, since)
		case a != nil && r.deleted && (a.phase != transaction.Done || !a.failed.IsZero()) && !u.booked() && !u.opened():
			c.judgeLeft(u, later(since, r.deletedAt), c.config.OrphanBound,
				fmt.Sprintf("%s was deleted while that attempt was not complete", r))
		case a != nil && !a.failed.IsZero() && (!r.deleted || !u.opened()):
			c.judgeLeft(u, later(since, a.failed), c.config.RollbackBound, fmt.Sprintf("that attempt of %s has failed", r))
		case a != nil && a.phase == transaction.Launching && !r.over:
			c.needed(u)
		default:
			c.judgeIdle(u, since)
		}
	}
}

// needed notes that an attempt in flight waits for the unit.
func (c *Checker) needed(u unit) {
	if u.node != nil {
		u.node.lastBusy = c.now
	}
	if u.machine != nil {
		u.machine.needed = c.now
	}
}

// booked reports whether the unit was ever booked. From then on it is a machine like any
// other, and stays until it has been idle for long enough.
func (u unit) booked() bool {
	return u.node != nil && u.node.booked || u.machine != nil && u.machine.booked
}

// isLeftTo reports whether the unit has run pods since that time, when Muster was to take it back: it is left to them, and then
// is a machine like any other.
func (c *Checker) isLeftTo(u unit, since time.Time) bool {
	if since.IsZero() {
		return false
	}
	from := since.Add(-c.config.Race) // Muster's cache may be that old
	return u.node != nil && u.node.lastRan.After(from) || u.machine != nil && u.machine.ran.After(from)
}

// opened reports whether a person has opened the unit to all pods, with the same effect once no request terminates it.
func (u unit) opened() bool { return u.node != nil && u.node.opened }

func (c *Checker) judgeLeft(u unit, since time.Time, bound time.Duration, why string) {
	if u.node != nil {
		since = later(since, u.node.lastHeld)
	}
	if u.machine != nil {
		since = later(since, u.machine.held)
	}
	if c.overdue(since, bound) {
		c.accuse("left|"+string(u.uid), NoLeak, u.object,
			"is left of launch %q in group %s although %s; nobody else needs it, and %s have passed (bound %s)",
			u.token, u.group, why, c.now.Sub(since).Round(time.Millisecond), bound)
	}
}

func (c *Checker) judgeIdle(u unit, since time.Time) {
	g := c.groups[u.group]
	if g == nil || g.foreign || g.spare.IsZero() || g.reserved && u.node != nil {
		return
	}
	if u.node != nil {
		since = later(since, u.node.lastBusy)
	}
	if u.machine != nil {
		since = later(later(since, u.machine.needed), u.machine.busy)
		if u.node == nil && !u.machine.busy.IsZero() {
			since = since.Add(scaledown.MissingBound) // its node may come back
		}
	}
	since = later(since.Add(g.idle), later(g.spare, g.changed))
	if c.overdueSince(since, c.resumed.Add(g.idle), c.config.IdleBound) {
		c.accuse("idle|"+string(u.uid), NoLeak, u.object,
			"of group %s has been idle, without pods and without a booking, for %s longer than the group's idleTimeout of %s (bound %s), and the "+
				"group has more than its %d machines", u.group, c.now.Sub(since).Round(time.Millisecond), g.idle, c.config.IdleBound, g.min)
	}
}
