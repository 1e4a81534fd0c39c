package cost

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

func TestPurposeOf(t *testing.T) {
	booking := []state.Booking{{Key: "gang"}}
	for _, tc := range []struct {
		name   string
		state  cloudprovider.State
		launch transaction.AttemptPhase
		node   *state.Node
		want   Purpose
	}{
		{"a machine that boots", cloudprovider.Booting, transaction.Launching, nil, PurposeJoining},
		{"a young node", cloudprovider.Running, transaction.Launching, &state.Node{Cordon: state.Joining}, PurposeJoining},
		{"one that is booked, while the gang is not complete", cloudprovider.Running, transaction.Launching, &state.Node{Cordon: state.Held, Bookings: booking}, PurposeJoining},
		{"a machine that is rolled back", cloudprovider.Booting, transaction.RollingBack, nil, PurposeWasted},
		{"a node that is rolled back", cloudprovider.Running, transaction.RollingBack, &state.Node{Cordon: state.Joining}, PurposeWasted},
		{"a machine that nobody waits for any more", cloudprovider.Booting, transaction.Done, nil, PurposeWasted},
		{"a young node that nobody waits for any more", cloudprovider.Running, transaction.Done, &state.Node{Cordon: state.Joining}, PurposeWasted},
		{"a machine whose node was deleted", cloudprovider.Running, transaction.Done, nil, PurposeIdle},
		{"a booked node", cloudprovider.Running, transaction.Done, &state.Node{Cordon: state.Held, Bookings: booking}, PurposeBooked},
		{"a launched node, whose gang is complete", cloudprovider.Running, transaction.Done, &state.Node{Cordon: state.Joining, InFlight: true}, PurposeBooked},
		{"a node with pods", cloudprovider.Running, transaction.Done, &state.Node{Pods: 2}, PurposeUsed},
		{"a node none of whose pods can start", cloudprovider.Running, transaction.Done, &state.Node{Pods: 2, Blocked: 2}, PurposeWasted},
		{"one of whose pods cannot start", cloudprovider.Running, transaction.Done, &state.Node{Pods: 2, Blocked: 1}, PurposeUsed},
		{"and room that is booked", cloudprovider.Running, transaction.Done, &state.Node{Pods: 2, Bookings: booking}, PurposeUsed},
		{"a node with strays", cloudprovider.Running, transaction.Done, &state.Node{Pods: 2, Strays: make([]state.Stray, 2)}, PurposeIdle},
		{"that is booked", cloudprovider.Running, transaction.Done, &state.Node{Pods: 1, Strays: make([]state.Stray, 1), Bookings: booking}, PurposeBooked},
		{"an idle node", cloudprovider.Running, transaction.Done, &state.Node{}, PurposeIdle},
		{"one that is terminated", cloudprovider.Running, transaction.Done, &state.Node{Cordon: state.ScalingDown}, PurposeIdle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := PurposeOf(cloudprovider.Machine{State: tc.state}, tc.launch, tc.node); got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
		})
	}
}

func use(p Purpose, microUSDPerHour int64) Use {
	return Use{Group: "gpu", Purpose: p, Shares: []Share{{MicroUSDPerHour: microUSDPerHour}}}
}

// TestAccount follows one machine of 3.6 USD an hour, a thousandth of a USD a
// second.
func TestAccount(t *testing.T) {
	const price, perSecond = 3_600_000, 1000
	type entry struct {
		after   time.Duration
		purpose Purpose
		gone    bool
	}
	spent := func(seconds int64, machines int) Amount {
		return Amount{Machines: machines, Milliseconds: 1000 * seconds, MicroUSD: perSecond * seconds}
	}
	unused := func(seconds int64) Amount {
		out := spent(seconds, 0)
		out.UnusedMilliseconds, out.UnusedMicroUSD = out.Milliseconds, out.MicroUSD
		return out
	}
	for _, tc := range []struct {
		name    string
		entries []entry
		// at is when the account is read.
		at   time.Duration
		want map[Purpose]Amount
	}{
		{"a machine in use costs all the time", []entry{{0, PurposeUsed, false}}, 10 * time.Second, map[Purpose]Amount{PurposeUsed: spent(10, 1)}},
		{"what it is for changes", []entry{{0, PurposeUsed, false}, {4 * time.Second, PurposeIdle, false}}, 10 * time.Second,
			map[Purpose]Amount{PurposeUsed: spent(4, 0), PurposeIdle: spent(6, 1)}},
		{"to hear twice of the same changes nothing", []entry{{0, PurposeUsed, false}, {4 * time.Second, PurposeUsed, false}}, 10 * time.Second,
			map[Purpose]Amount{PurposeUsed: spent(10, 1)}},
		{"when it is gone it costs no more", []entry{{0, PurposeUsed, false}, {4 * time.Second, 0, true}, {5 * time.Second, 0, true}}, 10 * time.Second,
			map[Purpose]Amount{PurposeUsed: spent(4, 0)}},
		{"one that joins is there, and counts when it has", []entry{{0, PurposeJoining, false}}, 10 * time.Second,
			map[Purpose]Amount{PurposeJoining: spent(0, 1)}},
		{"it was worth it", []entry{{0, PurposeJoining, false}, {4 * time.Second, PurposeBooked, false}}, 10 * time.Second,
			map[Purpose]Amount{PurposeJoining: spent(4, 0), PurposeBooked: spent(6, 1)}},
		{"it was wasted", []entry{{0, PurposeJoining, false}, {4 * time.Second, PurposeWasted, false}, {5 * time.Second, 0, true}}, 10 * time.Second,
			map[Purpose]Amount{PurposeWasted: spent(5, 0)}},
		{"also if it ends at once", []entry{{0, PurposeJoining, false}, {4 * time.Second, 0, true}}, 10 * time.Second,
			map[Purpose]Amount{PurposeWasted: spent(4, 0)}},
		{"a booking that pods came for was of use", []entry{{0, PurposeBooked, false}, {4 * time.Second, PurposeUsed, false}}, 10 * time.Second,
			map[Purpose]Amount{PurposeBooked: spent(4, 0), PurposeUsed: spent(6, 1)}},
		{"one that nobody came for was not", []entry{{0, PurposeBooked, false}, {4 * time.Second, PurposeIdle, false}}, 10 * time.Second,
			map[Purpose]Amount{PurposeBooked: unused(4), PurposeIdle: spent(6, 1)}},
		{"nor was that of a machine that ended first", []entry{{0, PurposeBooked, false}, {4 * time.Second, 0, true}}, 10 * time.Second,
			map[Purpose]Amount{PurposeBooked: unused(4)}},
		{"of one that is not over nobody can say", []entry{{0, PurposeBooked, false}}, 10 * time.Second,
			map[Purpose]Amount{PurposeBooked: spent(10, 1)}},
		{"a clock that was set back gives nothing back", []entry{{0, PurposeUsed, false}, {-time.Second, PurposeIdle, false}}, -2 * time.Second,
			map[Purpose]Amount{PurposeUsed: spent(0, 0), PurposeIdle: spent(0, 1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := NewLedger()
			l.Open(noon)
			for _, e := range tc.entries {
				if now := noon.Add(e.after); e.gone {
					l.Put("a", Use{}, now)
				} else {
					l.Put("a", use(e.purpose, price), now)
				}
			}
			want := map[Post]Amount{}
			for p, amount := range tc.want {
				want[Post{"gpu", p}] = amount
			}
			if diff := cmp.Diff(want, l.Amounts(noon.Add(tc.at))); diff != "" {
				t.Errorf("amounts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPriceThatChangesHoldsFromThen: a second costs a thousandth of a USD, then two.
// What a machine costs while it joins is still not counted before it is known what for.
func TestAPriceThatChangesHoldsFromThen(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	l := NewLedger()
	l.Open(noon)
	for _, machine := range []string{"joined", "failed"} {
		l.Put(machine, use(PurposeJoining, 3_600_000), at(0))
		l.Put(machine, use(PurposeJoining, 7_200_000), at(10))
	}
	if diff := cmp.Diff(map[Post]Amount{{"gpu", PurposeJoining}: {Machines: 2}}, l.Amounts(at(15))); diff != "" {
		t.Errorf("while they join (-want +got):\n%s", diff)
	}
	l.Put("joined", use(PurposeUsed, 7_200_000), at(15))
	l.Put("joined", use(PurposeUsed, 3_600_000), at(20))
	l.Put("failed", Use{}, at(15))
	want := map[Post]Amount{
		{"gpu", PurposeJoining}: {Milliseconds: 15_000, MicroUSD: 10*1000 + 5*2000},
		{"gpu", PurposeWasted}:  {Milliseconds: 15_000, MicroUSD: 10*1000 + 5*2000},
		{"gpu", PurposeUsed}:    {Machines: 1, Milliseconds: 10_000, MicroUSD: 5*2000 + 5*1000},
	}
	if diff := cmp.Diff(want, l.Amounts(at(25))); diff != "" {
		t.Errorf("in the end (-want +got):\n%s", diff)
	}
}

// TestAccountsAddUp has machines change at random, and compares what the account
// says with the life of each machine: nothing is counted twice, nothing is missing
// but what is still joining, and no amount ever falls.
func TestAccountsAddUp(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		l := NewLedger()
		l.Open(noon)
		now := noon
		born, joining := map[string]time.Time{}, map[string]time.Time{}
		var lived time.Duration
		before := map[Post]Amount{}
		for range 100 {
			now = now.Add(time.Duration(r.IntN(10)) * time.Second)
			name := string(rune('a' + r.IntN(6)))
			began, exists := born[name]
			switch purpose := Purpose(r.IntN(len(Purposes))); {
			case exists && r.IntN(4) == 0:
				lived += now.Sub(began)
				delete(born, name)
				delete(joining, name)
				l.Put(name, Use{}, now)
			default:
				if !exists {
					born[name] = now
				}
				if _, joins := joining[name]; purpose != PurposeJoining {
					delete(joining, name)
				} else if !joins {
					joining[name] = now
				}
				l.Put(name, use(purpose, 3_600_000), now)
			}
			got, want := l.Amounts(now), lived
			for name, began := range born {
				want += now.Sub(began)
				if since, joins := joining[name]; joins {
					want -= now.Sub(since)
				}
			}
			var machines int
			var ms, usd int64
			for p, amount := range got {
				machines, ms, usd = machines+amount.Machines, ms+amount.Milliseconds, usd+amount.MicroUSD
				if amount.UnusedMilliseconds > amount.Milliseconds || amount.UnusedMicroUSD > amount.MicroUSD {
					t.Fatalf("seed %d: of %v more was unused than there was: %+v", seed, p, amount)
				}
				if old := before[p]; amount.Milliseconds < old.Milliseconds || amount.MicroUSD < old.MicroUSD {
					t.Fatalf("seed %d: %v fell from %+v to %+v", seed, p, old, amount)
				}
			}
			if machines != len(born) || ms != want.Milliseconds() || usd != want.Milliseconds() {
				t.Fatalf("seed %d: %d machines, %d ms, %d millionths of a USD; want %d, and %d of each", seed, machines, ms, usd, len(born),
					want.Milliseconds())
			}
			before = got
		}
	}
}

func TestPriceOf(t *testing.T) {
	const year = int64(365 * 24 * time.Hour / time.Millisecond)
	for _, tc := range []struct{ ms, perHour, want int64 }{
		{0, 98_320_000, 0},
		{1, 3_599_999, 0}, // less than a millionth is rounded down
		{1, 3_600_000, 1},
		{3_600_000, 98_320_000, 98_320_000},
		{year, 98_320_000, 365 * 24 * 98_320_000}, // the product does not fit into 64 bits
		{year, 1e15, 365 * 24 * 1e15},
		{1 << 62, 1 << 62, 1<<63 - 1},
	} {
		if got := spend.PriceOf(tc.ms, tc.perHour); got != tc.want {
			t.Errorf("%d ms at %d an hour cost %d, want %d", tc.ms, tc.perHour, got, tc.want)
		}
	}
}
