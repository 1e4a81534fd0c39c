package spend

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestVainLaunches: a budget's day has 12 hours left.
func TestVainLaunches(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name                           string
		spent, vain, percent, minimum  int64 // in USD
		after                          time.Duration
		wantLimit                      int64
		wantSpent                      bool
		warnedBefore, warning, wantDue bool
	}{
		{name: "the minimum is allowed before anything was spent", vain: 9, percent: 5, minimum: 10, wantLimit: 10, wantDue: true},
		{name: "and no more", vain: 10, percent: 5, minimum: 10, wantLimit: 10, wantSpent: true, warning: true, wantDue: true},
		{name: "a share of a large spend is more", spent: 400, vain: 19, percent: 5, minimum: 10, wantLimit: 20, wantDue: true},
		{name: "and a small share is less", spent: 100, vain: 9, percent: 5, minimum: 10, wantLimit: 10, wantDue: true},
		{name: "it is spent once", spent: 400, vain: 20, percent: 5, minimum: 10, wantLimit: 20, wantSpent: true, warning: true, wantDue: true},
		{name: "and is told once", spent: 400, vain: 20, percent: 5, minimum: 10, wantLimit: 20, wantSpent: true, warnedBefore: true, wantDue: true},
		{name: "without a minimum a first launch in vain is the last", vain: 1, percent: 5, wantLimit: 0, wantSpent: true, warning: true, wantDue: true},
		{name: "with neither there is none to warn of", wantSpent: true},
		{name: "the next period begins with none", vain: 30, percent: 5, minimum: 10, after: 12 * time.Hour, wantLimit: 10, wantDue: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			starts, ends := noon.Add(-12*time.Hour), noon.Add(12*time.Hour)
			b := Budget{Policy: "p", Name: "team", Period: v1alpha1.BudgetDay, Starts: starts, Ends: ends, MicroUSD: 1000e6,
				Spent: Meter{At: noon, MicroUSD: tc.spent * 1e6}, Vain: Vain{Meter{At: noon, MicroUSD: tc.vain * 1e6}, tc.percent, tc.minimum * 1e6}}
			now := noon.Add(tc.after)
			if got := b.VainLimit(now); got != tc.wantLimit*1e6 {
				t.Errorf("the limit is %d millionths of a USD, want %d USD", got, tc.wantLimit)
			}
			if got := b.VainSpent(now); got != tc.wantSpent {
				t.Errorf("spent is %t, want %t", got, tc.wantSpent)
			}
			old := b.Report(v1alpha1.BudgetStatus{}, noon).Status
			old.SpentInVain, old.WarnedInVain = "0", tc.warnedBefore
			r := b.Report(old, now)
			if (r.VainWarning != "") != tc.warning || r.Due != tc.wantDue || r.Status.WarnedInVain != (tc.warning || tc.warnedBefore) {
				t.Errorf("due is %t, warned %t with %q; want due %t, a warning %t", r.Due, r.Status.WarnedInVain, r.VainWarning, tc.wantDue, tc.warning)
			}
			if VainOn(r.Status) != b.Vain.MicroUSD {
				t.Errorf("the status says %s, want %d millionths of a USD", r.Status.SpentInVain, b.Vain.MicroUSD)
			}
		})
	}
}

func TestSayVain(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	b := Budget{Policy: "p", Name: "team", Period: v1alpha1.BudgetDay, Ends: noon.Add(12 * time.Hour),
		Vain: Vain{Meter{At: noon, MicroUSD: 54.68e6}, 5, 50e6}}
	want := "launches in vain have cost 54.68 of the 50.00 USD that CapacityPolicy p allows them in the day that ends at " +
		"2026-01-02T00:00:00Z (spec.budgets[name=team].vainLaunches)"
	if diff := cmp.Diff(want, b.SayVain(noon)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
