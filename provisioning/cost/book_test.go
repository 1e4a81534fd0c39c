package cost

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/state"
)

// TestLinesAreOfDays: a machine of 3.6 USD an hour runs from ten seconds before midnight until ten after. What it cost while it joined
// counts when it has, for nothing where its launch fails.
func TestLinesAreOfDays(t *testing.T) {
	midnight := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	tenant := state.Tenant{Namespace: "ns", Queue: "a"}
	by := func(p Purpose, left state.Tenant) Use {
		s := Share{Request: "gang", Tenant: tenant, MicroUSDPerHour: 3_600_000}
		if left != (state.Tenant{}) {
			s = Share{LeftBy: left, MicroUSDPerHour: 3_600_000}
		}
		return Use{Group: "gpu", Purpose: p, Shares: []Share{s}}
	}
	at := func(seconds int) time.Time { return midnight.Add(time.Duration(seconds) * time.Second) }
	l := NewLedger()
	l.Open(at(-20))
	l.Put("a", by(PurposeJoining, state.Tenant{}), at(-15))
	l.Put("b", by(PurposeJoining, state.Tenant{}), at(-15))
	l.Put("a", by(PurposeUsed, state.Tenant{}), at(-10))
	l.Put("a", by(PurposeIdle, tenant), at(10))
	l.Put("b", Use{}, at(5))
	gang := Payer{Request: "gang", Tenant: tenant}
	want := map[Line]Entry{
		{midnight.AddDate(0, 0, -1), Post{"gpu", PurposeJoining}, gang}: {5_000, 5_000},
		{midnight.AddDate(0, 0, -1), Post{"gpu", PurposeUsed}, gang}:    {10_000, 10_000},
		{midnight, Post{"gpu", PurposeUsed}, gang}:                      {10_000, 10_000},
		{midnight, Post{"gpu", PurposeWasted}, gang}:                    {20_000, 20_000},
		{midnight, Post{"gpu", PurposeIdle}, Payer{LeftBy: tenant}}:     {20_000, 20_000},
	}
	if diff := cmp.Diff(want, l.TakeLines(at(30))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := (Payer{LeftBy: tenant}).Cause(); got != tenant {
		t.Errorf("an idle machine is caused by %v, want %v", got, tenant)
	}
	again := map[Line]Entry{{midnight, Post{"gpu", PurposeIdle}, Payer{LeftBy: tenant}}: {1_000, 1_000}}
	if diff := cmp.Diff(again, l.TakeLines(at(31))); diff != "" {
		t.Errorf("taken twice (-want +got)\n%s", diff)
	}
}

// TestLinesAddUpToTheAccount has machines change at random, with several payers and over days, and takes the lines now and then: by group
// and purpose they sum up to what the ledger's posts have, however often they are taken.
func TestLinesAddUpToTheAccount(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		l, now := NewLedger(), noon
		l.Open(now)
		sums := map[Post]Entry{}
		take := func() {
			for line, e := range l.TakeLines(now) {
				sum := sums[line.Post]
				sum.Milliseconds, sum.MicroUSD = sum.Milliseconds+e.Milliseconds, sum.MicroUSD+e.MicroUSD
				sums[line.Post] = sum
			}
		}
		changes := 0
		for range 200 {
			now = now.Add(time.Duration(r.IntN(3600*1000)) * time.Millisecond)
			u := Use{Group: "gpu", Purpose: Purpose(r.IntN(len(Purposes)))}
			for i := range r.IntN(4) {
				u.Shares = append(u.Shares, Share{Request: types.UID(fmt.Sprint(i)), MicroUSDPerHour: 98_320_000 + int64(r.IntN(5))})
			}
			if l.Put(fmt.Sprint(r.IntN(6)), u, now) {
				changes++
			}
			if r.IntN(3) == 0 {
				take()
			}
		}
		for machine := range l.Uses() {
			l.Put(machine, Use{}, now)
		}
		take()
		for post, a := range l.Amounts(now) {
			// Each part of a stay is rounded down by itself, to a millionth of a USD.
			if s := sums[post]; s.MicroUSD > a.MicroUSD+int64(4*changes) || s.MicroUSD < a.MicroUSD-int64(4*changes) ||
				s.Milliseconds > a.Milliseconds || s.Milliseconds < a.Milliseconds-int64(4*changes) {
				t.Fatalf("seed %d: %v has %+v, the lines sum up to %+v", seed, post, a, s)
			}
		}
	}
}
