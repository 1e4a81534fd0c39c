package scaledown

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// fleet is that of a group that gives machines back after ten minutes. Its nodes are
// named a, b and so on.
func fleet(nodes ...state.Node) Fleet {
	f := Fleet{
		Snapshot: planner.NewSnapshot(noon, nodeset.New(), []nodegroups.Group{{Name: "gpu", IdleTimeout: 10 * time.Minute}}, nil),
		Requests: map[types.UID]bool{}, InFlight: map[string]bool{}, Evictions: map[types.UID]Eviction{},
		Consumers: func(string, string) (int, time.Time) { return 0, noon.Add(-2 * time.Minute) },
	}
	for i := range nodes {
		f.add(string(rune('a'+i)), nodes[i])
	}
	return f
}

// add adds a node of the group with its machine.
func (f *Fleet) add(name string, n state.Node) {
	n.Name, n.ProviderID, n.Group, n.Ready = name, "id-"+name, "gpu", n.UnreadySince.IsZero()
	n.Machine = &machineOf(name, n.Launch)[0]
	n.Allocatable, n.Free = whole, whole
	f.Nodes.Set(&n)
}

// with changes the fleet.
func (f Fleet) with(change func(*Fleet)) Fleet {
	change(&f)
	return f
}

// withStrays adds idle machines with a stray each, and room for all of those elsewhere.
func withStrays(machines int) func(*Fleet) {
	return func(f *Fleet) {
		f.elsewhere(int64(machines))
		for i := range machines {
			f.add(fmt.Sprintf("m%02d", i), state.Node{IdleSince: noon.Add(-time.Hour), Pods: 1, Strays: strays(fmt.Sprint("web-", i))})
		}
	}
}

// elsewhere adds a node of no node group with room for so many pods.
func (f *Fleet) elsewhere(pods int64) {
	room := nodegroups.Resources{"cpu": 1000 * pods, "memory": 1 << 30, "pods": pods}
	f.Nodes.Set(&state.Node{Name: "z-elsewhere", Ready: true, Allocatable: room, Free: room})
}

// of has the machine of a node be of another group.
func (f *Fleet) of(name, group string) {
	n := *f.Nodes.Find(name)
	m := *n.Machine
	m.Group = group
	n.Machine = &m
	f.Nodes.Set(&n)
}

// loseMachine has the node a outlive its machine.
func (f *Fleet) loseMachine() {
	n := *f.Nodes.Find("a")
	n.Machine = nil
	f.Nodes.Set(&n)
}

// machineOf is the machine of a node of the fleet.
func machineOf(name, launch string) []cloudprovider.Machine {
	return []cloudprovider.Machine{{Name: name, Group: "gpu", ProviderID: "id-" + name, Launch: launch, State: cloudprovider.Running}}
}

// strays are pods of a core each.
func strays(names ...string) (out []state.Stray) {
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
	}}}
	for _, name := range names {
		out = append(out, state.Stray{Namespace: "ns", Name: name, UID: types.UID(name),
			Replica: state.PodSet{Name: name, Count: 1, Template: template}})
	}
	return out
}

func TestTend(t *testing.T) {
	longAgo := noon.Add(-time.Hour)
	label := []state.Booking{{Key: "gang", Namespace: "ns", UID: uid}}
	toGo := func(names ...string) Decision { return Decision{Cordon: names} }
	gone := func(launch string) Decision { return Decision{Terminate: []Return{{machineOf("a", launch)[0], "a"}}} }
	open := Decision{Lift: []string{"a"}}
	at := func(d time.Duration) Decision { return Decision{At: noon.Add(d)} }
	spared := func(name string, d time.Duration) map[string]time.Time {
		return map[string]time.Time{name: noon.Add(d)}
	}
	noRoom := Decision{At: noon.Add(roomAgain), Past: Past{Cramped: spared("a", roomAgain)}}
	stray := func(n state.Node) state.Node {
		n.Pods, n.Strays = n.Pods+1, strays("web")
		return n
	}
	idle, lost := state.Node{IdleSince: longAgo}, state.Node{UnreadySince: noon.Add(-state.LostAfter)}
	lostWith := func(pods, terminating int) state.Node {
		return state.Node{UnreadySince: lost.UnreadySince, Pods: pods, Terminating: terminating}
	}

	launched := func(idle time.Duration) state.Node { return state.Node{Launch: token, IdleSince: noon.Add(-idle)} }
	held := func(n state.Node) state.Node {
		n.Cordon, n.Marked = state.Held, true
		return n
	}

	// What may be changed of a fleet.
	reserved := func(f *Fleet) { f.Groups[0].CapacityType, f.Groups[0].Max = v1alpha1.Reserved, 8 }
	wasReserved := func(f *Fleet) { f.Groups[0].CapacityType = v1alpha1.Reserved }
	room := func(f *Fleet) { f.elsewhere(1) }
	known := func(f *Fleet) { f.Requests[uid] = true }
	inFlight := func(f *Fleet) { f.InFlight[token], f.Requests[uid] = true, true }
	atLeastOne := func(f *Fleet) { f.Groups[0].Min = 1 }
	deletedGroup := func(f *Fleet) { f.Groups = nil }
	foreign := func(f *Fleet) { f.Groups[0].Foreign = true }
	refused := func(ago time.Duration) func(*Fleet) {
		return func(f *Fleet) { f.Evictions["web"] = Eviction{At: noon.Add(-ago), Refusal: "the budget"} }
	}
	deferred := func(ago time.Duration) func(*Fleet) {
		return func(f *Fleet) { f.Undecided, f.Past.Deferred = true, noon.Add(-ago) }
	}

	cordoned := func(n state.Node, ago time.Duration) Fleet {
		n.Cordon = state.ScalingDown
		return fleet(n).with(func(f *Fleet) { f.Past.Leaving = map[string]time.Time{"a": noon.Add(-ago)} })
	}
	leaving := func(n state.Node) Fleet { return cordoned(n, transaction.Settle) }
	unregistered := func(state cloudprovider.State, launch string) Fleet {
		m := machineOf("a", launch)
		m[0].State = state
		return fleet().with(func(f *Fleet) { f.Unregistered = m })
	}

	// A node whose machine a launch under way may have made.
	unattributed := func(n state.Node) Fleet {
		return fleet(n).with(func(f *Fleet) { f.Nodes.Find("a").Machine.Unattributed = true })
	}

	// A node of a real cloud, which does not know yet what it is.
	unmarked := func() Fleet {
		return fleet(state.Node{Pods: 1}).with(func(f *Fleet) {
			n := *f.Nodes.Find("a")
			n.Machine = &machineOf("a", token)[0]
			f.Nodes.Set(&n)
		})
	}
	adopted := func(cordon bool) Decision {
		return Decision{Adopt: []Adoption{{"a", machineOf("a", token)[0], cordon}}}
	}

	for _, tc := range []struct {
		name  string
		fleet Fleet
		want  Decision
	}{
		{"a node whose machine an attempt in flight has launched is marked and cordoned", unmarked().with(inFlight), adopted(true)},
		{"one whose attempt is over is marked", unmarked(), adopted(false)},
		{"so is one that was born cordoned, before it can be taken for an orphan", unmarked().with(inFlight).with(func(f *Fleet) {
			n := *f.Nodes.Find("a")
			n.Cordon, n.Pods = state.Joining, 0
			f.Nodes.Set(&n)
		}), adopted(true)},
		{"an idle machine is left alone until its time", fleet(state.Node{IdleSince: noon.Add(-time.Minute)}), at(9 * time.Minute)},
		{"a machine idle for too long is cordoned first", fleet(idle), toGo("a")},
		{"then watched until the node has settled", fleet(state.Node{Cordon: state.ScalingDown}), at(transaction.Settle)},
		{"then terminated", leaving(idle), gone("")},
		{"unless a pod slipped in between", leaving(state.Node{Pods: 1}), open},
		{"a machine with pods stays", fleet(state.Node{Pods: 1}), Decision{}},
		{"a booked machine stays", fleet(state.Node{IdleSince: longAgo, Cordon: state.Held, Bookings: label, Labelled: label}).with(known), Decision{}},
		{"also one that was to go", leaving(state.Node{Bookings: label, Labelled: label}).with(known), Decision{}},
		{"a human's cordon stays", fleet(state.Node{IdleSince: longAgo, Cordon: state.Foreign}), Decision{}},
		{"a node that is marked to be kept stays", fleet(state.Node{IdleSince: longAgo, Kept: true}), Decision{}},
		{"also if he says so late", leaving(state.Node{IdleSince: longAgo, Kept: true}), open},
		{"a cordon that nobody's booking needs is lifted", fleet(state.Node{Pods: 1, Cordon: state.Held}), open},
		{"Muster's mark goes where a human has lifted the cordon", fleet(state.Node{Cordon: state.Open, Marked: true, Pods: 1}), open},
		{"a group that terminates at once leaves the queue a moment", fleet(state.Node{IdleSince: noon}).with(func(f *Fleet) { f.Groups[0].IdleTimeout = 0 }), at(onOffer)},
		{"a node of others is theirs", fleet().with(room), Decision{}},

		{"an idle machine that Muster has launched is held, so that nobody comes whom no budget pays for", fleet(launched(time.Minute)),
			Decision{Hold: []string{"a"}, At: noon.Add(9 * time.Minute)}},
		{"once the queue had its moment", fleet(launched(time.Second)), at(onOffer - time.Second)},
		{"it stays held", fleet(held(launched(time.Minute))), at(9 * time.Minute)},
		{"also while a request is about to be decided", fleet(held(launched(time.Hour))).with(func(f *Fleet) { f.Undecided = true }),
			Decision{At: noon.Add(offerAgain), Past: Past{Deferred: noon}}},
		{"until its time", fleet(held(launched(time.Hour))), toGo("a")},
		{"also beside strays", fleet(stray(launched(time.Minute))), Decision{Hold: []string{"a"}, At: noon.Add(9 * time.Minute)}},
		{"but open where these have no room elsewhere", fleet(held(stray(launched(time.Hour)))),
			Decision{Lift: []string{"a"}, At: noon.Add(roomAgain), Past: Past{Cramped: spared("a", roomAgain)}}},
		{"and open where a pod runs that must stay", fleet(held(state.Node{Launch: token, Pods: 1})), open},
		{"a minimum of machines stays open", fleet(held(launched(time.Minute))).with(atLeastOne), open},
		{"those are the last ones that were used", fleet(launched(time.Minute), launched(2*time.Minute)).with(atLeastOne),
			Decision{Hold: []string{"b"}, At: noon.Add(8 * time.Minute)}},
		{"a reserved machine stays open, too", fleet(held(launched(time.Hour))).with(reserved), open},
		{"and one of a cluster-autoscaler's", fleet(held(launched(time.Minute))).with(foreign), open},
		{"and one that its owner keeps", fleet(held(state.Node{Launch: token, IdleSince: longAgo, Kept: true})), open},
		{"one that is not Ready is not held", fleet(state.Node{Launch: token, IdleSince: noon.Add(-time.Minute), UnreadySince: noon.Add(-time.Minute)}),
			at(9 * time.Minute)},
		{"unless it was before", fleet(held(state.Node{Launch: token, IdleSince: noon.Add(-time.Minute), UnreadySince: noon.Add(-time.Minute)})),
			at(9 * time.Minute)},
		{"and one whose machine is stopped", fleet(held(state.Node{Launch: token, UnreadySince: noon})).with(func(f *Fleet) { f.loseMachine() }), Decision{}},
		{"one of a NodeGroup that was deleted is held", fleet(launched(time.Minute)).with(deletedGroup), Decision{Hold: []string{"a"}, At: noon.Add(9 * time.Minute)}},

		{"the group keeps its minimum", fleet(idle).with(atLeastOne), Decision{}},
		{"a machine whose request has just booked it counts, too", fleet(idle).with(atLeastOne).with(func(f *Fleet) {
			f.add("b", state.Node{Launch: token, Cordon: state.Joining, Marked: true, Bookings: label})
		}), toGo("a")},
		{"machines that are leaving count against the minimum", leaving(idle).with(atLeastOne).with(func(f *Fleet) { f.add("b", idle) }), gone("")},
		{"a minimum that was raised meanwhile keeps them", leaving(idle).with(atLeastOne), open},
		{"but no more than it takes", leaving(idle).with(atLeastOne).with(func(f *Fleet) {
			f.add("b", state.Node{Cordon: state.ScalingDown})
			f.Past.Leaving["b"] = noon.Add(-transaction.Settle)
		}), Decision{Lift: []string{"a"}, Terminate: []Return{{machineOf("b", "")[0], "b"}}}},
		{"machines of a launch in flight do not make up for them", fleet(idle, state.Node{Cordon: state.Joining, Launch: token, InFlight: true}).with(inFlight).with(atLeastOne), Decision{}},
		{"of two that may go the one goes that was idle for longer", fleet(state.Node{IdleSince: noon.Add(-11 * time.Minute)}, idle).with(atLeastOne), toGo("b")},

		{"while a request is about to be decided, idle machines stay", fleet(idle).with(func(f *Fleet) { f.Undecided = true }),
			Decision{At: noon.Add(offerAgain), Past: Past{Deferred: noon}}},
		{"and still do", fleet(idle).with(deferred(offerBound - 1)), Decision{At: noon.Add(offerAgain), Past: Past{Deferred: noon.Add(1 - offerBound)}}},
		{"but not for ever", fleet(idle).with(deferred(offerBound)), toGo("a")},

		{"a machine is idle beside strays that have room elsewhere", fleet(stray(idle)).with(room), toGo("a")},
		{"not beside a stray and another pod", fleet(stray(state.Node{Pods: 1})).with(room), Decision{}},
		{"nor beside strays of which one has no room elsewhere", fleet(state.Node{IdleSince: longAgo, Pods: 2, Strays: strays("web", "dns")}).with(room), noRoom},
		{"nor where there is room only behind cordons", fleet(stray(idle), state.Node{Cordon: state.Foreign}, state.Node{Cordon: state.Held, Bookings: label}), noRoom},
		{"nobody moves to a machine that may be the next to go", fleet(stray(idle), state.Node{IdleSince: noon}),
			Decision{At: noon.Add(roomAgain), Past: Past{Cramped: spared("a", roomAgain)}}},
		{"not even to one that goes at the same moment", fleet(stray(idle)).with(func(f *Fleet) {
			f.Groups = append(f.Groups, planner.Group{Group: nodegroups.Group{Name: "other", IdleTimeout: 10 * time.Minute}})
			f.add("b", idle)
			f.of("b", "other")
		}), Decision{Cordon: []string{"b"}, At: noon.Add(roomAgain), Past: Past{Cramped: spared("a", roomAgain)}}},
		{"one room is not given to the strays of two machines", fleet(stray(idle), state.Node{IdleSince: longAgo, Pods: 1, Strays: strays("dns")}).with(room),
			Decision{Cordon: []string{"a"}, At: noon.Add(roomAgain), Past: Past{Cramped: spared("b", roomAgain)}}},
		{"of two that may go the one goes that has no strays", fleet(stray(idle), state.Node{IdleSince: noon.Add(-11 * time.Minute)}).with(room).with(atLeastOne), toGo("b")},
		{"an empty machine goes in place of one that is being drained", leaving(stray(idle)).with(atLeastOne).with(room).with(func(f *Fleet) { f.add("b", idle) }),
			Decision{Lift: []string{"a"}, Cordon: []string{"b"}, At: noon.Add(drainBound - transaction.Settle)}},
		{"not where the group can spare both", leaving(stray(idle)).with(room).with(func(f *Fleet) { f.add("b", idle) }),
			Decision{Cordon: []string{"b"}, Evict: strays("web"), At: noon.Add(evictAgain)}},
		{"nor while a request may want it", leaving(stray(idle)).with(atLeastOne).with(room).with(deferred(0)).with(func(f *Fleet) { f.add("b", idle) }),
			Decision{Evict: strays("web"), At: noon.Add(offerAgain), Past: Past{Deferred: noon}}},
		{"nor do those that have to be drained as well", leaving(stray(idle)).with(atLeastOne).with(func(f *Fleet) {
			f.elsewhere(3)
			f.add("b", state.Node{IdleSince: longAgo, Pods: 1, Strays: strays("dns")})
			f.add("c", state.Node{IdleSince: longAgo, Pods: 1, Strays: strays("log")})
		}), Decision{Cordon: []string{"b"}, Evict: strays("web"), At: noon.Add(evictAgain)}},
		{"three of a group are drained at the same time", fleet().with(withStrays(11)), toGo("m00", "m01", "m02")},
		{"of a large one a tenth", fleet().with(withStrays(41)), toGo("m00", "m01", "m02", "m03")},
		{"and no more than ten in all", fleet().with(withStrays(200)),
			toGo("m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09")},
		{"those that are being drained count", leaving(stray(idle)).with(withStrays(5)),
			Decision{Cordon: []string{"m00", "m01"}, Evict: strays("web"), At: noon.Add(evictAgain)}},
		{"strays are evicted once the node has settled", leaving(stray(idle)).with(room), Decision{Evict: strays("web"), At: noon.Add(evictAgain)}},
		{"not before", cordoned(stray(idle), transaction.Settle-1).with(room), at(1)},
		{"nor if the room elsewhere is gone", leaving(stray(idle)), at(drainBound - transaction.Settle)},
		{"nor at once again after a budget has refused it", leaving(stray(idle)).with(room).with(refused(time.Second)), at(evictAgain - time.Second)},
		{"but later", leaving(stray(idle)).with(room).with(refused(evictAgain)), Decision{Evict: strays("web"), At: noon.Add(evictAgain)}},
		{"one that is terminating is not evicted again", leaving(state.Node{Pods: 1, Terminating: 1, Strays: []state.Stray{{Terminating: true}}}).with(room), at(drainBound - transaction.Settle)},
		{"a machine that is held up is opened", cordoned(stray(idle), drainBound).with(room).with(refused(time.Second)),
			Decision{Lift: []string{"a"}, HeldUp: []HeldUp{{Machine: machineOf("a", "")[0]}}, Past: Past{Spared: spared("a", drainPause)}}},
		{"one that had no room for its strays is left alone for a while", fleet(stray(idle)).with(room).with(func(f *Fleet) {
			f.Past.Cramped, f.Past.Schedulable = spared("a", time.Second), 2
		}), Decision{At: noon.Add(time.Second), Past: Past{Cramped: spared("a", time.Second)}}},
		{"until a node joins", fleet(stray(idle)).with(room).with(func(f *Fleet) {
			f.Past.Cramped, f.Past.Schedulable = spared("a", time.Second), 1
		}), toGo("a")},
		{"a cordon of others that bears a mark is theirs", fleet(state.Node{Cordon: state.Foreign, Marked: true}), Decision{Disown: []string{"a"}}},
		{"a reserved machine is paid for, also while it is idle", fleet(idle).with(reserved), Decision{}},
		{"but not once its reservation is over", fleet(idle).with(wasReserved), toGo("a")},
		{"but not kept where it is lost", fleet(lost).with(reserved), toGo("a")},
		{"and left alone for a while", fleet(stray(idle)).with(room).with(func(f *Fleet) { f.Past.Spared = spared("a", time.Minute) }),
			Decision{At: noon.Add(time.Minute), Past: Past{Spared: spared("a", time.Minute)}}},

		{"a node that was lost a moment ago may come back", fleet(state.Node{UnreadySince: noon.Add(-time.Minute), Pods: 1, Terminating: 1}), at(9 * time.Minute)},
		{"later its machine goes, with the pods that were deleted there", fleet(lostWith(1, 1)), toGo("a")},
		{"in the usual steps", leaving(lostWith(1, 1)), gone("")},
		{"not while a gang holds out there", fleet(lostWith(2, 1)), Decision{}},
		{"nor where it was to go", leaving(lostWith(2, 1)), open},
		{"nor under the minimum", fleet(lostWith(1, 1)).with(atLeastOne), Decision{}},
		{"a lost machine goes though its group keeps idle ones for longer", fleet(state.Node{UnreadySince: lost.UnreadySince, IdleSince: noon.Add(-state.LostAfter)}).with(func(f *Fleet) { f.Groups[0].IdleTimeout = time.Hour }), toGo("a")},
		{"nobody is evicted from a lost node", leaving(stray(lost)).with(room), at(drainBound - transaction.Settle)},

		{"a node whose machine is gone goes by itself and is not opened meanwhile", leaving(idle).with(func(f *Fleet) { f.loseMachine() }), Decision{}},
		{"nor is a young one", fleet(state.Node{Cordon: state.Joining, Launch: token}).with(func(f *Fleet) { f.loseMachine() }), Decision{}},

		{"young machines of an attempt in flight are its own business", fleet(state.Node{Cordon: state.Joining, Launch: token, InFlight: true}).with(inFlight), Decision{}},
		{"a node that was born cordoned may be somebody else's: that shows in a while", fleet(state.Node{Cordon: state.Joining, Created: noon}), at(unbookedBound)},
		{"and opens it", fleet(state.Node{Cordon: state.Joining, Created: noon.Add(-unbookedBound)}), open},
		{"also if no cloud knows its machine", fleet(state.Node{Cordon: state.Joining, Created: noon.Add(-unbookedBound)}).with(func(f *Fleet) { f.loseMachine() }), open},
		{"a machine that a launch under way may have made is not idle", unattributed(idle), Decision{}},
		{"nor beside strays", unattributed(stray(idle)).with(room), Decision{}},
		{"its node is not opened, however long the launch takes", unattributed(state.Node{Cordon: state.Joining, Created: longAgo}), Decision{}},
		{"nor for a pod that has slipped in", unattributed(state.Node{Cordon: state.Joining, Created: longAgo, Pods: 1}), Decision{}},
		{"it does not go where it was to go", unattributed(state.Node{Cordon: state.ScalingDown}).with(func(f *Fleet) {
			f.Past.Leaving = map[string]time.Time{"a": longAgo}
		}), Decision{}},
		{"nor where it has no node", unregistered(cloudprovider.Running, "").with(func(f *Fleet) { f.Unregistered[0].Unattributed = true }), Decision{}},
		{"and it does not make up for the minimum", unattributed(idle).with(atLeastOne).with(func(f *Fleet) { f.add("b", idle) }), Decision{}},
		{"those of an attempt that is over are terminated", fleet(state.Node{Cordon: state.Joining, Launch: token}), gone(token)},
		{"unless somebody runs there", fleet(state.Node{Cordon: state.Joining, Launch: token, Pods: 1}), open},
		{"a machine that has never had a node and that no attempt waits for is terminated", unregistered(cloudprovider.Booting, token),
			Decision{Terminate: []Return{{Machine: unregistered(cloudprovider.Booting, token).Unregistered[0]}}}},
		{"so is a hold that no attempt waits for", unregistered(cloudprovider.Booting, token).with(func(f *Fleet) { f.Unregistered[0].Hold = true }),
			Decision{Terminate: []Return{{Machine: func() cloudprovider.Machine {
				m := unregistered(cloudprovider.Booting, token).Unregistered[0]
				m.Hold = true
				return m
			}()}}}},
		{"one that an attempt waits for is not", unregistered(cloudprovider.Booting, token).with(inFlight), Decision{}},
		{"nor one that Muster did not launch", unregistered(cloudprovider.Running, ""), Decision{}},
		{"one whose node was deleted may get it back", unregistered(cloudprovider.Running, token), Decision{At: noon.Add(unregisteredBound), Past: Past{Unregistered: spared("gpu/a", 0)}}},
		{"not while the API server cannot say that it has one", unregistered(cloudprovider.Running, token).with(func(f *Fleet) {
			f.Past.Unregistered, f.Answering = spared("gpu/a", -unregisteredBound), noon.Add(-time.Second)
		}), Decision{At: noon.Add(unregisteredBound - time.Second), Past: Past{Unregistered: spared("gpu/a", -unregisteredBound)}}},
		{"for a while", unregistered(cloudprovider.Running, token).with(func(f *Fleet) { f.Past.Unregistered = spared("gpu/a", -unregisteredBound) }),
			Decision{Terminate: []Return{{Machine: machineOf("a", token)[0]}}, Past: Past{Unregistered: spared("gpu/a", -unregisteredBound)}}},

		{"in the usual steps", fleet(state.Node{Launch: token, IdleSince: longAgo}).with(deletedGroup), toGo("a")},
		{"but not one that Muster did not launch", fleet(idle).with(deletedGroup), Decision{}},

		{"a machine of a cluster-autoscaler's group is its own to terminate", fleet(idle).with(foreign), Decision{}},
		{"also a lost one", fleet(lost).with(foreign), Decision{}},
		{"also one that has not joined", unregistered(cloudprovider.Booting, token).with(foreign), Decision{}},
		{"also one that has lost its node", unregistered(cloudprovider.Running, token).with(foreign).with(func(f *Fleet) {
			f.Past.Unregistered = spared("gpu/a", -unregisteredBound)
		}), Decision{}},
		{"also a stopped one", fleet().with(foreign).with(func(f *Fleet) {
			f.Halted, f.Past.Halted = []Halted{{Machine: machineOf("a", token)[0]}}, spared("gpu/a", -haltedBound)
		}), Decision{}},
		{"also many lost ones, which are no doubt of Muster's", fleet(lost, lost, lost, lost).with(foreign), Decision{}},
		{"one that was to go when the group became its own stays", leaving(idle).with(foreign), open},
		{"and one whose attempt is over", fleet(state.Node{Cordon: state.Joining, Launch: token}).with(foreign), open},

		{"the label of a gang stays while its request is there", fleet(state.Node{IdleSince: noon.Add(-2 * time.Minute), Labelled: label}).with(known), at(8 * time.Minute)},
		{"the label of a gang whose request is gone lingers", fleet(state.Node{Pods: 1, Labelled: label}).with(func(f *Fleet) {
			f.Consumers = func(string, string) (int, time.Time) { return 0, noon }
		}), at(time.Minute)},
		{"then goes, also from a node that others keep busy", fleet(state.Node{Pods: 1, Labelled: label}), Decision{Unlabel: []Label{{"a", "gang"}}}},
		{"but not while pods of the gang run anywhere", fleet(state.Node{IdleSince: noon.Add(-time.Minute), Labelled: label}).with(func(f *Fleet) {
			f.Consumers = func(namespace, key string) (int, time.Time) {
				if namespace == "ns" && key == "gang" {
					return 1, time.Time{}
				}
				return 0, time.Time{}
			}
		}), at(9 * time.Minute)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Plan(tc.fleet)
			got.Past.Leaving = nil // what it is for shows in the cases above
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(HeldUp{}, "Message"),
				cmpopts.IgnoreFields(state.Stray{}, "Replica"), cmpopts.IgnoreFields(Past{}, "Schedulable")); diff != "" {
				t.Errorf("scale-down (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodesOfMachinesThatHaveEndedAreDeleted where nothing else does it.
func TestNodesOfMachinesThatHaveEndedAreDeleted(t *testing.T) {
	remains := state.Node{Launch: token, Ended: true, UnreadySince: noon.Add(-remainsFor)}
	change := func(change func(*state.Node)) state.Node {
		n := remains
		change(&n)
		return n
	}
	for _, tc := range []struct {
		name string
		node state.Node
		want Decision
	}{
		{"after a minute of silence", remains, Decision{Delete: []string{"a"}}},
		{"also if its pods are still there", change(func(n *state.Node) { n.Pods, n.Cordon = 3, state.ScalingDown }), Decision{Delete: []string{"a"}}},
		{"also one that a person has cordoned", change(func(n *state.Node) { n.Cordon = state.Foreign }), Decision{Delete: []string{"a"}}},
		{"not sooner", change(func(n *state.Node) { n.UnreadySince = noon.Add(-20 * time.Second) }), Decision{At: noon.Add(40 * time.Second)}},
		{"not while its kubelet is heard of", change(func(n *state.Node) { n.UnreadySince = time.Time{} }), Decision{}},
		{"not one that Muster has not launched", change(func(n *state.Node) { n.Launch = "" }), Decision{}},
		{"not one of whose machine nothing is heard", change(func(n *state.Node) { n.Ended, n.Forgotten = false, true }),
			Decision{At: noon.Add(9 * time.Minute)}},
		{"not one whose machine is stopped, or not known to run", change(func(n *state.Node) {
			n.Ended, n.UnreadySince = false, noon.Add(-state.LostAfter)
		}), Decision{}},
		{"unless its kubelet has been silent for long", change(func(n *state.Node) {
			n.Ended, n.Forgotten, n.UnreadySince = false, true, noon.Add(-state.LostAfter)
		}), Decision{Delete: []string{"a"}}},
	} {
		f := fleet(tc.node)
		f.loseMachine()
		got := Plan(f)
		if diff := cmp.Diff(tc.want.Delete, got.Delete); diff != "" || !got.At.Equal(tc.want.At) {
			t.Errorf("%s: looks again at %s, deletes (-want +got):\n%s", tc.name, got.At, diff)
		}
	}
}

// TestNodesOfForgottenMachinesAreDeleted, if they are few: another account, too, knows none of the machines.
func TestNodesOfForgottenMachinesAreDeleted(t *testing.T) {
	for _, tc := range []struct {
		nodes, approved int
		group           string
		want            int
	}{
		{nodes: 3, group: "gpu", want: 3},
		{nodes: 4, group: "gpu"},
		{nodes: 4, approved: 4, group: "gpu", want: 4},
		{nodes: 1, group: "deleted"},
	} {
		f := fleet()
		f.Groups[0].TerminateAtOnce = tc.approved
		for i := range tc.nodes {
			f.Nodes.Set(&state.Node{Name: fmt.Sprint("node", i), Group: tc.group, Launch: token, Forgotten: true,
				UnreadySince: noon.Add(-state.LostAfter)})
		}
		got := Plan(f)
		if braked := len(got.Doubts) > 0; len(got.Delete) != tc.want || braked != (tc.nodes > 3 && tc.approved == 0) {
			t.Errorf("%+v: %d nodes are deleted, in doubt are %+v", tc, len(got.Delete), got.Doubts)
		}
	}
}

// TestScaleDownOfAMachineStepByStep lets time pass, and the world do at once what
// each pass decides.
func TestScaleDownOfAMachineStepByStep(t *testing.T) {
	f := fleet(state.Node{IdleSince: noon, Pods: 1, Strays: strays("web")}).with(func(f *Fleet) { f.elsewhere(1) })
	var story []string
	for f.Nodes.Find("a").Machine != nil && len(story) < 10 {
		u := Plan(f)
		n := *f.Nodes.Find("a")
		tell := func(what string) {
			story = append(story, fmt.Sprintf("%s %s", f.Now.Sub(noon), what))
		}
		switch {
		case len(u.Cordon) > 0:
			tell("cordoned")
			n.Cordon = state.ScalingDown
		case len(u.Evict) > 0:
			tell("evicted")
			n.Pods, n.Strays = 0, nil
		case len(u.Terminate) > 0:
			tell("terminated")
			n.Machine = nil
		case u.At.IsZero():
			t.Fatalf("nobody looks again after %v", story)
		default:
			f.Now = u.At
		}
		f.Nodes.Set(&n)
		f.Past = u.Past
	}
	if diff := cmp.Diff([]string{"10m0s cordoned", "10m1s evicted", "10m1s terminated"}, story); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}

func TestWhatHoldsAMachineUpIsNamed(t *testing.T) {
	held := strays("guarded", "homeless", "slow", "more", "most")
	held[2].Terminating = true
	f := fleet(state.Node{Cordon: state.ScalingDown, Pods: len(held), Strays: held})
	f.Past.Leaving = map[string]time.Time{"a": noon.Add(-drainBound)}
	f.Evictions["guarded"] = Eviction{At: noon, Refusal: "The disruption budget web needs 2 healthy pods and has 2 currently"}
	want := []HeldUp{{machineOf("a", "")[0], "Machine a is idle and could not be terminated within 5m0s, since it runs pods that use none " +
		"of its devices and could not be moved. " +
		"pod ns/guarded: The disruption budget web needs 2 healthy pods and has 2 currently; " +
		"pod ns/homeless: no other schedulable node that is kept has room for it; " +
		"pod ns/slow: it was evicted and has not terminated yet; and 2 pods more. It stays open and is tried again at 2026-01-01T12:30:00Z"}}
	if diff := cmp.Diff(want, Plan(f).HeldUp); diff != "" {
		t.Errorf("held up (-want +got):\n%s", diff)
	}
}

// TestScaleDownHolds makes random fleets. No scale-down removes a machine that is booked,
// that a human has cordoned, that runs a pod that must stay, that an attempt in flight
// owns or that its group needs for its minimum. The same fleet gives the same scale-down.
func TestScaleDownHolds(t *testing.T) {
	const cases = 20_000
	taken, cordoned, evicted := 0, 0, 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 4))
		f := randomFleet(r)
		u := Plan(f)
		if diff := cmp.Diff(u, Plan(f), cmpopts.IgnoreFields(state.Stray{}, "Replica")); diff != "" {
			t.Fatalf("seed %d: the same fleet gave another scale-down:\n%s", seed, diff)
		}
		if err := tends(f, u); err != nil {
			t.Fatalf("seed %d: %v\nscale-down %+v", seed, err, u)
		}
		taken, cordoned, evicted = taken+len(u.Terminate), cordoned+len(u.Cordon), evicted+len(u.Evict)
	}
	if min(taken, cordoned, evicted) < cases/100 {
		t.Errorf("%d machines terminated, %d cordoned, %d pods evicted in %d cases: they say little", taken, cordoned, evicted, cases)
	}
}

// tends says what is wrong with an scale-down.
func tends(f Fleet, u Decision) error {
	left := map[string]int{}
	goes := map[string]bool{}
	for n := range f.Nodes.All() {
		if n.Machine == nil {
			continue
		}
		group := n.Machine.Group
		taken := slices.ContainsFunc(u.Terminate, func(r Return) bool { return r.Node == n.Name })
		going := taken || slices.Contains(u.Cordon, n.Name)
		switch orphan := n.Cordon == state.Joining && !n.InFlight; {
		case !going && !n.InFlight && (slices.Contains(u.Lift, n.Name) || len(n.Bookings) > 0 || n.Cordon != state.ScalingDown && !orphan):
			left[group]++
		case going && (n.InFlight || len(n.Bookings) > 0 || n.Cordon == state.Foreign || n.Kept && !orphan):
			return fmt.Errorf("node %s goes, which is not to be had", n.Name)
		case going && n.Pods > len(n.Strays) && n.Terminating < n.Pods:
			return fmt.Errorf("node %s goes with pods that must stay", n.Name)
		case going && !orphan:
			goes[group] = true
		}
		if taken && (n.Pods > n.Terminating || n.Cordon != state.ScalingDown && n.Cordon != state.Joining) {
			return fmt.Errorf("machine %s is terminated, which runs pods or is open to others", n.Name)
		}
	}
	for i := range f.Groups {
		if g := &f.Groups[i]; goes[g.Name] && left[g.Name] < g.Min {
			return fmt.Errorf("group %s is left with %d machines, its minimum is %d", g.Name, left[g.Name], g.Min)
		}
	}
	for _, s := range u.Evict {
		ok := false
		for n := range f.Nodes.All() {
			ok = ok || n.Cordon == state.ScalingDown && n.Pods == len(n.Strays) &&
				slices.ContainsFunc(n.Strays, func(o state.Stray) bool { return o.UID == s.UID })
		}
		if !ok {
			return fmt.Errorf("pod %s is evicted from a machine that does not leave", &s)
		}
	}
	return nil
}

func randomFleet(r *rand.Rand) Fleet {
	f := fleet()
	f.Groups[0].Min = r.IntN(4)
	f.Undecided = r.IntN(8) == 0
	f.Past = Past{Leaving: map[string]time.Time{}, Spared: map[string]time.Time{}}
	f.elsewhere(int64(r.IntN(8)))
	ago := func(most int) time.Time { return noon.Add(-time.Duration(r.IntN(most)) * time.Minute) }
	for i := range r.IntN(8) {
		name := string(rune('a' + i))
		n := state.Node{Cordon: state.Cordon(r.IntN(int(state.Foreign) + 1)), Launch: token}
		n.Marked = n.Cordon == state.Joining || n.Cordon == state.Held || n.Cordon == state.ScalingDown
		n.InFlight, n.Kept = r.IntN(8) == 0, r.IntN(8) == 0
		if r.IntN(4) == 0 {
			n.Bookings = []state.Booking{{Key: "gang", Namespace: "ns", UID: uid}}
		}
		switch r.IntN(3) {
		case 0:
			n.Strays = strays("stray-" + name)
			n.Pods = 1
		case 1:
			n.Pods = 1 + r.IntN(2)
			n.Terminating = r.IntN(n.Pods + 1)
		}
		if n.Pods == len(n.Strays) {
			n.IdleSince = ago(20)
		}
		if r.IntN(4) == 0 {
			n.UnreadySince = ago(20)
		}
		if r.IntN(2) == 0 {
			f.Past.Leaving[name] = ago(8)
		}
		if r.IntN(8) == 0 {
			f.Past.Spared[name] = ago(20).Add(10 * time.Minute)
		}
		f.add(name, n)
	}
	return f
}

func TestBookingKey(t *testing.T) {
	long := strings.Repeat("b", 253)
	for name, want := range map[string]string{
		"short":           "short",
		long[:63]:         long[:63],
		long[:62] + "cde": long[:31] + "." + (long[:62] + "cde")[34:],
	} {
		if got := state.BookingKey(name); got != want || len(got) > 63 {
			t.Errorf("BookingKey(%q) = %q (%d characters), want %q", name, got, len(got), want)
		}
	}
}
