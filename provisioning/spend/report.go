package spend

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
)

// Report is the report on a budget.
type Report struct {
	// Status as it stands.
	Status v1alpha1.BudgetStatus
	// Due reports whether the status on record is not good enough any more.
	Due bool
	// Warning is a sentence for the budget's owners, once a period for each reported percentage of the budget; empty for none.
	// VainWarning is the warning that launches in vain have used up their limit.
	Warning, VainWarning string
}

// The percentages of a budget that are reported, in descending order.
var reportedPercents = []int64{100, 80}

// Report compares the budget with its recorded status, which is the zero value if there is none. A status is due when it is of another
// period, when there is a warning, and when a thousandth of the budget has been spent since.
func (b *Budget) Report(old v1alpha1.BudgetStatus, now time.Time) Report {
	spent, vain := b.Spent.Until(now), b.Vain.Until(now).MicroUSD
	out := Report{Status: v1alpha1.BudgetStatus{
		Name: b.Name, PeriodStart: metav1.NewTime(b.Starts), PeriodEnd: metav1.NewTime(b.Ends),
		Spent: text.USD(spent.MicroUSD), At: metav1.NewMicroTime(spent.At.UTC().Truncate(time.Microsecond)),
		SpentInVain: text.USD(vain), VainLimit: text.USD(b.VainLimit(now)),
	}}
	samePeriod := old.PeriodStart.Time.Equal(b.Starts) && old.PeriodEnd.Time.Equal(b.Ends)
	if samePeriod {
		out.Status.WarnedPercent, out.Status.WarnedInVain = old.WarnedPercent, old.WarnedInVain
	}
	for _, percent := range reportedPercents {
		if spent.MicroUSD > 0 && spent.MicroUSD >= b.MicroUSD/100*percent && int64(out.Status.WarnedPercent) < percent {
			out.Status.WarnedPercent = int32(percent)
			out.Warning = b.warning(percent, spent.MicroUSD)
			break
		}
	}
	if vain > 0 && b.VainSpent(now) && !out.Status.WarnedInVain {
		out.Status.WarnedInVain = true
		out.VainWarning = b.SayVain(now) + ": launches that are likely to be in vain wait until then; all others continue"
	}
	news := max(spent.MicroUSD-SpentOn(old), vain-VainOn(old))
	out.Due = !samePeriod || out.Warning != "" || out.VainWarning != "" || news > b.MicroUSD/1000
	return out
}

// SayVain says how much of the budget launches in vain have cost, their limit, and until when that counts.
func (b *Budget) SayVain(now time.Time) string {
	return fmt.Sprintf("launches in vain have cost %s of the %s USD that CapacityPolicy %s allows them in the %s that ends at %s "+
		"(spec.budgets[name=%s].vainLaunches)", text.Dollars(b.Vain.Until(now).MicroUSD), text.Dollars(b.VainLimit(now)), b.Policy,
		b.PeriodName(), b.Ends.UTC().Format(time.RFC3339), b.Name)
}

func (b *Budget) warning(percent, spent int64) string {
	consequence := "at 100 % gangs of " + b.Sharers() + " wait"
	if percent == 100 {
		consequence = "gangs of " + b.Sharers() + " wait until then"
	}
	return fmt.Sprintf("%s of %s USD of budget %s are spent, at least %d %%, and its %s ends at %s: "+
		"%s, or until spec.budgets[name=%s].usd is raised; running gangs continue",
		text.Dollars(spent), text.Dollars(b.MicroUSD), b.Name, percent, b.PeriodName(), b.Ends.UTC().Format(time.RFC3339), consequence, b.Name)
}
