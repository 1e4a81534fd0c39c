package provisioning

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
)

// fleetOf is one node of a group that gives machines back after ten minutes, with
// its machine.
func fleetOf(n Node, requests ...*Request) Fleet {
	n.Name, n.ProviderID, n.Group, n.Ready = "a", "id-a", "gpu", true
	f := Fleet{
		Snapshot: NewSnapshot(noon, NodesOf(n), []nodegroups.Group{{Name: "gpu", Machines: 1, IdleTimeout: 10 * time.Minute}}, nil),
		Requests: map[types.UID]*Request{},
		Machines: []cloudprovider.Machine{{Name: "a", Group: "gpu", ProviderID: "id-a", Launch: n.Launch, State: cloudprovider.Running}},
	}
	f.Consumers = func(string, string) (int, time.Time) { return 0, noon.Add(-2 * time.Minute) }
	for _, r := range requests {
		f.Requests[r.UID] = r
	}
	return f
}

func TestTend(t *testing.T) {
	longAgo := noon.Add(-time.Hour)
	launching := &Request{UID: uid, Attempt: Attempt{Number: 1, Phase: Launching}}
	done := &Request{UID: uid, Attempt: Attempt{Number: 1, Phase: Done}}
	label := []Booking{{Key: "gang", Namespace: "ns", UID: uid}}
	machine := fleetOf(Node{}).Machines
	launched := []cloudprovider.Machine{{Name: "a", Group: "gpu", ProviderID: "id-a", Launch: token, State: cloudprovider.Running}}

	for _, tc := range []struct {
		name  string
		fleet Fleet
		want  Upkeep
	}{
		{"an idle machine is left alone until its time", fleetOf(Node{IdleSince: noon.Add(-time.Minute)}), Upkeep{At: noon.Add(9 * time.Minute)}},
		{"a machine idle for too long is cordoned first", fleetOf(Node{IdleSince: longAgo}), Upkeep{Cordon: []string{"a"}}},
		{"then taken back", fleetOf(Node{IdleSince: longAgo, Cordon: GivingBack}), Upkeep{TakeBack: machine}},
		{"unless a pod slipped in between", fleetOf(Node{Cordon: GivingBack, Pods: 1}), Upkeep{Lift: []string{"a"}}},
		{"a machine with pods stays", fleetOf(Node{Pods: 1}), Upkeep{}},
		{"a booked machine stays", fleetOf(Node{IdleSince: longAgo, Cordon: Held, Bookings: label, Labelled: label}, done), Upkeep{}},
		{"a human's cordon is nobody's business", fleetOf(Node{IdleSince: longAgo, Cordon: Foreign}), Upkeep{}},
		{"the group keeps its minimum", func() Fleet {
			f := fleetOf(Node{IdleSince: longAgo})
			f.Groups[0].Min = 1
			return f
		}(), Upkeep{}},
		{"a cordon that nobody's booking needs is lifted", fleetOf(Node{IdleSince: noon, Cordon: Held}), Upkeep{Lift: []string{"a"}}},

		{"a node whose machine is gone goes by itself and is not opened meanwhile", func() Fleet {
			f := fleetOf(Node{Cordon: GivingBack})
			f.Machines = nil
			return f
		}(), Upkeep{}},
		{"nor is a young one", func() Fleet {
			f := fleetOf(Node{Cordon: Joining, Launch: token})
			f.Machines = nil
			return f
		}(), Upkeep{}},
		{"machines that are leaving count against the minimum", func() Fleet {
			f := fleetOf(Node{IdleSince: longAgo, Cordon: GivingBack})
			f.Nodes.Set(&Node{Name: "b", ProviderID: "id-b", Group: "gpu", Ready: true, IdleSince: longAgo})
			f.Machines = append(f.Machines, cloudprovider.Machine{Name: "b", Group: "gpu", ProviderID: "id-b", State: cloudprovider.Running})
			f.Groups[0].Machines, f.Groups[0].Min = 2, 1
			return f
		}(), Upkeep{TakeBack: machine}},
		{"a minimum that was raised meanwhile keeps them", func() Fleet {
			f := fleetOf(Node{IdleSince: longAgo, Cordon: GivingBack})
			f.Groups[0].Min = 1
			return f
		}(), Upkeep{Lift: []string{"a"}}},
		{"Muster's mark goes where a human has lifted the cordon", fleetOf(Node{Cordon: Open, Marked: true, Pods: 1}), Upkeep{Lift: []string{"a"}}},

		{"young machines of an attempt in flight are its own business", fleetOf(Node{Cordon: Joining, Launch: token}, launching), Upkeep{}},
		{"those of an attempt that is over are taken back", fleetOf(Node{Cordon: Joining, Launch: token}, done), Upkeep{TakeBack: launched}},
		{"those of a request that is gone, too", fleetOf(Node{Cordon: Joining, Launch: token}), Upkeep{TakeBack: launched}},
		{"a machine without a node that no attempt waits for is taken back", func() Fleet {
			f := fleetOf(Node{Launch: token}, done)
			f.Nodes = NewNodes()
			return f
		}(), Upkeep{TakeBack: launched}},
		{"one that an attempt waits for is not", func() Fleet {
			f := fleetOf(Node{Launch: token}, launching)
			f.Nodes = NewNodes()
			return f
		}(), Upkeep{}},
		{"nor one that Muster did not launch", func() Fleet {
			f := fleetOf(Node{})
			f.Nodes = NewNodes()
			return f
		}(), Upkeep{}},

		{"the label of a gang stays while its request is there", fleetOf(Node{IdleSince: noon.Add(-2 * time.Minute), Labelled: label}, done), Upkeep{At: noon.Add(8 * time.Minute)}},
		{"the label of a gang whose request is gone lingers", func() Fleet {
			f := fleetOf(Node{Pods: 1, Labelled: label})
			f.Consumers = func(string, string) (int, time.Time) { return 0, noon }
			return f
		}(), Upkeep{At: noon.Add(time.Minute)}},
		{"then goes, also from a node that others keep busy", fleetOf(Node{Pods: 1, Labelled: label}), Upkeep{Unlabel: []Label{{"a", "gang"}}}},
		{"but not while pods of the gang run anywhere", func() Fleet {
			f := fleetOf(Node{IdleSince: noon.Add(-time.Minute), Labelled: label})
			f.Consumers = func(namespace, key string) (int, time.Time) {
				if namespace == "ns" && key == "gang" {
					return 1, time.Time{}
				}
				return 0, time.Time{}
			}
			return f
		}(), Upkeep{At: noon.Add(9 * time.Minute)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Tend(tc.fleet)); diff != "" {
				t.Errorf("upkeep (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBookingKey(t *testing.T) {
	long := strings.Repeat("b", 253)
	for name, want := range map[string]string{
		"short":           "short",
		long[:63]:         long[:63],
		long[:62] + "cde": long[:31] + "." + (long[:62] + "cde")[34:],
	} {
		if got := BookingKey(name); got != want || len(got) > 63 {
			t.Errorf("BookingKey(%q) = %q (%d characters), want %q", name, got, len(got), want)
		}
	}
}
