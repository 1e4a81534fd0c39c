// Package worth finds out what fallback, the ledger and atomicity are each worth: it
// plays a day of mixed GPU gangs on spot pools with droughts and on on-demand pools,
// with all three and with each one switched off, and adds up what came of it.
//
// What decides is the real thing: provisioning.Next with its planner and transaction,
// nodegroups.Learn with chances and backoffs, the engine of pools that the KWOK adapter
// has, and the ledger that the metrics are made of. Around it stands a small world in
// virtual time: clouds that answer and machines that boot after a while, pods that come
// at once, and idle machines that are terminated. What is switched off is so by this
// world, which shows the core less than there is, or does not do what it says; the
// product has no such switches.
package worth

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// without is what is switched off.
type without int

const (
	// nothing: Muster as it is.
	nothing without = iota
	// fallback: a gang whose launch failed tries the same offering again, and no
	// other one.
	fallback
	// ledger: before each plan all is forgotten that attempts have taught, chances and
	// backoffs. A backoff is what makes the next plan take another offering, so no gang
	// falls back either.
	ledger
	// sharing: each gang knows what its own attempts have taught, and nothing of those
	// of others.
	sharing
	// atomicity: the machines of a launch that failed in part are kept for the gang,
	// and topped up.
	atomicity
)

func (w without) String() string {
	return [...]string{"nothing", "fallback", "ledger", "sharing the ledger", "atomicity"}[w]
}

// callTime is how long a cloud takes to answer a launch.
const callTime = 30 * time.Second

// world is all that there is at a moment of virtual time.
type world struct {
	without   without
	now       time.Time
	offerings []*offering
	nodes     *nodeset.Set
	machines  map[string]*machine
	gangs     []*gang
	ledger    *cost.Ledger
	agenda    agenda
	planned   int
	// launches counts the calls for machines, and refused those that got less.
	launches, refused int
	// failure is a step of the core that cannot be in this world.
	failure error
}

// machine is one that was launched.
type machine struct {
	cloudprovider.Machine
	of   *offering
	gang *gang
}

// event is something that will happen.
type event struct {
	at     time.Time
	number int
	do     func()
}

// agenda is what will happen, the next first; of one moment, what was planned first.
type agenda []event

func (a agenda) Len() int      { return len(a) }
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a agenda) Less(i, j int) bool {
	return cmp.Or(a[i].at.Compare(a[j].at), cmp.Compare(a[i].number, a[j].number)) < 0
}

func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// at has something happen at a time.
func (w *world) at(t time.Time, do func()) {
	w.planned++
	heap.Push(&w.agenda, event{t, w.planned, do})
}

// run goes on until every gang has run, and every machine is terminated.
func (w *world) run() error {
	for t := w.next(); !t.IsZero() && w.failure == nil; t = w.next() {
		w.now = t
		for len(w.agenda) > 0 && w.agenda[0].at.Equal(w.now) {
			heap.Pop(&w.agenda).(event).do()
		}
		w.decide()
		w.book()
	}
	for _, g := range w.gangs {
		if g.ended.IsZero() && w.failure == nil {
			w.failure = fmt.Errorf("gang %s has not run: %s", g.request.Name, g.request.Provisioned.Message)
		}
	}
	return w.failure
}

// next is when something happens or is to be decided; zero is never.
func (w *world) next() (t time.Time) {
	if len(w.agenda) > 0 {
		t = w.agenda[0].at
	}
	for _, g := range w.gangs {
		if at := g.lookAt; !at.IsZero() && (t.IsZero() || at.Before(t)) {
			t = at
		}
	}
	return t
}

// decide takes the steps of all gangs, in their order, until there is none to take.
func (w *world) decide() {
	for again := true; again; {
		again = false
		for _, g := range w.gangs {
			for w.failure == nil && g.decides(w.now) {
				g.due, g.lookAt = false, time.Time{}
				g.due = w.take(g, transaction.Next(&g.request, w.view(g)))
				again = again || g.due
			}
		}
	}
}

// wakeAll has all waiting gangs decided again: something came free.
func (w *world) wakeAll() {
	for _, g := range w.gangs {
		g.due = true
	}
}

// view is what a gang's next step depends on.
func (w *world) view(g *gang) transaction.View {
	var groups []nodegroups.Group
	for _, o := range w.offerings {
		if !g.mayUse(o, w.without) {
			continue
		}
		status := o.status
		switch w.without {
		case ledger:
			status = v1alpha1.NodeGroupStatus{}
		case sharing:
			status = g.learned[o.object.Name]
		}
		groups = append(groups, nodegroups.GroupFrom(o.object, status, o.state.Live))
	}
	v := transaction.View{Snapshot: planner.NewSnapshot(w.now, w.nodes, groups, nil)}
	for _, m := range g.machines {
		if state.AttemptToken(m.Launch) == g.token() {
			v.Machines = append(v.Machines, m.Machine)
		}
	}
	return v
}

// learn takes in what launches of a gang have taught.
func (w *world) learn(g *gang, lessons []transaction.Outcome) {
	for _, l := range lessons {
		o := w.offering(l.Group)
		o.status = nodegroups.Learn(o.status, l.LaunchAttempt)
		g.learned[l.Group] = nodegroups.Learn(g.learned[l.Group], l.LaunchAttempt)
		if l.Class == "" {
			w.wakeAll() // it may have ended a backoff
		}
	}
}

func (w *world) offering(name string) *offering {
	return w.offerings[slices.IndexFunc(w.offerings, func(o *offering) bool { return o.object.Name == name })]
}

// launch makes a call of a gang's attempt, and has it answered after a while.
func (w *world) launch(g *gang, c transaction.Call) {
	g.calling = true
	w.at(w.now.Add(callTime), func() {
		g.calling, g.due = false, true
		w.launches++
		o := w.offering(c.Group)
		got, refusal := o.launch(c.Count, w.now)
		for _, p := range got {
			name := fmt.Sprintf("%s-%04d", c.Group, p.Ordinal)
			m := &machine{of: o, gang: g, Machine: cloudprovider.Machine{
				Name: name, Group: c.Group, Launch: c.Token, ProviderID: "sim://" + name, State: cloudprovider.Booting,
			}}
			w.machines[name] = m
			g.machines = append(g.machines, m)
			w.at(w.now.Add(p.BootDelay), func() { w.join(m) })
		}
		if refusal == nil {
			return
		}
		w.refused++
		v := w.view(g)
		s := transaction.Refused(&g.request, v, c, &cloudprovider.Error{Class: refusal.Class, Code: refusal.Code, Message: refusal.Message})
		if w.without == atomicity && len(v.Machines) > 0 {
			w.keep(g, s)
		} else {
			w.take(g, s)
		}
	})
}

// join registers the node of a machine, unless that is gone.
func (w *world) join(m *machine) {
	if m.State >= cloudprovider.Terminated {
		return
	}
	m.State = cloudprovider.Running
	room := nodegroups.ResourcesFrom(nodegroups.Allocatable(m.of.object.Spec.Template))
	w.nodes.Set(&state.Node{
		Name: m.Name, ProviderID: m.ProviderID, Group: m.Group, Labels: nodegroups.Labels(m.of.object),
		Ready: true, Cordon: state.Joining, Launch: m.Launch, InFlight: true, Machine: &m.Machine,
		Allocatable: room, Free: room.Clone(), Created: w.now,
	})
	m.gang.due = true
	w.joined(m.gang)
}

// end takes a machine back.
func (w *world) end(name string) {
	m := w.machines[name]
	if m.State >= cloudprovider.Terminated {
		return
	}
	m.State = cloudprovider.Terminated
	m.of.state.Live--
	w.nodes.Delete(name)
	w.ledger.Put(name, cost.Use{}, w.now)
	delete(w.machines, name)
	m.gang.machines = slices.DeleteFunc(m.gang.machines, func(o *machine) bool { return o == m })
}

// change replaces a node. A node that becomes free is scaled down after a while unless it is booked again by then.
func (w *world) change(name string, f func(*state.Node)) {
	n := *w.nodes.Find(name)
	n.Bookings = slices.Clone(n.Bookings)
	f(&n)
	n.Labelled = n.Bookings
	idle := n.Pods == 0 && len(n.Bookings) == 0 && !n.InFlight
	switch {
	case !idle:
		n.IdleSince = time.Time{}
	case n.IdleSince.IsZero():
		n.IdleSince = w.now
		w.at(w.now.Add(nodegroups.DefaultIdleTimeout), func() { w.scaleDown(name) })
		w.wakeAll()
	}
	w.nodes.Set(&n)
}

func (w *world) scaleDown(name string) {
	n := w.nodes.Find(name)
	if n != nil && !n.IdleSince.IsZero() && !w.now.Before(n.IdleSince.Add(nodegroups.DefaultIdleTimeout)) {
		w.end(name)
	}
}

// book puts down what every machine is for from now on.
func (w *world) book() {
	for name, m := range w.machines {
		phase := transaction.Done
		if a := m.gang.request.Attempt; m.gang.request.Status != transaction.Over &&
			state.AttemptToken(m.Launch) == m.gang.token() && a.InFlight() {
			phase = a.Phase
		}
		n := w.nodes.Find(name)
		purpose := cost.PurposeOf(m.Machine, phase, n)
		if n == nil && slices.Contains(m.gang.kept, name) {
			purpose = cost.PurposeJoining
		}
		w.ledger.Put(name, cost.Use{Group: m.Group, Purpose: purpose, Shares: []cost.Share{{MicroUSDPerHour: m.of.price()}}}, w.now)
	}
}

// result is what came of a day.
type result struct {
	// makespan is from the first arrival to the last end, and wait the mean time from
	// the arrival of a gang to its start.
	makespan, wait time.Duration
	// used is the time of machines with pods. waste is all other paid time: joining, booked, terminating and idle.
	used, waste time.Duration
	// paid is what all machines cost, wasted the part of it for waste.
	paidMicroUSD, wastedMicroUSD int64
	// launches are calls for machines. refused are those that got fewer than they requested.
	launches, refused int
}

func (w *world) result() (r result) {
	first, last := w.gangs[0].request.Created, time.Time{}
	for _, g := range w.gangs {
		r.wait += g.started.Sub(g.request.Created)
		if g.ended.After(last) {
			last = g.ended
		}
	}
	r.makespan, r.wait = last.Sub(first), r.wait/time.Duration(len(w.gangs))
	for post, amount := range w.ledger.Amounts(w.now) {
		took := time.Duration(amount.Milliseconds) * time.Millisecond
		r.paidMicroUSD += amount.MicroUSD
		if post.Purpose == cost.PurposeUsed {
			r.used += took
		} else {
			r.waste += took
			r.wastedMicroUSD += amount.MicroUSD
		}
	}
	r.launches, r.refused = w.launches, w.refused
	return r
}
