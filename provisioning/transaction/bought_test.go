package transaction

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
)

// seller sells machines to a request, and does to them what the test says.
type seller struct {
	*story
	*testing.T
	// befalls is what becomes of the machines that were sold, before the request is decided again.
	befalls func(*seller)
	// refuses is the class with which a call is refused, after the machines were made; empty for none.
	refuses v1alpha1.ErrorClass
	sold    int
	// stops are when the request was stopped, explained how many machines refusals explain.
	stops     []time.Time
	explained int
	status    v1alpha1.NodeGroupStatus
}

// vanish has all machines go from the lists of their cloud.
func vanish(m *seller) { m.view.Machines = nil }

// endByOthers has all machines terminated by others.
func endByOthers(m *seller) {
	for i := range m.view.Machines {
		m.view.Machines[i].State = cloudprovider.Terminated
	}
}

// neverJoin leaves them as they are.
func neverJoin(*seller) {}

// trade decides and acts until the time is over.
func (m *seller) trade(until time.Time) {
	m.Helper()
	for steps := 0; m.view.Now.Before(until); steps++ {
		if steps > 10_000 {
			m.Fatalf("the request is decided without end at %s", m.view.Now)
		}
		m.befalls(m)
		m.act(Next(&m.request, m.view))
	}
}

// act does what the step says.
func (m *seller) act(s Step) {
	m.Helper()
	if s.Purchases != nil {
		if s.Purchases.Stops > m.request.Purchases.Stops {
			m.stops = append(m.stops, m.view.Now)
		}
		var kept purchases.Record
		if err := json.Unmarshal([]byte(s.Purchases.Encode()), &kept); err != nil {
			m.Fatal(err)
		}
		m.request.Purchases = kept
	}
	for _, l := range s.Outcomes {
		m.status = nodegroups.Learn(m.status, l.LaunchAttempt)
		m.view.Groups[0].Backoffs, m.view.Groups[0].Ledger = m.status.Backoffs, m.status.Ledger
	}
	switch s.Do {
	case Begin, Replace, RollBack:
		m.record(s.Attempt)
	case LaunchMachines:
		for _, c := range s.Launch {
			m.sell(c)
		}
	case Terminate:
		gone := slices.Clone(s.Terminate)
		m.view.Machines = slices.DeleteFunc(m.view.Machines, func(o cloudprovider.Machine) bool { return slices.Contains(gone, o) })
	case Rest, Report:
		next := m.view.Now.Add(time.Minute)
		if !s.At.IsZero() && s.At.After(m.view.Now) && s.At.Before(next) {
			next = s.At
		}
		m.view.Now = next
	case Count:
	default:
		m.Fatalf("step %s (%s)", s.Do, s.Condition.Message)
	}
}

func (m *seller) record(a Attempt) {
	m.request.Attempt, m.request.Gang.Launch = a, state.Token(uid, a.Number)
	m.view.Machines = slices.DeleteFunc(m.view.Machines, func(o cloudprovider.Machine) bool {
		return !slices.Contains(a.Tokens(uid), o.Launch)
	})
}

// sell makes what is missing of a call, as an adapter does that finds nothing of it.
func (m *seller) sell(c Call) {
	m.Helper()
	made := 0
	for _, o := range m.view.Machines {
		if o.Launch == c.Token && o.Group == c.Group {
			made++
		}
	}
	refused := m.refuses != ""
	for range c.Count - made {
		if refused && made == c.Count-1 {
			break
		}
		made++
		m.sold++
		name := fmt.Sprint("i-", m.sold)
		m.view.Machines = append(m.view.Machines, cloudprovider.Machine{Name: name, ProviderID: "id-" + name, Group: c.Group, Launch: c.Token,
			Started: m.view.Now})
		m.view.Made = append(m.view.Made, noted(m.view.Machines[len(m.view.Machines)-1]))
		if refused {
			m.explained++
		}
	}
	if refused {
		m.act(Refused(&m.request, m.view, c, &cloudprovider.Error{Class: m.refuses, Code: "none-left"}))
	}
}

func newSeller(t *testing.T, befalls func(*seller)) *seller {
	m := &seller{story: newStory(), T: t, befalls: befalls}
	m.request.ValidFor = 30 * 24 * time.Hour
	m.view.Groups[0].Max = 100
	return m
}

// TestNoLoopBuys: whatever becomes of its machines, a request for two buys four, and then two more after each pause.
func TestNoLoopBuys(t *testing.T) {
	for name, befalls := range map[string]func(*seller){
		"machines vanish":                   vanish,
		"machines are terminated by others": endByOthers,
		"machines never join":               neverJoin,
		"now one and now the other": func(m *seller) {
			[]func(*seller){vanish, endByOthers, neverJoin}[m.sold%3](m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSeller(t, befalls)
			m.trade(noon.Add(3 * 24 * time.Hour))
			if len(m.stops) == 0 {
				t.Fatalf("%d machines were sold, and the request was never stopped", m.sold)
			}
			if most := 2*2 + 2*len(m.stops); m.sold > most {
				t.Errorf("%d machines were sold with %d stops, want at most %d", m.sold, len(m.stops), most)
			}
			if got := m.request.Purchases.Bought(); got < m.sold {
				t.Errorf("%d of %d machines are on record", got, m.sold)
			}
			for i, pause := 1, 10*time.Minute; i < len(m.stops); i, pause = i+1, min(2*pause, 6*time.Hour) {
				if got := m.stops[i].Sub(m.stops[i-1]); got < pause-time.Second {
					t.Errorf("stop %d came %s after the one before, want at least %s", i+1, got, pause)
				}
			}
		})
	}
}

// TestARestartKeepsWhatWasBought: a new process has seen no machines. If the previous one was killed between its
// record of the intent and the call, or between the call and its record of the answer, the new one counts what the call may have
// created.
func TestARestartKeepsWhatWasBought(t *testing.T) {
	recorded := 0
	for name, after := range map[string]func(m *seller) bool{
		"killed after each record": func(m *seller) bool {
			before := recorded
			recorded = m.request.Purchases.Seen()
			return recorded > before
		},
		"killed after each call": func(m *seller) bool { return len(m.view.Made) > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			lives := 0
			recorded = 0
			m := newSeller(t, func(m *seller) {
				vanish(m)
				if after(m) {
					lives++
					m.view.Made, m.view.Process = nil, fmt.Sprint(lives)
				}
			})
			m.trade(noon.Add(9 * time.Minute))
			counted := m.request.Purchases
			if m.sold > 4 || len(m.stops) != 1 || counted.Bought() != 4 {
				t.Errorf("%d machines were sold with %d stops and %d counted, want at most 4, 1 and 4", m.sold, len(m.stops), counted.Bought())
			}
		})
	}
}

// TestRefusalsExplainWhatCame: launches that the cloud grants in part are tried for as long as the backoff of the group allows.
func TestRefusalsExplainWhatCame(t *testing.T) {
	for class, stops := range map[v1alpha1.ErrorClass]bool{v1alpha1.Stockout: false, v1alpha1.Quota: false, v1alpha1.Config: true} {
		t.Run(string(class), func(t *testing.T) {
			m := newSeller(t, neverJoin)
			m.refuses = class
			m.trade(noon.Add(24 * time.Hour))
			if got := len(m.stops) > 0; got != stops || m.sold < 5 {
				t.Errorf("%d machines were sold, and the request was stopped %d times; stopped is to be %t", m.sold, len(m.stops), stops)
			}
		})
	}
}

// TestAFailureCountsWhatWasBought: a launch that an error of the configuration ends has created some of its machines, and only those allow
// the request to buy more in another group.
func TestAFailureCountsWhatWasBought(t *testing.T) {
	m := newSeller(t, neverJoin)
	m.refuses = v1alpha1.Config
	m.trade(noon.Add(time.Minute))
	if p := m.request.Purchases; m.sold != 1 || p.Failed != 1 {
		t.Errorf("%d machines of 2 were sold, and %d have failed; want 1 of each", m.sold, p.Failed)
	}
}

// TestAStoppedRequestSaysSo once, how to release it, and goes on when it is.
func TestAStoppedRequestSaysSo(t *testing.T) {
	m := newSeller(t, vanish)
	m.trade(noon.Add(5 * time.Minute))
	got := Next(&m.request, m.view)
	if got.Do != Report || got.Condition.Reason != ReasonPurchasesStopped || string(got.Condition.Status) != "False" || got.Purchases != nil {
		t.Fatalf("step %s with condition %+v", got.Do, got.Condition)
	}
	for _, want := range []string{"4 machines were bought for a gang that needs 2", "before 2026-01-01T12:1",
		v1alpha1.AcceptedPurchasesAnnotation + "=4"} {
		if !strings.Contains(got.Condition.Message, want) {
			t.Errorf("the message does not say %q: %s", want, got.Condition.Message)
		}
	}
	if !got.At.Equal(m.request.Purchases.Until) {
		t.Errorf("it is decided again at %s, want %s", got.At, m.request.Purchases.Until)
	}
	m.request.Accepts = 4
	m.trade(m.view.Now.Add(5 * time.Minute))
	if m.sold != 8 || len(m.stops) != 2 {
		t.Errorf("after the release %d machines were sold with %d stops, want 8 and 2", m.sold, len(m.stops))
	}
}

// TestWhatIsSpentInVainIsReported: two machines of 10 USD an hour that do not serve are counted by cause, and the condition of the
// request says so while it waits.
func TestWhatIsSpentInVainIsReported(t *testing.T) {
	for _, tc := range []struct {
		name    string
		befalls func(*seller)
		want    []purchases.Vain
		says    string
	}{
		{"machines that do not join cost their time to join", neverJoin, []purchases.Vain{{Cause: "Timeout", Machines: 4, MicroUSD: 6_666_664}},
			"launches in vain have cost 6.67 USD so far: 6.67 USD for 4 machines (Timeout)"},
		{"machines that end after a while cost that while", func(m *seller) {
			for i, o := range m.view.Machines {
				if !m.view.Now.Before(o.Started.Add(6 * time.Minute)) {
					m.view.Machines[i].State = cloudprovider.Terminated
				}
			}
		}, []purchases.Vain{{Cause: "Lost", Machines: 6, MicroUSD: 6_000_000}},
			"launches in vain have cost 6.00 USD so far: 6.00 USD for 6 machines (Lost)"},
		{"those of a request that is deleted are no fault of a group", func(m *seller) {
			m.request.Leaving = !m.view.Now.Before(noon.Add(3 * time.Minute))
		}, []purchases.Vain{{Cause: "Undone", Machines: 2, MicroUSD: 1_000_000}},
			"launches in vain have cost 1.00 USD so far: 1.00 USD for 2 machines (Undone)"},
		{"machines that may not be billed are not counted", vanish, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newSeller(t, tc.befalls)
			var said string
			for m.view.Now.Before(noon.Add(40 * time.Minute)) {
				m.befalls(m)
				s := Next(&m.request, m.view)
				if s.Condition.Type != "" {
					said = s.Condition.Message
				}
				if s.Do == Fail {
					break
				}
				m.act(s)
			}
			if diff := cmp.Diff(tc.want, m.request.Purchases.InVain()); diff != "" {
				t.Errorf("in vain (-want +got):\n%s", diff)
			}
			if !strings.Contains(said, tc.says) || tc.says == "" && strings.Contains(said, "in vain") {
				t.Errorf("the condition says %q, which is to contain %q", said, tc.says)
			}
		})
	}
}
