package cost

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Budgets are the budgets of all CapacityPolicies, by policy and name. Their spend continues from the status of the policy.
type Budgets struct {
	list   []*budget
	ledger *Ledger
	// paidSince is from when on a request has paid for a machine.
	paidSince func(machine string, request types.UID) time.Time
}

// NewBudgets returns no budgets. The costs of machines are in the ledger, and paidSince returns since when a request has paid for a
// machine.
func NewBudgets(l *Ledger, paidSince func(machine string, request types.UID) time.Time) Budgets {
	return Budgets{ledger: l, paidSince: paidSince}
}

// Any reports whether there are budgets.
func (bs *Budgets) Any() bool { return len(bs.list) > 0 }

// budget is a budget with its recorded spend.
type budget struct {
	spend.Budget
	selector labels.Selector
	// known is the status that the budget continues from, as it was last read or written.
	known v1alpha1.BudgetStatus
	// begun: the spend is known.
	begun bool
}

// Set reads the budgets of the policies, for the namespaces with these labels. The spend of a budget stays with its name, unless others
// have written its status.
func (bs *Budgets) Set(policies []*v1alpha1.CapacityPolicy, namespaces map[string]labels.Set) {
	var list []*budget
	for _, p := range policies {
		for i := range p.Spec.Budgets {
			spec := &p.Spec.Budgets[i]
			b := bs.find(p.Name, spec.Name)
			if b == nil {
				b = &budget{}
			}
			b.Policy, b.Name, b.MicroUSD, b.Reserve = p.Name, spec.Name, nodegroups.MicroUSD(&spec.USD), defaultReserve
			if spec.Reserve != nil {
				b.Reserve = spec.Reserve.Duration
			}
			b.Vain.Percent, b.Vain.Minimum = defaultVainPercent, b.MicroUSD/100
			if percent := spec.VainLaunches.Percent; percent != nil {
				b.Vain.Percent = int64(*percent)
			}
			if minimum := spec.VainLaunches.MinimumUSD; minimum != nil {
				b.Vain.Minimum = nodegroups.MicroUSD(minimum)
			}
			if b.Period != spec.Period {
				b.Period, b.Ends = spec.Period, time.Time{}
			}
			b.selector, b.Queues, b.QueuedOnly = transaction.NamespacesOf(spec.NamespaceSelector), spec.Queues, spec.QueuedOnly
			if status := statusIn(p, spec.Name); !equality.Semantic.DeepEqual(status, b.known) {
				b.known, b.begun = status, false
			}
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b *budget) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Name, b.Name))
	})
	for _, b := range list {
		b.Covers = b.coveredBy(namespaces)
	}
	bs.list = list
}

// defaultReserve and defaultVainPercent are the API server's defaults, for objects that have not been through it.
const (
	defaultReserve     = 24 * time.Hour
	defaultVainPercent = 5
)

func (bs *Budgets) find(policy, name string) *budget {
	i := slices.IndexFunc(bs.list, func(b *budget) bool { return b.Policy == policy && b.Name == name })
	if i < 0 {
		return nil
	}
	return bs.list[i]
}

// statusIn returns the status of a budget of a policy; the zero value if it has none.
func statusIn(p *v1alpha1.CapacityPolicy, name string) (out v1alpha1.BudgetStatus) {
	for _, s := range p.Status.Budgets {
		if s.Name == name {
			return s
		}
	}
	return out
}

// Refresh updates the spend, and reports whether a period has begun: requests may fit their budgets again.
func (bs *Budgets) Refresh(now time.Time) (begun bool) {
	vain, rates := bs.ledger.TakeVain(), bs.ledger.VainRates()
	for _, b := range bs.list {
		if !now.Before(b.Ends) && b.begin(now) {
			begun = true
		}
		if !b.begun {
			bs.goOn(b, now)
		}
		b.Spent = b.Spent.Rated(bs.rateOf(b), now)
		b.Vain.Meter = b.Vain.Rated(b.part(rates), now)
		b.Vain.MicroUSD += b.part(vain)
	}
	return begun
}

// coveredBy reports of tenants whether the budget selects them, as namespaces are now. What
// names no queue counts for those of all queues, else it would evade them.
func (b *budget) coveredBy(namespaces map[string]labels.Set) func(state.Tenant) bool {
	selector, queues, queuedOnly := b.selector, b.Queues, b.QueuedOnly
	known := make(map[string]bool, len(namespaces))
	for name, set := range namespaces {
		known[name] = selector.Matches(set)
	}
	return func(t state.Tenant) bool {
		if len(queues) > 0 && !slices.Contains(queues, t.Queue) && (t.Queue != "" || queuedOnly) {
			return false
		}
		covered, ok := known[t.Namespace]
		return ok && covered || !ok && selector.Matches(labels.Set{corev1.LabelMetadataName: t.Namespace})
	}
}

// begin starts a period of the budget, and reports whether it had another one before.
func (b *budget) begin(now time.Time) bool {
	first := b.Ends.IsZero()
	b.Starts, b.Ends = nodegroups.PeriodAt(b.Period, now)
	if !first {
		b.Spent = spend.Meter{At: b.Starts, MicroUSDPerHour: b.Spent.MicroUSDPerHour}
		b.Vain.Meter = spend.Meter{At: b.Starts, MicroUSDPerHour: b.Vain.MicroUSDPerHour}
	}
	return !first
}

// goOn continues a budget from its record, if that is about this period. Machines in use have cost money since the record, or since they
// were created.
func (bs *Budgets) goOn(b *budget, now time.Time) {
	b.begun = true
	b.Spent, b.Vain.Meter = spend.Meter{At: now}, spend.Meter{At: now}
	if b.known.At.IsZero() {
		return
	}
	at := b.known.At.Time
	if b.known.PeriodStart.Time.Before(b.Starts) {
		at = b.Starts
	} else {
		b.Spent.MicroUSD, b.Vain.MicroUSD = spend.SpentOn(b.known), spend.VainOn(b.known)
	}
	for machine, use := range bs.ledger.Uses() {
		for _, s := range use.Shares {
			if !use.Launched || !b.Covers(s.Tenant) {
				continue
			}
			since := bs.paidSince(machine, s.Request)
			if since.Before(at) {
				since = at
			}
			b.Spent.MicroUSD += spend.Meter{At: since, MicroUSDPerHour: s.MicroUSDPerHour}.Until(now).MicroUSD
		}
	}
}

// rateOf returns the cost of the machines that count for the budget, in millionths of a USD per hour.
func (bs *Budgets) rateOf(b *budget) (perHour int64) {
	for p, r := range bs.ledger.Rates() {
		if p.Namespace != "" && b.Covers(p.Tenant) {
			perHour += r.Launched
		}
	}
	return perHour
}

// part of amounts that counts for the budget.
func (b *budget) part(amounts map[state.Tenant]int64) (sum int64) {
	for tenant, amount := range amounts {
		if tenant.Namespace != "" && b.Covers(tenant) {
			sum += amount
		}
	}
	return sum
}

// Now returns the current budgets.
func (bs *Budgets) Now() []spend.Budget {
	if len(bs.list) == 0 {
		return nil
	}
	out := make([]spend.Budget, len(bs.list))
	for i, b := range bs.list {
		out[i] = b.Budget
	}
	return out
}

// PeriodOver reports whether a period of a budget has ended by that time.
func (bs *Budgets) PeriodOver(now time.Time) bool {
	return slices.ContainsFunc(bs.list, func(b *budget) bool { return !now.Before(b.Ends) })
}

// Reports returns the reports on the policy's budgets, in their order.
func (bs *Budgets) Reports(p *v1alpha1.CapacityPolicy, now time.Time) (out []spend.Report) {
	for i := range p.Spec.Budgets {
		if b := bs.find(p.Name, p.Spec.Budgets[i].Name); b != nil {
			out = append(out, b.Report(statusIn(p, b.Name), now))
		}
	}
	return out
}

// Written stores the status of a policy that Muster itself has just written: its budgets continue from the counted spend.
func (bs *Budgets) Written(p *v1alpha1.CapacityPolicy) {
	for _, b := range bs.list {
		if b.Policy == p.Name {
			b.known = statusIn(p, b.Name)
		}
	}
}
