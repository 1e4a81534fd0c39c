package spend

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// Budget is the amount that a CapacityPolicy lets namespaces, or their queues, spend together in a period, and their spend.
type Budget struct {
	// Policy and Name of the budget.
	Policy, Name string
	// Covers reports whether the spending of a tenant counts.
	Covers func(state.Tenant) bool
	// Queues are the LocalQueues that share the budget, for messages; empty if all requests of the namespaces do.
	Queues []string
	// QueuedOnly: requests of no queue have no part in a budget of queues.
	QueuedOnly bool
	// MicroUSD may be spent in the period, in millionths of a USD.
	MicroUSD int64
	Period   v1alpha1.BudgetPeriod
	// Starts and Ends bound the period.
	Starts, Ends time.Time
	// Reserve is the time for which the cost of gangs without a known end is committed.
	Reserve time.Duration
	// Spent in the period so far.
	Spent Meter
	// Vain is the cost of launches in vain in the period so far.
	Vain Vain
}

// Vain is the cost of launches in vain in a period, and its limit.
type Vain struct {
	Meter
	// Percent of the spend are allowed, and Minimum whatever was spent, in millionths of a USD.
	Percent, Minimum int64
}

// VainLimit is the limit for launches in vain, by the spend until that time.
func (b *Budget) VainLimit(now time.Time) int64 {
	return max(b.Vain.Minimum, b.Spent.Until(now).MicroUSD/100*b.Vain.Percent)
}

// VainSpent reports whether no launch that is likely to be in vain may begin in the period.
func (b *Budget) VainSpent(now time.Time) bool {
	return now.Before(b.Ends) && b.Vain.Until(now).MicroUSD >= b.VainLimit(now)
}

// Charge is what a request pays for its machines, including those that it has requested.
type Charge struct {
	Request types.UID
	state.Tenant
	MicroUSDPerHour int64
	// Runs is how long its gang runs at most after its pods may be created, which is since Since; zero if it is unknown, or if they may
	// not be created yet.
	Runs  time.Duration
	Since time.Time
}

// SpentOn and VainOn are the amounts of a status for all launches and for those in vain, in millionths of a USD; zero if they are invalid.
func SpentOn(status v1alpha1.BudgetStatus) int64 { return microUSD(status.Spent) }

func VainOn(status v1alpha1.BudgetStatus) int64 { return microUSD(status.SpentInVain) }

func microUSD(amount string) int64 {
	q, err := resource.ParseQuantity(amount)
	if err != nil {
		return 0
	}
	return nodegroups.MicroUSD(&q)
}

// Left is how much longer the charge will be paid within a budget period that ends at Ends.
func (b *Budget) Left(c *Charge, now time.Time) time.Duration {
	left := b.Reserve
	if c.Runs > 0 {
		left = c.Runs
		if !c.Since.IsZero() {
			left -= now.Sub(c.Since)
		}
	}
	return max(0, min(left, b.Ends.Sub(now)))
}

// Standing is the state of a budget at a time, in millionths of a USD.
type Standing struct {
	// Spent is the spend of the period so far, Committed the future cost of machines that are in use or requested.
	Spent, Committed int64
}

// Stands returns the state of the budget with these charges.
func (b *Budget) Stands(charges []Charge, now time.Time) Standing {
	out := Standing{Spent: b.Spent.Until(now).MicroUSD}
	for i := range charges {
		if c := &charges[i]; b.Covers(c.Tenant) {
			out.Committed += b.PriceOf(c, now)
		}
	}
	return out
}

// PriceOf returns the price of the rest of a charge, rounded up. Sums of many do not overflow.
func (b *Budget) PriceOf(c *Charge, now time.Time) int64 {
	const most = 1 << 50
	hi, lo := bits.Mul64(uint64(b.Left(c, now).Milliseconds()), uint64(c.MicroUSDPerHour))
	lo, carry := bits.Add64(lo, HourMilliseconds-1, 0)
	if hi += carry; hi >= HourMilliseconds {
		return most
	}
	price, _ := bits.Div64(hi, lo, HourMilliseconds)
	return int64(min(price, most))
}

// SharedPrice is what counts for a gang's part of a machine that another gang is getting: half of the price, since at least two gangs
// share it.
func SharedPrice(microUSDPerHour int64) int64 { return (microUSDPerHour + 1) / 2 }

// Sharers names the namespaces or queues that share the budget.
func (b *Budget) Sharers() string {
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

func (b *Budget) PeriodName() string { return strings.ToLower(string(b.Period)) }

// SortCharges puts them in the order of their namespaces, queues and requests.
func SortCharges(c []Charge) {
	slices.SortFunc(c, func(a, b Charge) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Request, b.Request))
	})
}

// PriceOf so many milliseconds, rounded down, in millionths of a USD. The product
// needs more than 64 bits: a year at 100 USD an hour is 3×10^18.
func PriceOf(milliseconds, microUSDPerHour int64) int64 {
	hi, lo := bits.Mul64(uint64(milliseconds), uint64(max(0, microUSDPerHour)))
	if hi >= HourMilliseconds {
		return math.MaxInt64
	}
	price, _ := bits.Div64(hi, lo, HourMilliseconds)
	return int64(min(price, math.MaxInt64))
}
