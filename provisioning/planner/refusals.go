package planner

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

// refusal is a budget that a plan would exceed.
type refusal struct {
	*spend.Budget
	spend.Standing
	// perHour is the additional cost of the gang. price is its amount for the rest of the time.
	perHour, price int64
	left           time.Duration
	// unpriced are the groups of the plan's launches without a known price.
	unpriced []string
}

// rest is the amount that may still be committed.
func (r *refusal) rest() int64 { return max(0, r.MicroUSD-r.Standing.Spent-r.Committed) }

// refusals returns the budgets that the plan would exceed, in their order. What the gang pays already is part of the committed amount and
// is never refused again.
func (s *Snapshot) refusals(gang *state.Gang, plan *Verdict) (out []refusal) {
	added := spend.Charge{Tenant: gang.Tenant(), MicroUSDPerHour: s.addedCost(gang, plan), Runs: plan.Runs}
	if added.MicroUSDPerHour == 0 && len(plan.Unpriced) == 0 {
		return nil
	}
	for i := range s.Budgets {
		b := &s.Budgets[i]
		if !b.Covers(added.Tenant) {
			continue
		}
		r := refusal{b, b.Stands(s.Charges, s.Now), added.MicroUSDPerHour, b.PriceOf(&added, s.Now), b.Left(&added, s.Now), plan.Unpriced}
		if len(r.unpriced) > 0 || r.Standing.Spent+r.Committed+r.price > b.MicroUSD {
			out = append(out, r)
		}
	}
	return out
}

// addedCost returns what the gang would pay by the plan and does not pay yet, in millionths of a USD per hour: for launches, and for its
// shares of machines that Muster has launched or is launching for others.
func (s *Snapshot) addedCost(gang *state.Gang, plan *Verdict) int64 {
	perHour := plan.MicroUSDPerHour
	for _, l := range plan.Shares {
		if g := s.FindGroup(l.Group); g != nil {
			perHour += int64(l.Count) * spend.SharedPrice(g.MicroUSDPerHour)
		}
	}
	for i := range plan.Placement {
		p := &plan.Placement[i]
		n := s.Nodes.Find(p.Node)
		if n == nil || n.Launch == "" || n.IsPaidBy(gang) {
			continue
		}
		if g := s.FindGroup(n.Group); g != nil {
			payers := int64(len(n.Labelled) - len(p.Over) + 1)
			perHour += (g.MicroUSDPerHour + payers - 1) / payers
		}
	}
	return perHour
}

// withinBudgets returns the plan under the policy if all budgets allow it, or else a cheaper one that they allow, or else to wait.
func withinBudgets(s *Snapshot, gang *state.Gang, policy state.Policy, under func(state.Policy) Verdict) Verdict {
	plan := under(policy)
	if plan.Outcome != Fits && plan.Outcome != Launch {
		return plan
	}
	plan.Runs = gang.Runs()
	refusals := s.refusals(gang, &plan)
	if len(refusals) == 0 {
		return plan
	}
	if plan.Outcome == Launch {
		for i := range refusals {
			if most := refusals[i].affords(); policy.MaxMicroUSDPerHour < 0 || most < policy.MaxMicroUSDPerHour {
				policy.MaxMicroUSDPerHour = most
			}
		}
		cheaper := under(policy)
		cheaper.Runs = plan.Runs
		if (cheaper.Outcome == Fits || cheaper.Outcome == Launch) && len(s.refusals(gang, &cheaper)) == 0 {
			return cheaper
		}
	}
	out := Verdict{Outcome: Wait}
	for i := range refusals {
		r := &refusals[i]
		until := r.until(s.Now)
		out.Reasons = append(out.Reasons, Reason{Code: CodeBudget, Message: r.String(), Until: until})
		out.Until = when.Earliest(out.Until, until)
	}
	return out
}

// vainSpent returns a budget of the gang whose limit for launches in vain is used up; nil for none.
func (s *Snapshot) vainSpent(gang *state.Gang) (last *spend.Budget) {
	for i := range s.Budgets {
		b := &s.Budgets[i]
		if b.Covers(gang.Tenant()) && b.VainSpent(s.Now) && (last == nil || b.Ends.After(last.Ends)) {
			last = b
		}
	}
	return last
}

// sayVain says why a launch that is likely to be in vain waits, and what would change it.
func sayVain(b *spend.Budget, why string, now time.Time) string {
	return fmt.Sprintf("its last launch of this size was in vain (%s), and %s: this changes when the %s ends, when more is spent on gangs "+
		"that run, or when an administrator raises its percent or minimumUSD", why, b.SayVain(now), b.PeriodName())
}

// affords returns the most that the gang may cost per hour.
func (r *refusal) affords() int64 {
	hi, lo := bits.Mul64(uint64(r.rest()), spend.HourMilliseconds)
	ms := uint64(max(1, r.left.Milliseconds()))
	if hi >= ms {
		return unknownPrice - 1
	}
	rate, _ := bits.Div64(hi, lo, ms)
	return int64(min(rate, unknownPrice-1))
}

// until returns when the gang may start without another event: when the rest of the period is so short that its price is within the amount
// left, at the latest at the start of the next period. The time is not close: other gangs spend meanwhile.
func (r *refusal) until(now time.Time) time.Time {
	if len(r.unpriced) > 0 {
		return time.Time{} // until the price is known
	}
	const soon = time.Minute
	hi, lo := bits.Mul64(uint64(r.rest()), uint64(time.Hour))
	at := r.Ends
	if hi < uint64(r.perHour) {
		affordable, _ := bits.Div64(hi, lo, uint64(r.perHour))
		at = r.Ends.Add(-time.Duration(min(affordable, math.MaxInt64)))
	}
	return when.Earliest(r.Ends, when.Latest(at, now.Add(soon)))
}

// String says what is short, by how much, and what would change it.
func (r *refusal) String() string {
	if len(r.unpriced) > 0 {
		return fmt.Sprintf("CapacityPolicy %s has a budget for %s (spec.budgets[name=%s].usd) and the price of %s: set spec.pricePerHour of the "+
			"NodeGroup, or wait until the cloud tells it", r.Policy, r.Sharers(), r.Name, SayUnpriced(r.unpriced))
	}
	return fmt.Sprintf("CapacityPolicy %s has a budget for %s of %s USD in the %s that ends at %s (spec.budgets[name=%s].usd): "+
		"%s are spent, %s committed for machines in use, and the gang needs %s (%s per hour for %s), %s too much: "+
		"this changes when one of their gangs ends, when the %s ends, or when an administrator raises the budget",
		r.Policy, r.Sharers(), text.Dollars(r.MicroUSD), r.PeriodName(), r.Ends.UTC().Format(time.RFC3339), r.Name,
		text.Dollars(r.Standing.Spent), text.Dollars(r.Committed), text.Dollars(r.price), text.USD(r.perHour), r.left.Truncate(time.Minute),
		text.Dollars(r.Standing.Spent+r.Committed+r.price-r.MicroUSD), r.PeriodName())
}

// SayUnpriced says that the prices of these groups are unknown.
func SayUnpriced(groups []string) string {
	if len(groups) == 1 {
		return "NodeGroup " + groups[0] + " is not known"
	}
	return "NodeGroups " + strings.Join(groups, ", ") + " is not known"
}
