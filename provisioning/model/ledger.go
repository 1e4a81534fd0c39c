package model

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// ledger has the purpose of each machine, the requests that pay for it, and the namespace that it counts for. An update takes time in
// proportion to the change.
type ledger struct {
	*cost.Ledger
	requests *requests
	machines *machines
	nodes    *nodes
	groups   *groups

	// charged is the namespace that each machine counts for.
	charged map[machineKey]string
	// counts has the number of machines by namespace and group. requested has the machines that attempts in flight have requested and that
	// have not been seen yet.
	counts, requested map[string]map[string]int
	charges           []spend.Charge
}

func newLedger(r *requests, m *machines, n *nodes, g *groups) ledger {
	return ledger{
		Ledger: cost.NewLedger(), requests: r, machines: m, nodes: n, groups: g,
		charged: map[machineKey]string{}, counts: map[string]map[string]int{}, requested: map[string]map[string]int{},
	}
}

func (k machineKey) String() string { return k.group + "/" + k.name }

// refresh updates a machine that has changed in that span. If it stops counting for a namespace or request, requests may find room under a
// limit or in a budget.
func (l *ledger) refresh(key machineKey, when span, budgets bool) effect {
	out := unchanged
	if before, now := l.charged[key], l.chargedTo(key); before != now {
		l.count(before, key.group, -1)
		l.count(now, key.group, +1)
		if l.charged[key] = now; now == "" {
			delete(l.charged, key)
		}
		if out = changed; before != "" {
			out = frees
		}
	}
	before, use, at := l.Of(key.String()), l.useOf(key), when.first
	if len(use.Shares) == 0 {
		at = when.last
	}
	if l.Put(key.String(), use, at) {
		if out = max(out, changed); before.Launched && budgets {
			out = frees
		}
	}
	return out
}

func (l *ledger) count(namespace, group string, by int) {
	if namespace == "" {
		return
	}
	if l.counts[namespace] == nil {
		l.counts[namespace] = map[string]int{}
	}
	if l.counts[namespace][group] += by; l.counts[namespace][group] == 0 {
		delete(l.counts[namespace], group)
	}
	if len(l.counts[namespace]) == 0 {
		delete(l.counts, namespace)
	}
}

// nodeOf returns the node of a machine in the planner's form, or nil.
func (l *ledger) nodeOf(key machineKey) *state.Node {
	name, ok := l.machines.nodeOf(key)
	if !ok {
		return nil
	}
	return l.nodes.set.Find(name)
}

// chargedTo returns the namespace that the machine counts for: the namespace of the request that launched it. After the end of that
// request, the machine counts as long as it has the booking, is joining, or is being terminated. (A process that has not seen the request
// cannot find out about the latter.) After that, a machine that is idle or booked by others counts for none.
func (l *ledger) chargedTo(key machineKey) string {
	c, known := l.machines.byKey[key]
	if !known || !c.Counts() || c.Launch == "" {
		return ""
	}
	uid := state.TokenUID(c.Launch)
	if e := l.requests.byUID[uid]; e != nil {
		return e.object.Namespace
	}
	n := l.nodeOf(key)
	if n == nil || n.Cordon == state.Joining || n.Cordon == state.ScalingDown {
		return l.charged[key]
	}
	for i := range n.Labelled {
		if b := &n.Labelled[i]; b.UID == uid {
			return b.Namespace
		}
	}
	return ""
}

// useOf returns the use of a machine; without shares if it no longer costs money.
func (l *ledger) useOf(key machineKey) cost.Use {
	c, known := l.machines.byKey[key]
	if !known || !c.Costs() {
		return cost.Use{}
	}
	phase, inFlight := transaction.Done, false
	owner, a, owned := l.requests.owner(c.Launch)
	if owned {
		phase, inFlight = a.Phase, a.InFlight()
	}
	var bookings []state.Booking
	var leftBy state.Tenant
	n := l.nodeOf(key)
	if n != nil {
		bookings, inFlight, leftBy = n.Labelled, inFlight || n.InFlight, n.LeftBy
	}
	if launcher := l.requests.byUID[state.TokenUID(c.Launch)]; leftBy == (state.Tenant{}) && launcher != nil {
		leftBy = launcher.tenant()
	}
	out := cost.Use{
		Group: key.group, Purpose: cost.PurposeOf(c, phase, n), Launched: c.Launch != "",
		Shares: cost.Shares(c.Launch, bookings, inFlight, leftBy, l.groups.prices[key.group]),
	}
	for i := range out.Shares {
		if share := &out.Shares[i]; share.Namespace == "" && owner != nil && share.Request == owner.object.UID {
			share.Tenant = owner.tenant()
		}
	}
	return out
}

// paidSince is the time since when the request has paid for the machine group/name.
func (l *ledger) paidSince(machine string, request types.UID) time.Time {
	group, name, _ := strings.Cut(machine, "/")
	key := machineKey{group, name}
	if n := l.nodeOf(key); n != nil {
		for i := range n.Labelled {
			if b := &n.Labelled[i]; b.UID == request {
				return b.Since
			}
		}
	}
	_, a, _ := l.requests.owner(l.machines.byKey[key].Launch)
	return a.Started
}

// has returns the machines that a namespace has and has requested.
func (l *ledger) has(namespace string) (out transaction.Holdings) {
	for _, counts := range []map[string]int{l.counts[namespace], l.requested[namespace]} {
		for group, n := range counts {
			g := l.groups.read[group] // of a deleted group, only the number of machines is known
			out.Add(&g.Group, n)
		}
	}
	return out
}

// refreshRequested counts by group the machines that attempts in flight have requested and that have not been seen yet.
func (l *ledger) refreshRequested() (promised map[string]int) {
	promised = map[string]int{}
	clear(l.requested)
	for uid := range l.requests.phases[launching] {
		e := l.requests.byUID[uid]
		for group, count := range l.machines.missing(uid, l.requests.attempt(e)) {
			promised[group] += count
			if l.requested[e.object.Namespace] == nil {
				l.requested[e.object.Namespace] = map[string]int{}
			}
			l.requested[e.object.Namespace][group] += count
		}
	}
	return promised
}

// refreshCharges updates the costs of requests for machines that Muster has launched or will launch for them, by namespace, queue and
// request. If a cost or its duration shrinks, other requests may fit a budget.
func (l *ledger) refreshCharges(specs *specs, budgets bool) effect {
	if !budgets {
		l.charges = nil
		return unchanged
	}
	perHour := map[cost.Payer]int64{}
	for p, r := range l.Rates() {
		if r.Launched > 0 && p.Namespace != "" {
			perHour[p] += r.Launched
		}
	}
	for uid := range l.requests.phases[launching] {
		e := l.requests.byUID[uid]
		a, p := l.requests.attempt(e), cost.Payer{Request: uid, Tenant: e.tenant()}
		for group, count := range l.machines.missing(uid, a) {
			perHour[p] += int64(count) * l.groups.prices[group]
		}
		for _, s := range a.Shares {
			perHour[p] += int64(s.Count) * spend.SharedPrice(l.groups.prices[s.Group])
		}
	}
	before := l.charges
	l.charges = make([]spend.Charge, 0, len(perHour))
	for p, rate := range perHour {
		c := spend.Charge{Request: p.Request, Tenant: p.Tenant, MicroUSDPerHour: rate}
		if e := l.requests.byUID[p.Request]; e != nil {
			c.Runs, c.Since = specs.runs(e), transaction.ProvisionedAt(e.object)
		}
		l.charges = append(l.charges, c)
	}
	spend.SortCharges(l.charges)
	return sinks(before, l.charges)
}

// sinks reports whether some charge is lower than before.
func sinks(before, now []spend.Charge) effect {
	all := map[cost.Payer]spend.Charge{}
	for _, c := range now {
		all[cost.Payer{Request: c.Request, Tenant: c.Tenant}] = c
	}
	for _, old := range before {
		c := all[cost.Payer{Request: old.Request, Tenant: old.Tenant}]
		if c.MicroUSDPerHour < old.MicroUSDPerHour || c.Runs != old.Runs || !c.Since.Equal(old.Since) {
			return frees
		}
	}
	return changed
}
