package cost

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
)

// TestPayersOfAMachine of a USD an hour.
func TestPayersOfAMachine(t *testing.T) {
	pays := func(name string, perHour int64) Share {
		return Share{Request: types.UID(name), Tenant: state.Tenant{Namespace: "ns-" + name, Queue: "q-" + name}, MicroUSDPerHour: perHour}
	}
	left := state.Tenant{Namespace: "ns", Queue: "left"}
	booked := func(names ...string) (out []state.Booking) {
		for _, name := range names {
			out = append(out, state.Booking{UID: types.UID(name), Namespace: "ns-" + name, Queue: "q-" + name})
		}
		return out
	}
	for _, tc := range []struct {
		name     string
		bookings []state.Booking
		inFlight bool
		want     []Share
	}{
		{"nobody for one that is idle, because of those that left it", nil, false, []Share{{LeftBy: left, MicroUSDPerHour: 1e6}}},
		{"the gang that it is launched for", nil, true, []Share{{Request: "gang", MicroUSDPerHour: 1e6}}},
		{"the one that has booked it", booked("a"), false, []Share{pays("a", 1e6)}},
		{"the one that has booked it, also while more of its machines are in flight", booked("a"), true, []Share{pays("a", 1e6)}},
		{"two that have booked it, in halves", booked("a", "b"), false, []Share{pays("a", 5e5), pays("b", 5e5)}},
		{"three that have booked it, to the last millionth", booked("a", "b", "c"), false,
			[]Share{pays("a", 333334), pays("b", 333333),
				pays("c", 333333)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Shares("gang-2", tc.bookings, tc.inFlight, left, 1e6)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestSpend: machines of 36 USD an hour. Two boot for a gang, one of them without a
// node; one is booked by two gangs, one by a gang of which nothing is known but its
// booking; two are not booked, one of them after a gang; one has ended.
func TestSpend(t *testing.T) {
	machine := func(name, token string, state cloudprovider.State) *cloudprovider.Machine {
		return &cloudprovider.Machine{Name: name, Group: "gpu", Launch: token, State: state}
	}
	node := func(name string, bookings ...state.Booking) *state.Node {
		return &state.Node{Name: name, Free: nodegroups.Resources{}, Machine: machine(name, "", cloudprovider.Running), Labelled: bookings}
	}
	joining := node("joining")
	joining.Machine.Launch, joining.InFlight = "launching-1", true
	idleAfter := node("idle after a job")
	idleAfter.LeftBy = state.Tenant{Namespace: "ns", Queue: "b"}
	nodes := nodeset.New()
	for _, n := range []*state.Node{
		joining, node("shared", state.Booking{UID: "left", Namespace: "ns"}, state.Booking{UID: "right", Namespace: "ns"}),
		node("kept", state.Booking{UID: "gone", Namespace: "other"}), node("idle"), idleAfter, {Name: "foreign"},
	} {
		nodes.Set(n)
	}
	f := scaledown.Fleet{
		Snapshot: &planner.Snapshot{Nodes: nodes}, InFlight: map[string]bool{"launching-1": true},
		Unregistered: []cloudprovider.Machine{*machine("boots", "launching-1", cloudprovider.Booting),
			*machine("ended", "launching-1", cloudprovider.Terminated)},
	}
	known := map[types.UID]state.Tenant{"launching": {Namespace: "ns", Queue: "a"}, "left": {Namespace: "ns", Queue: "b"},
		"right": {Namespace: "ns", Queue: ""}}
	got := Spend(f, func(string) int64 { return 36e6 }, func(uid types.UID) state.Tenant { return known[uid] })
	want := map[state.Tenant]int64{{}: 36e6, {Namespace: "ns", Queue: "a"}: 72e6, {Namespace: "ns", Queue: "b"}: 54e6,
		{Namespace: "ns", Queue: ""}: 18e6, {Namespace: "other", Queue: ""}: 36e6}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
