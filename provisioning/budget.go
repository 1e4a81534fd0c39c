package provisioning

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Budget is what a CapacityPolicy lets namespaces, or queues of theirs, spend together in
// a period, and what they have spent.
type Budget struct {
	// Policy and Name of the budget.
	Policy, Name string
	// Covers says whether the spending of a tenant counts.
	Covers func(Tenant) bool
	// Queues are the LocalQueues that share the budget, for messages; empty where all
	// requests of the namespaces do.
	Queues []string
	// QueuedOnly: requests of no queue have no part in a budget of queues.
	QueuedOnly bool
	// MicroUSD may be spent in the period, in millionths of a USD.
	MicroUSD int64
	Period   v1alpha1.BudgetPeriod
	// Starts and Ends bound the period.
	Starts, Ends time.Time
	// Reserve is for how long money is set aside for gangs of which nobody knows when
	// they end.
	Reserve time.Duration
	// Spent in the period so far.
	Spent Meter
}

// Charge is what a request pays for its machines, those that it has asked for
// included.
type Charge struct {
	Request types.UID
	Tenant
	MicroUSDPerHour int64
	// Runs is how long its gang runs at most once its pods may come, which is since
	// Since; zero where that is not known, or they may not yet.
	Runs  time.Duration
	Since time.Time
}

// SpentOn is what a status says, in millionths of a USD; zero where it makes no sense.
func SpentOn(status v1alpha1.BudgetStatus) int64 {
	spent, err := resource.ParseQuantity(status.Spent)
	if err != nil {
		return 0
	}
	return nodegroups.MicroUSD(&spent)
}

// left is how much longer the charge will be paid, as far as a budget that ends then
// is concerned.
func (b *Budget) left(c *Charge, now time.Time) time.Duration {
	left := b.Reserve
	if c.Runs > 0 {
		left = c.Runs
		if !c.Since.IsZero() {
			left -= now.Sub(c.Since)
		}
	}
	return max(0, min(left, b.Ends.Sub(now)))
}

// Standing is how a budget stands at a time, in millionths of a USD.
type Standing struct {
	// Spent in the period so far, Committed to what machines will cost yet that are in
	// use or asked for.
	Spent, Committed int64
}

// Stands says how the budget stands beside these charges.
func (b *Budget) Stands(charges []Charge, now time.Time) Standing {
	out := Standing{Spent: b.Spent.Until(now).MicroUSD}
	for i := range charges {
		if c := &charges[i]; b.Covers(c.Tenant) {
			out.Committed += b.priceOf(c, now)
		}
	}
	return out
}

// priceOf what is left of a charge, rounded up. The sum of many stays far from
// overflowing.
func (b *Budget) priceOf(c *Charge, now time.Time) int64 {
	const most = 1 << 50
	hi, lo := bits.Mul64(uint64(b.left(c, now).Milliseconds()), uint64(c.MicroUSDPerHour))
	lo, carry := bits.Add64(lo, hourMilliseconds-1, 0)
	if hi += carry; hi >= hourMilliseconds {
		return most
	}
	price, _ := bits.Div64(hi, lo, hourMilliseconds)
	return int64(min(price, most))
}

// refusal is a budget that a plan would pass.
type refusal struct {
	*Budget
	Standing
	// perHour is what the gang would pay more, for the time of left: it comes to price.
	perHour, price int64
	left           time.Duration
}

// rest is what may be committed yet.
func (r *refusal) rest() int64 { return max(0, r.MicroUSD-r.Standing.Spent-r.Committed) }

// refusals are the budgets that the plan would pass for the gang, in their order. What
// the gang pays already counts among what is committed: it is never refused again.
func (s *Snapshot) refusals(gang *Gang, plan *Verdict) (out []refusal) {
	asks := Charge{Tenant: gang.tenant(), MicroUSDPerHour: s.asks(gang, plan), Runs: plan.Runs}
	if asks.MicroUSDPerHour == 0 {
		return nil
	}
	for i := range s.Budgets {
		b := &s.Budgets[i]
		if !b.Covers(asks.Tenant) {
			continue
		}
		r := refusal{b, b.Stands(s.Charges, s.Now), asks.MicroUSDPerHour, b.priceOf(&asks, s.Now), b.left(&asks, s.Now)}
		if r.Standing.Spent+r.Committed+r.price > b.MicroUSD {
			out = append(out, r)
		}
	}
	return out
}

// asks is what the gang would pay by the plan and does not pay yet, in millionths of a
// USD per hour: for launches, and for its parts of machines that Muster has launched, or
// is launching, for others.
func (s *Snapshot) asks(gang *Gang, plan *Verdict) int64 {
	perHour := plan.MicroUSDPerHour
	for _, l := range plan.Shares {
		if g := s.findGroup(l.Group); g != nil {
			perHour += int64(l.Count) * SharedPrice(g.MicroUSDPerHour)
		}
	}
	for i := range plan.Placement {
		p := &plan.Placement[i]
		n := s.Nodes.Find(p.Node)
		if n == nil || n.Launch == "" || n.isPaidBy(gang) {
			continue
		}
		if g := s.findGroup(n.Group); g != nil {
			payers := int64(len(n.Labelled) - len(p.Over) + 1)
			perHour += (g.MicroUSDPerHour + payers - 1) / payers
		}
	}
	return perHour
}

// SharedPrice is what a gang is held to pay for its part of a machine that somebody else
// is getting: half of the price at most, since there are two of them at least.
func SharedPrice(microUSDPerHour int64) int64 { return (microUSDPerHour + 1) / 2 }

func (n *Node) isPaidBy(g *Gang) bool {
	return isLaunchOf(n, g) || g.UID != "" && slices.ContainsFunc(n.Labelled, func(b Booking) bool { return b.UID == g.UID })
}

// Runs is how long the gang's pods run at most, by their activeDeadlineSeconds; zero
// where some have none.
func (g *Gang) Runs() (longest time.Duration) {
	for i := range g.PodSets {
		deadline := g.PodSets[i].Template.Spec.ActiveDeadlineSeconds
		if deadline == nil {
			return 0
		}
		longest = max(longest, time.Duration(*deadline)*time.Second)
	}
	return longest
}

// withinBudgets is the plan where all budgets allow it, else a cheaper one that they
// do, else to wait.
func withinBudgets(s *Snapshot, gang *Gang, policy Policy, plan Verdict) Verdict {
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
		cheaper := unbudgeted(s, *gang, policy)
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
		out.Until = earliest(out.Until, until)
	}
	return out
}

// affords is the most that the gang may cost per hour.
func (r *refusal) affords() int64 {
	hi, lo := bits.Mul64(uint64(r.rest()), hourMilliseconds)
	ms := uint64(max(1, r.left.Milliseconds()))
	if hi >= ms {
		return math.MaxInt64
	}
	rate, _ := bits.Div64(hi, lo, ms)
	return int64(min(rate, math.MaxInt64))
}

// until is when time alone may let the gang begin: once the period is short enough
// that its price until the end is within what may be committed now, at the latest
// when the next one begins. It is not soon: other gangs spend meanwhile.
func (r *refusal) until(now time.Time) time.Time {
	const soon = time.Minute
	hi, lo := bits.Mul64(uint64(r.rest()), uint64(time.Hour))
	at := r.Ends
	if hi < uint64(r.perHour) {
		affordable, _ := bits.Div64(hi, lo, uint64(r.perHour))
		at = r.Ends.Add(-time.Duration(min(affordable, math.MaxInt64)))
	}
	return earliest(r.Ends, latest(at, now.Add(soon)))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// String says what is short, by how much, and what would change it.
func (r *refusal) String() string {
	return fmt.Sprintf("CapacityPolicy %s lets %s spend %s USD in the %s that ends at %s (spec.budgets[name=%s].usd): "+
		"%s are spent, %s set aside for what they have now, and the gang needs %s (%s per hour for %s), %s too much: "+
		"it changes when a gang of theirs ends, when the %s ends, or when an admin raises the field",
		r.Policy, r.sharers(), dollars(r.MicroUSD), r.periodName(), r.Ends.UTC().Format(time.RFC3339), r.Name,
		dollars(r.Standing.Spent), dollars(r.Committed), dollars(r.price), USD(r.perHour), r.left.Truncate(time.Minute),
		dollars(r.Standing.Spent+r.Committed+r.price-r.MicroUSD), r.periodName())
}

// sharers are those who share the budget, in words.
func (b *Budget) sharers() string {
	var out string
	switch len(b.Queues) {
	case 0:
		return "its namespaces"
	case 1:
		out = "LocalQueue " + b.Queues[0] + " of its namespaces"
	default:
		out = "LocalQueues " + strings.Join(b.Queues, ", ") + " of its namespaces"
	}
	if b.QueuedOnly {
		return out
	}
	return out + ", with requests of no queue,"
}

func (b *Budget) periodName() string { return strings.ToLower(string(b.Period)) }

// dollars renders an amount rounded up to cents, or, from 100 USD on, to dollars, so
// that it is not another one every second.
func dollars(micro int64) string {
	unit := int64(1e4)
	if micro >= 100e6 {
		unit = 1e6
	}
	micro = (micro + unit - 1) / unit
	if unit == 1e6 {
		return strconv.FormatInt(micro, 10)
	}
	return fmt.Sprintf("%d.%02d", micro/100, micro%100)
}

// SortCharges puts them in the order of their namespaces, queues and requests.
func SortCharges(c []Charge) {
	slices.SortFunc(c, func(a, b Charge) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Request, b.Request))
	})
}
