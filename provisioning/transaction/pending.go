package transaction

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

// manifestGrace is how long after a request the objects that it needs may arrive before it fails: a manifest may have them in any order,
// and each kind has its own watch.
const manifestGrace = 3 * time.Second

func nextPending(r *Request, v View) Step {
	if !v.Now.Before(r.deadline()) {
		return end(r, v, Step{Do: Fail, Condition: failed(ReasonExpired, fmt.Sprintf(
			"No capacity was found within %s of the request's creation (parameter ValidUntilSeconds)", r.ValidFor))})
	}
	grace := when.Earliest(r.Created, r.Seen).Add(manifestGrace)
	switch {
	case len(r.Missing) > 0 && v.Now.Before(grace):
		return Step{Do: Rest, At: grace}
	case len(r.Missing) > 0:
		return end(r, v, Step{Do: LookUp})
	case r.Invalid != "":
		return end(r, v, Step{Do: Fail, Condition: failed(ReasonCapacityIsNotFound, "The request cannot be served: "+r.Invalid)})
	case r.Lacking != "":
		return wait(r, v, ReasonFailedToCheck, "The request cannot be served yet: "+r.Lacking, time.Time{})
	case v.KeyTaken != "":
		return wait(r, v, ReasonCapacityIsNotFound, fmt.Sprintf(
			"Request %s is booked under the same key %s; this request is served after it has ended", v.KeyTaken,
			state.BookingKey(r.Name)), time.Time{})
	}
	if old := leftovers(r, v); len(old) > 0 {
		return Step{Do: Book, Unbook: old, Attempt: r.Attempt}
	}
	rest, _ := remaining(r, v.Snapshot)
	if a := &r.Attempt; len(a.Shares) > 0 && !v.Now.Before(a.Started.Add(planner.StartsWithin)) {
		v = v.alone()
	}
	plan := v.plan(r, rest)
	if f := r.Attempt.Failure; f != nil && f.Taken && plan.Outcome == planner.Launch && v.Now.Before(f.Time.Add(unbookedPause)) {
		again := f.Time.Add(unbookedPause)
		return wait(r, v, ReasonFailedToBook, fmt.Sprintf("Attempt %d was rolled back: %s. Next launch at %s",
			r.Attempt.Number, f.Message, again.UTC().Format(time.RFC3339)), again)
	}
	switch plan.Outcome {
	case planner.Fits:
		return claim(r, v, plan, ReasonCapacityIsFound)
	case planner.Launch:
		return begin(r, v, plan)
	case planner.Never:
		if v.Now.Before(grace) {
			return Step{Do: Rest, At: grace}
		}
		return end(r, v, Step{Do: Fail, Condition: failed(ReasonCapacityIsNotFound, and("Capacity cannot be found: "+plan.Message(),
			deleted(r, v)))})
	}
	reason := ReasonCapacityIsNotFound
	if plan.Reasons[0].Code == planner.CodeUnready {
		reason = ReasonFailedToCheck
	}
	message := and("Capacity is not found now: "+plan.Message(), deleted(r, v))
	return wait(r, v, reason, and(message, unbookedPod(v.Nodes.OwnedBy(nodeset.Taken))), plan.Until)
}

// deleted says that the NodeGroup of the last attempt's launch was deleted, which no reason of a plan mentions. Empty if none was.
func deleted(r *Request, v View) string {
	f := r.Attempt.Failure
	if f == nil || f.Group == "" || v.FindGroup(f.Group) != nil {
		return ""
	}
	return fmt.Sprintf("attempt %d launched in NodeGroup %s, which was deleted", r.Attempt.Number, f.Group)
}

// leftovers returns nodes that still have the label of an earlier request of the same name, which the gang's pods would select.
func leftovers(r *Request, v View) (names []string) {
	for n := range v.Nodes.OwnedBy(nodeset.KeyedBy(r.Gang.Key)) {
		for i := range n.Labelled {
			b := &n.Labelled[i]
			live := slices.ContainsFunc(n.Bookings, func(o state.Booking) bool { return o.UID == b.UID && o.Key == b.Key })
			if b.Key == r.Gang.Key && b.UID != r.UID && !live && (b.Namespace == r.Namespace || !b.Open) {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// wait reports why the request waits, until something changes or that time. A request that must not wait fails.
func wait(r *Request, v View, reason, why string, until time.Time) Step {
	if !r.NoRetry {
		return end(r, v, Step{Do: Report, Condition: waiting(reason, why), At: when.Earliest(until, r.deadline())})
	}
	s := end(r, v, Step{Do: Fail, Condition: failed(ReasonCapacityIsNotFound, why+" (parameter noRetry)")})
	if len(s.Unbook) > 0 {
		s.Condition = failed(ReasonFailedToBook, "Capacity was found, but was taken while it was being booked (parameter noRetry): "+why)
	}
	return s
}

// NoTemplates is the step where PodTemplates do not exist that the request refers to.
func NoTemplates(r *Request, missing []string) Step {
	a := r.Attempt
	a.Phase = Done // they are looked up once nothing is in flight
	return Step{Do: Fail, Attempt: a, Condition: failed(ReasonFailedToCreatePods, fmt.Sprintf(
		"spec.podSets refers to PodTemplates that do not exist in namespace %s: %q. Create them first, then a new request", r.Namespace,
		missing))}
}

// NotBooked is the step after the API server has refused for good to have nodes
// booked.
func NotBooked(r *Request, refusal error) Step {
	message := fmt.Sprintf("Capacity was found but cannot be booked: %v. An administrator must allow Muster to change nodes", refusal)
	if r.NoRetry && r.Status == Pending {
		return Step{Do: Fail, Attempt: r.Attempt, Condition: failed(ReasonFailedToBook, message)}
	}
	s := Step{Do: Report, Attempt: r.Attempt, Condition: waiting(ReasonCapacityIsNotFound, message)}
	if r.Status == Provisioned {
		s.Condition = r.underway("%s", message)
	}
	return s
}

// end has nothing stay booked when the request ends or waits.
func end(r *Request, v View, s Step) Step {
	s.Unbook = bookedNodes(r, v)
	s.Attempt = r.Attempt
	return s
}

// begin records the intent to launch what the plan says, and claims what it uses
// beside.
func begin(r *Request, v View, plan planner.Verdict) Step {
	a := Attempt{Number: r.Attempt.Number + 1, Phase: Launching, Launches: plan.Launches, Shares: plan.Shares, Started: v.Now}
	if n := a.machines(); n > 0 {
		if stopped, ok := r.mayBuy(v, a, n); !ok {
			return stopBuying(r, v, stopped)
		}
	}
	what := "launches nothing"
	if len(a.Launches) > 0 {
		what = fmt.Sprintf("launches %s for %s USD per hour", sayLaunches(a.Launches), text.USD(plan.MicroUSDPerHour))
		if len(plan.Unpriced) > 0 {
			what += ", where the price of " + planner.SayUnpriced(plan.Unpriced)
		}
	}
	if len(a.Shares) > 0 {
		what += ": the rest fits on " + planner.SayShares(a.Shares)
	}
	if f := r.Attempt.Failure; f != nil {
		a.Previous = fmt.Sprintf("attempt %d failed: %s", r.Attempt.Number, f)
	}
	s := Step{Do: Begin, Attempt: a, Open: r.opens(), Condition: r.attempting(a, "%s", what)}
	s.Book, s.Unbook = r.difference(v, plan, s.Open)
	return s
}

// stopBuying reports that the request has bought too much, and until when it buys nothing.
func stopBuying(r *Request, v View, stopped purchases.Record) Step {
	s := Step{Do: Report, Attempt: r.Attempt, At: stopped.Until,
		Condition: provisioned(ReasonBookingIsShort, "The booking no longer fits: "+stopped.String())}
	if r.Status == Pending {
		s = wait(r, v, ReasonPurchasesStopped, stopped.String(), stopped.Until)
	}
	stopped.Needed = cmp.Or(r.Purchases, v.Carried).Needed // this attempt is not started
	s.Purchases = &stopped
	return s
}

// sayLaunches says how many machines of which groups.
func sayLaunches(launches []planner.GroupCount) (out string) {
	for i, l := range launches {
		if i > 0 {
			out += " and "
		}
		out += fmt.Sprintf("%s of NodeGroup %s", text.Machines(l.Count), l.Group)
	}
	return out
}

// opens reports whether nodes that are booked now may be opened at once.
func (r *Request) opens() bool { return r.PodsHeld || r.Status == Provisioned }

// claim books the nodes of the plan. When they are booked and have settled, the request is Provisioned.
func claim(r *Request, v View, plan planner.Verdict, reason string) Step {
	s := Step{Do: Book, Attempt: r.Attempt, Open: r.opens()}
	s.Book, s.Unbook = r.difference(v, plan, s.Open)
	if len(s.Book)+len(s.Unbook) > 0 {
		return s
	}
	var settled time.Time
	for _, p := range plan.Placement {
		n := v.Nodes.Find(p.Node)
		if b := n.BookingOf(r.UID); b != nil && n.Cordon == state.Held && !state.IsLaunchOf(n, &r.Gang) && b.Since.Add(Settle).After(settled) {
			settled = b.Since.Add(Settle)
		}
	}
	if v.Now.Before(settled) {
		return Step{Do: Rest, At: when.Earliest(settled, r.deadline())}
	}
	return provision(r, v, reason)
}

// provision reports that all capacity exists. The attempt, if there is one, is done.
func provision(r *Request, v View, reason string) Step {
	a := r.Attempt
	a.Phase = Done
	since := v.Now
	if r.Status == Provisioned {
		since = r.bookingSince()
	}
	return Step{Do: Provision, Attempt: a, Outcomes: successes(r, v), Condition: provisioned(reason, fmt.Sprintf(
		"Capacity is booked for %s until %s%s", text.Pods(r.Pods), r.bookedUntil(since).UTC().Format(time.RFC3339), sayDomains(r, v)))}
}

// difference returns what to book and unbook so that the bookings match the plan, which is about the pods that have not arrived yet. Nodes
// with pods of the gang stay booked.
func (r *Request) difference(v View, plan planner.Verdict, open bool) (book []planner.Placement, unbook []string) {
	used := map[string]bool{}
	for _, p := range plan.Placement {
		used[p.Node] = true
		n := v.Nodes.Find(p.Node)
		b := n.BookingOf(r.UID)
		if b == nil && !open && state.IsLaunchOf(n, &r.Gang) {
			continue // the attempt has it
		}
		if b != nil {
			p.Requests = p.Requests.Clone()
			for _, came := range b.Came {
				p.Requests.Add(came, 1)
			}
		}
		if b == nil || open && !b.Open || !state.SameAmounts(b.Booked, p.Requests) {
			book = append(book, p)
		}
	}
	for n := range v.Nodes.BookedBy(r.UID) {
		if b := n.BookingOf(r.UID); !used[n.Name] && b != nil && len(b.Came) == 0 {
			unbook = append(unbook, n.Name)
		}
	}
	return book, unbook
}

// successes returns the calls of an attempt in flight whose machines have all joined.
func successes(r *Request, v View) (out []Outcome) {
	if !r.Attempt.InFlight() {
		return nil
	}
	for _, c := range r.Attempt.Calls(r.UID) {
		f := AttemptFailure{Group: c.Group, Launch: c.Token, Requested: c.Count, Got: c.Count, Time: v.Now, Level: levelIn(r, v, c.Group)}
		for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
			if n.Group == c.Group && len(f.Taints) == 0 {
				f.Taints = undeclared(n, v.Snapshot) // the gang tolerates them, and others may not
			}
		}
		out = append(out, f.Outcome(r.String()))
	}
	return out
}

// plan plans for the remaining pods of a request's gang, within the limits of its namespace. Above a limit of price there may be a cheaper
// way.
func (v *View) plan(r *Request, rest state.Gang) planner.Verdict {
	plan := v.Memo.Plan(v.Snapshot, r.EquivalenceClass, rest, r.Policy)
	over := v.over(r, plan)
	if len(over) == 0 {
		return plan
	}
	within := r.Policy
	for _, l := range v.Limits {
		if left := max(0, l.MicroUSDPerHour-v.Has.MicroUSDPerHour); l.MicroUSDPerHour >= 0 &&
			(within.MaxMicroUSDPerHour < 0 || left < within.MaxMicroUSDPerHour) {
			within.MaxMicroUSDPerHour = left
		}
	}
	if (plan.MicroUSDPerHour > within.MaxMicroUSDPerHour || len(plan.Unpriced) > 0) && within.MaxMicroUSDPerHour >= 0 {
		cheaper := planner.Plan(v.Snapshot, rest, within)
		if (cheaper.Outcome == planner.Launch || cheaper.Outcome == planner.Fits) && len(v.over(r, cheaper)) == 0 {
			return cheaper
		}
	}
	return planner.Verdict{Outcome: planner.Wait, Reasons: over, Until: v.BackoffEnds(&rest)}
}

// bookedNodes returns the names of the nodes that the request has booked.
func bookedNodes(r *Request, v View) (names []string) {
	for n := range v.Nodes.BookedBy(r.UID) {
		names = append(names, n.Name)
	}
	return names
}

// over returns the limits that the launches of a plan would exceed.
func (v *View) over(r *Request, plan planner.Verdict) (out []planner.Reason) {
	if len(plan.Launches) == 0 || len(v.Limits) == 0 {
		return nil
	}
	var requested Holdings
	for _, l := range plan.Launches {
		if g := v.FindGroup(l.Group); g != nil {
			requested.Add(&g.Group, l.Count)
		}
	}
	for _, l := range v.Limits {
		check := func(field, what string, has, requested, most int64, show func(int64) string) {
			if most >= 0 && nodegroups.Plus(has, requested) > most {
				out = append(out, planner.Reason{Code: planner.CodeLimit, Message: fmt.Sprintf(
					"namespace %s uses %s of the %s %s in CapacityPolicy %s (%s) and the gang needs %s more, %s too many: "+
						"this changes when machines of the namespace are terminated, or when an administrator raises the limit",
					r.Namespace, show(has), show(most), what, l.Policy, field, show(requested), show(nodegroups.Plus(has, requested)-most))})
			}
		}
		check("spec.limits.machines", "machines", int64(v.Has.Machines), int64(requested.Machines), int64(l.Machines),
			func(n int64) string { return fmt.Sprint(n) })
		for _, name := range l.Devices.Names() {
			check(fmt.Sprintf("spec.limits.devices[%q]", name), string(name), v.Has.Devices[name], requested.Devices[name], l.Devices[name],
				func(n int64) string { return nodegroups.Quantity(name, n) })
		}
		if l.MicroUSDPerHour >= 0 && len(plan.Unpriced) > 0 {
			out = append(out, planner.Reason{Code: planner.CodeLimit, Message: fmt.Sprintf("CapacityPolicy %s limits the price per hour "+
				"(spec.limits.pricePerHour) and the price of %s: set spec.pricePerHour of the NodeGroup, or wait until the cloud tells it",
				l.Policy, planner.SayUnpriced(plan.Unpriced))})
		}
		check("spec.limits.pricePerHour", "USD per hour", v.Has.MicroUSDPerHour, requested.MicroUSDPerHour, l.MicroUSDPerHour, text.USD)
	}
	return out
}
