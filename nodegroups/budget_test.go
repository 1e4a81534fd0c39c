package nodegroups

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestPeriodsOfTheCalendar(t *testing.T) {
	for _, tc := range []struct {
		name            string
		period          v1alpha1.BudgetPeriod
		at, start, ends string
	}{
		{"a day", v1alpha1.BudgetDay, "2026-02-28T12:00:00Z", "2026-02-28", "2026-03-01"},
		{"its first moment", v1alpha1.BudgetDay, "2026-02-28T00:00:00Z", "2026-02-28", "2026-03-01"},
		{"its last moment", v1alpha1.BudgetDay, "2026-02-28T23:59:59.999Z", "2026-02-28", "2026-03-01"},
		{"a day that has begun elsewhere", v1alpha1.BudgetDay, "2026-03-01T01:00:00+02:00", "2026-02-28", "2026-03-01"},
		{"a week over the end of a month", v1alpha1.BudgetWeek, "2026-02-28T12:00:00Z", "2026-02-23", "2026-03-02"},
		{"its Monday", v1alpha1.BudgetWeek, "2026-02-23T00:00:00Z", "2026-02-23", "2026-03-02"},
		{"its Sunday", v1alpha1.BudgetWeek, "2026-03-01T23:59:59Z", "2026-02-23", "2026-03-02"},
		{"a short month", v1alpha1.BudgetMonth, "2026-02-28T12:00:00Z", "2026-02-01", "2026-03-01"},
		{"the last of a year", v1alpha1.BudgetMonth, "2026-12-31T23:59:59Z", "2026-12-01", "2027-01-01"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339Nano, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			start, end := PeriodAt(tc.period, at)
			if got := [2]string{start.Format(time.RFC3339), end.Format(time.RFC3339)}; got != [2]string{tc.start + "T00:00:00Z",
				tc.ends + "T00:00:00Z"} {
				t.Errorf("%s lies in %v, want from %s until %s", tc.at, got, tc.start, tc.ends)
			}
		})
	}
}
