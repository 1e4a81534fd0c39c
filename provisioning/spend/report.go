package spend

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
)

// Report is what is to be told of a budget.
type Report struct {
	// Status as it stands.
	Status v1alpha1.BudgetStatus
	// Due reports whether the status on record is not good enough any more.
	Due bool
	// Warning is a sentence for the budget's owners, once a period for each share of the
	// budget that they are told of; empty for none.
	Warning string
}

// shares of a budget that people are told of, in percent, in descending order.
var toldPercents = []int64{100, 80}

// Report says how the budget stands beside what is on record of it, which is the zero
// value where that is nothing. A status is due when it is of another period, when
// there is a warning, and when a thousandth of the budget has been spent since.
func (b *Budget) Report(old v1alpha1.BudgetStatus, now time.Time) Report {
	spent := b.Spent.Until(now)
	out := Report{Status: v1alpha1.BudgetStatus{
		Name: b.Name, PeriodStart: metav1.NewTime(b.Starts), PeriodEnd: metav1.NewTime(b.Ends),
		Spent: text.USD(spent.MicroUSD), At: metav1.NewMicroTime(spent.At.UTC().Truncate(time.Microsecond)),
	}}
	samePeriod := old.PeriodStart.Time.Equal(b.Starts) && old.PeriodEnd.Time.Equal(b.Ends)
	if samePeriod {
		out.Status.WarnedPercent = old.WarnedPercent
	}
	for _, percent := range toldPercents {
		if spent.MicroUSD > 0 && spent.MicroUSD >= b.MicroUSD/100*percent && int64(out.Status.WarnedPercent) < percent {
			out.Status.WarnedPercent = int32(percent)
			out.Warning = b.warning(percent, spent.MicroUSD)
			break
		}
	}
	out.Due = !samePeriod || out.Warning != "" || spent.MicroUSD-SpentOn(old) > b.MicroUSD/1000
	return out
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
