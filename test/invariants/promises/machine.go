package promises

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// machine is a Machine that exists.
type machine struct {
	name, group, token string
	uid                types.UID
	seen               time.Time
	// needed is when an attempt in flight was last seen to wait for it; busy, held and ran
	// are lastBusy, lastHeld and lastRan of the node that it had.
	needed, busy, held, ran time.Time
	terminated              bool
	// booked is that of its node.
	booked bool
}

// launch is one call to a cloud.
type launch struct{ token, group string }

// group is what counts of a NodeGroup.
type group struct {
	min  int32
	idle time.Duration
	// reserved machines are paid for in any case: their nodes may stay idle.
	reserved bool
	// foreign machines are scaled down by a cluster-autoscaler. launches are those on record, by their token.
	foreign  bool
	launches map[string]call
	// changed is when what it says about idle machines last changed.
	changed time.Time
	// spare is since when it has more machines than the least that it keeps; zero
	// if it has not.
	spare time.Time
}

func (c *Checker) applyGroup(e Event, o *v1alpha1.NodeGroup) {
	if e.Deleted {
		delete(c.groups, o.Name)
		return
	}
	g := c.groups[o.Name]
	if g == nil {
		g = &group{changed: e.Time, launches: map[string]call{}}
		c.groups[o.Name] = g
	}
	idle := nodegroups.DefaultIdleTimeout
	if o.Spec.IdleTimeout != nil {
		idle = o.Spec.IdleTimeout.Duration
	}
	g.record(e, o)
	reserved := o.Spec.CapacityType == v1alpha1.Reserved
	if g.min != o.Spec.MinNodes || g.idle != idle || g.reserved != reserved {
		g.min, g.idle, g.reserved, g.changed = o.Spec.MinNodes, idle, reserved, e.Time
	}
}

// record records the launches that a cluster-autoscaler has requested.
func (g *group) record(e Event, o *v1alpha1.NodeGroup) {
	foreign := o.Spec.ScaledBy == v1alpha1.ScaledByClusterAutoscaler
	if g.foreign != foreign {
		g.foreign, g.changed = foreign, e.Time
	}
	var record struct {
		Open []struct{ Number, Count int }
	}
	if json.Unmarshal([]byte(o.Annotations[v1alpha1.AutoscalerLaunchesAnnotation]), &record) != nil {
		return // there is none
	}
	for _, l := range record.Open {
		token := state.Token(o.UID, l.Number)
		if _, known := g.launches[token]; !known {
			g.launches[token] = call{count: l.Count, recorded: e.Revision}
		}
	}
}

func (c *Checker) applyMachine(e Event, o *kwokv1alpha1.Machine) {
	m := c.machines[o.Name]
	if e.Deleted {
		delete(c.machines, o.Name)
		if m != nil {
			m.terminated = m.terminated || o.Status.Phase == kwokv1alpha1.MachineTerminated
			c.judgeMachineGone(e, m)
			c.countGone(m.token)
		}
		return
	}
	if m == nil || m.uid != o.UID {
		m = &machine{name: o.Name, group: c.groupOf(o), token: o.Spec.Launch, uid: o.UID, seen: e.Time}
		c.machines[m.name] = m
		if m.token == "" && o.Spec.Node.ProviderID != "" {
			return // the cloud's own group has made it, without a request of Muster
		}
		c.judgeLaunch(e, "Machine "+m.name, m.uid, m.token, m.group)
	}
	m.terminated = m.terminated || o.Status.Phase == kwokv1alpha1.MachineTerminated
}

// groupOf returns the NodeGroup of a machine. The machine of a simulated cloud's group names only that group; it belongs to the NodeGroup
// of its launch if the launch had only one.
func (c *Checker) groupOf(o *kwokv1alpha1.Machine) string {
	if o.Spec.Node.ProviderID == "" || c.groups[o.Spec.Group] != nil {
		return o.Spec.Group
	}
	_, a := c.attemptOf(o.Spec.Launch)
	if a == nil {
		return o.Spec.Group
	}
	var found []string
	for key := range a.calls {
		if key.token == o.Spec.Launch {
			found = append(found, key.group)
		}
	}
	if len(found) != 1 {
		return o.Spec.Group
	}
	return found[0]
}

// nodeSeen judges nodes without a Machine, as real clouds have them.
func (c *Checker) nodeSeen(e Event, n *node) {
	if n.token != "" && n.owner == "" {
		c.judgeLaunch(e, n.String(), n.uid, n.token, n.group)
	}
}

// attemptOf finds the attempt that made a call of that token; what is unknown is nil.
func (c *Checker) attemptOf(token string) (*request, *attempt) {
	r, number := c.boughtBy(token)
	if r == nil {
		return nil, nil
	}
	return r, r.attempts[number]
}

// boughtBy is the request that made a call of that token, and the number of its attempt; nil and 0 where that is unknown.
func (c *Checker) boughtBy(token string) (r *request, attempt int) {
	uid := state.TokenUID(token)
	number, err := strconv.Atoi(strings.TrimPrefix(state.AttemptToken(token), string(uid)+"-"))
	if err != nil {
		number = 0
	}
	return c.requests[uid], number
}
