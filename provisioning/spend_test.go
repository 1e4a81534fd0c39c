package provisioning

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
)

// TestWhoPaysForAMachine of a USD an hour.
func TestWhoPaysForAMachine(t *testing.T) {
	booked := func(names ...string) (out []Booking) {
		for _, name := range names {
			out = append(out, Booking{UID: types.UID(name), Namespace: "ns-" + name, Queue: "q-" + name})
		}
		return out
	}
	for _, tc := range []struct {
		name     string
		bookings []Booking
		inFlight bool
		want     []Share
	}{
		{"nobody for one that is idle", nil, false, []Share{{MicroUSDPerHour: 1e6}}},
		{"the gang that it is launched for", nil, true, []Share{{Request: "gang", MicroUSDPerHour: 1e6}}},
		{"the one that has booked it", booked("a"), false, []Share{{"a", Tenant{"ns-a", "q-a"}, 1e6}}},
		{"the one that has booked it, also while more of its machines are in flight", booked("a"), true, []Share{{"a", Tenant{"ns-a", "q-a"}, 1e6}}},
		{"two that have booked it, in halves", booked("a", "b"), false, []Share{{"a", Tenant{"ns-a", "q-a"}, 5e5}, {"b", Tenant{"ns-b", "q-b"}, 5e5}}},
		{"three that have booked it, to the last millionth", booked("a", "b", "c"), false,
			[]Share{{"a", Tenant{"ns-a", "q-a"}, 333334}, {"b", Tenant{"ns-b", "q-b"}, 333333}, {"c", Tenant{"ns-c", "q-c"}, 333333}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Shares("gang-2", tc.bookings, tc.inFlight, 1e6)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestSpend: machines of 36 USD an hour. Two boot for a gang, one of them without a
// node; one is booked by two gangs, one by a gang of which nothing is known but its
// booking, one by nobody; one has ended.
func TestSpend(t *testing.T) {
	machine := func(name, token string, state cloudprovider.State) *cloudprovider.Machine {
		return &cloudprovider.Machine{Name: name, Group: "gpu", Launch: token, State: state}
	}
	node := func(name string, bookings ...Booking) *Node {
		return &Node{Name: name, Free: nodegroups.Resources{}, Machine: machine(name, "", cloudprovider.Running), Labelled: bookings}
	}
	joining := node("joining")
	joining.Machine.Launch, joining.InFlight = "launching-1", true
	nodes := NewNodes()
	for _, n := range []*Node{
		joining, node("shared", Booking{UID: "left", Namespace: "ns"}, Booking{UID: "right", Namespace: "ns"}),
		node("kept", Booking{UID: "gone", Namespace: "other"}), node("idle"), {Name: "foreign"},
	} {
		nodes.Set(n)
	}
	f := Fleet{
		Snapshot: &Snapshot{Nodes: nodes}, InFlight: map[string]bool{"launching-1": true},
		Unregistered: []cloudprovider.Machine{*machine("boots", "launching-1", cloudprovider.Booting),
			*machine("ended", "launching-1", cloudprovider.Terminated)},
	}
	known := map[types.UID]Tenant{"launching": {"ns", "a"}, "left": {"ns", "b"}, "right": {"ns", ""}}
	got := Spend(f, func(string) int64 { return 36e6 }, func(uid types.UID) Tenant { return known[uid] })
	want := map[Tenant]int64{{}: 36e6, {"ns", "a"}: 72e6, {"ns", "b"}: 18e6, {"ns", ""}: 18e6, {"other", ""}: 36e6}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
