package nodegroups

import (
	"time"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// PeriodAt returns the period of a budget that contains the time: from start until end, which is the start of the next one.
func PeriodAt(p v1alpha1.BudgetPeriod, at time.Time) (start, end time.Time) {
	y, m, d := at.UTC().Date()
	switch p {
	case v1alpha1.BudgetMonth:
		start = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
		return start, start.AddDate(0, 1, 0)
	case v1alpha1.BudgetWeek:
		start = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		sinceMonday := (int(start.Weekday()) + 6) % 7
		start = start.AddDate(0, 0, -sinceMonday)
		return start, start.AddDate(0, 0, 7)
	default:
		start = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		return start, start.AddDate(0, 0, 1)
	}
}
