package cost

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
)

// TestWhatIsInVain: a machine of 36 USD an hour, a cent a second, is put to each use for 100 seconds and is gone then.
func TestWhatIsInVain(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tenant := state.Tenant{Namespace: "ns", Queue: "train"}
	const joining, booked, used, idle, wasted = PurposeJoining, PurposeBooked, PurposeUsed, PurposeIdle, PurposeWasted
	for _, tc := range []struct {
		name   string
		uses   []Purpose
		theirs bool  // Muster has not launched it
		want   int64 // in USD
	}{
		{name: "one that went while its attempt waited for it", uses: []Purpose{joining}, want: 1},
		{name: "one of an attempt that is rolled back, until its end", uses: []Purpose{joining, wasted}, want: 2},
		{name: "also where no attempt owns it in the end", uses: []Purpose{joining, wasted, idle}, want: 3},
		{name: "one that a process finds that has not seen it join", uses: []Purpose{wasted}, want: 1},
		{name: "one that a gang has booked is not", uses: []Purpose{joining, booked}},
		{name: "nor one that it uses", uses: []Purpose{joining, used}},
		{name: "however long it is idle then", uses: []Purpose{joining, used, idle}},
		{name: "nor is an idle one that no attempt of this process has launched", uses: []Purpose{idle}},
		{name: "one that another gang uses after a rollback has cost its time before", uses: []Purpose{joining, wasted, used}, want: 2},
		{name: "nor one of others", uses: []Purpose{joining, wasted}, theirs: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, now, got := NewLedger(), noon, spend.Meter{At: noon}
			refresh := func() {
				taken, rates := l.TakeVain(), l.VainRates()
				for _, amounts := range []map[state.Tenant]int64{taken, rates} {
					for of, amount := range amounts {
						if of != tenant && amount != 0 {
							t.Errorf("%d is charged to %v, want %v alone", amount, of, tenant)
						}
					}
				}
				got = got.Rated(rates[tenant], now)
				got.MicroUSD += taken[tenant]
			}
			for _, p := range tc.uses {
				s := Share{MicroUSDPerHour: 36e6}
				if p != idle { // which no request pays for
					s.Request, s.Tenant = "gang", tenant
				}
				l.Put("a", Use{Group: "gpu", Purpose: p, Launched: !tc.theirs, Shares: []Share{s}}, now)
				refresh()
				now = now.Add(100 * time.Second)
			}
			l.Put("a", Use{}, now)
			refresh()
			now = now.Add(time.Hour)
			refresh()
			if got.MicroUSD != tc.want*1e6 {
				t.Errorf("%d millionths of a USD, want %d USD", got.MicroUSD, tc.want)
			}
		})
	}
}
