package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// BudgetCost is how a budget of a CapacityPolicy stands. That of a manager counts what is spent of the budget of the same policy, name
// and period in its workers, too.
type BudgetCost struct {
	CapacityPolicy string `json:"capacityPolicy"`
	Budget         string `json:"budget"`
	// Cluster that has it, where the manager has none of that name; empty for the cluster that was asked.
	Cluster string `json:"cluster,omitempty"`
	Period  string `json:"period"`
	// Ends is when the period ends.
	Ends string `json:"ends"`
	USD  string `json:"usd"`
	// Spent in the period so far, in USD, as CapacityPolicies have it in their status. Left is the rest; USDPerHour what machines that Muster
	// has launched take of it now.
	Spent      string `json:"usdSpent"`
	Left       string `json:"usdLeft"`
	USDPerHour string `json:"usdPerHour"`
	// RunsOut is when nothing is left at the rate of now; empty if that is not before the end of the period.
	RunsOut string `json:"runsOut,omitempty"`
	// SpentInVain is what launches in vain have cost in the period, in the cluster that has the budget, and VainLimit what they may.
	SpentInVain string `json:"usdSpentInVain"`
	VainLimit   string `json:"usdVainLimit"`
	// Uncounted are the workers whose spend is not counted: they were not read, or have no such budget.
	Uncounted []string `json:"uncountedClusters,omitempty"`
}

// budgetCosts are the budgets, those of the cluster that was asked first.
func (b *bill) budgetCosts(p *Picture, workers []Worker) (out []BudgetCost) {
	for i := range p.Snapshot.Budgets {
		budget := &p.Snapshot.Budgets[i]
		if !b.concerns(budget, p) {
			continue
		}
		spent, perHour := budget.Spent.Until(p.Now).MicroUSD, b.rate("", budget)
		var uncounted []string
		for j := range workers {
			w := &workers[j]
			there := w.budget(budget)
			if there == nil {
				uncounted = append(uncounted, w.Name)
				continue
			}
			spent, perHour = spent+there.Spent.Until(w.Picture.Now).MicroUSD, perHour+b.rate(w.Name, there)
		}
		out = append(out, budgetCost("", budget, p.Now, spent, perHour, uncounted))
	}
	for i := range workers {
		w := &workers[i]
		if w.Picture == nil {
			continue
		}
		for j := range w.Picture.Snapshot.Budgets {
			budget := &w.Picture.Snapshot.Budgets[j]
			if b.concerns(budget, w.Picture) &&
				!slices.ContainsFunc(p.Snapshot.Budgets, func(o spend.Budget) bool { return isSame(&o, budget) }) {
				out = append(out, budgetCost(w.Name, budget, w.Picture.Now, budget.Spent.Until(w.Picture.Now).MicroUSD, b.rate(w.Name, budget), nil))
			}
		}
	}
	return out
}

// concerns reports whether requests of the namespace count in a budget of a cluster.
func (b *bill) concerns(budget *spend.Budget, p *Picture) bool {
	if b.namespace == "" || budget.Covers(state.Tenant{Namespace: b.namespace}) {
		return true
	}
	for queue := range p.localQueues {
		if queue.Namespace == b.namespace && budget.Covers(state.Tenant{Namespace: queue.Namespace, Queue: queue.Name}) {
			return true
		}
	}
	return false
}

// rate is what machines of a cluster that Muster has launched take of a budget there, in millionths of a USD per hour.
func (b *bill) rate(cluster string, of *spend.Budget) (perHour int64) {
	for t, rate := range b.launched {
		if t.cluster == cluster && t.namespace != "" && of.Covers(state.Tenant{Namespace: t.namespace, Queue: t.queue}) {
			perHour += rate
		}
	}
	return perHour
}

func budgetCost(cluster string, b *spend.Budget, now time.Time, spent, perHour int64, uncounted []string) BudgetCost {
	return BudgetCost{
		CapacityPolicy: b.Policy, Budget: b.Name, Cluster: cluster, Period: b.PeriodName(), Ends: stamp(b.Ends), Uncounted: uncounted,
		USD: cents(b.MicroUSD), Spent: cents(spent), Left: cents(max(0, b.MicroUSD-spent)), USDPerHour: text.USD(perHour),
		SpentInVain: cents(b.Vain.Until(now).MicroUSD), VainLimit: cents(b.VainLimit(now)),
		RunsOut: stamp(runsOut(b.MicroUSD-spent, perHour, now, b.Ends)),
	}
}

// runsOut returns when nothing is left at a rate per hour; zero if that is already so, or not before the end.
func runsOut(left, perHour int64, now, end time.Time) time.Time {
	if remaining := end.Sub(now).Hours() * float64(perHour); left <= 0 || float64(left) >= remaining {
		return time.Time{}
	}
	return now.Add(time.Duration(float64(left) / float64(perHour) * float64(time.Hour)))
}

// cents writes an amount of money, rounded down.
func cents(microUSD int64) string {
	const cent = 10_000
	return text.USD(microUSD / cent * cent)
}

// budget is the one of the worker that counts for a budget of its manager; nil for none.
func (w *Worker) budget(of *spend.Budget) *spend.Budget {
	if w.Picture == nil {
		return nil
	}
	all := w.Picture.Snapshot.Budgets
	i := slices.IndexFunc(all, func(b spend.Budget) bool { return isSame(&b, of) })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func isSame(a, b *spend.Budget) bool {
	return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Period, b.Period)) == 0
}
