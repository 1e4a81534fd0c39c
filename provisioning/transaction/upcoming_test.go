package transaction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
)

// at8 is a group of machines of 8 GPUs.
func at8(name string, most int) nodegroups.Group {
	return nodegroups.Group{
		Name: name, CapacityType: v1alpha1.OnDemand, Max: most, Allocatable: whole, Promised: whole, MicroUSDPerHour: 10e6,
		Labels: map[string]string{v1alpha1.NodeGroupLabel: name}, JoinTimeout: 10 * time.Minute,
	}
}

// gangOf is a gang of pods of one GPU each.
func gangOf(uid types.UID, gpus int) state.Gang {
	return state.Gang{Namespace: "ns", Name: "ns/" + string(uid), UID: uid, Key: string(uid),
		PodSets: []state.PodSet{asking("workers", gpus, "1")}}
}

// clusterOf returns a cluster of groups where gangs come one after another.
func clusterOf(groups ...nodegroups.Group) *planner.Snapshot {
	s := planner.NewSnapshot(noon, nodeset.New(), groups, nil)
	now := *s
	now.Nodes = s.Nodes.Clone()
	s.Upcoming = planner.NewUpcoming(&now, nil)
	return s
}

// TestGangsThatComeTogetherShareMachines: gangs smaller than a machine use the room that
// earlier ones leave, and launch only what is missing.
func TestGangsThatComeTogetherShareMachines(t *testing.T) {
	dear := at8("dear", 9)
	dear.MicroUSDPerHour = 90e6
	spot := at8("spot", 1)
	spot.CapacityType = v1alpha1.Spot
	for _, tc := range []struct {
		name   string
		groups []nodegroups.Group
		gpus   []int
		want   []string
	}{
		{"five to a machine and a half", []nodegroups.Group{at8("gpu", 9)}, []int{3, 3, 3, 3, 2},
			[]string{"gpu: 1", "shares gpu: 1", "gpu: 1", "shares gpu: 2", "shares gpu: 1"}},
		{"what is larger than what others leave takes a machine of its own beside it", []nodegroups.Group{at8("gpu", 9)}, []int{12, 12, 8},
			[]string{"gpu: 2", "gpu: 1, shares gpu: 1", "gpu: 1"}},
		{"whole machines have nothing to share", []nodegroups.Group{at8("gpu", 9)}, []int{8, 16, 8}, []string{"gpu: 1", "gpu: 2", "gpu: 1"}},
		{"the group is full, but for what is left", []nodegroups.Group{at8("gpu", 1)}, []int{5, 4, 3, 1},
			[]string{"gpu: 1", "Wait", "shares gpu: 1", "Wait"}},
		{"a cheaper capacity type comes first, then what dear machines leave is free", []nodegroups.Group{dear, spot}, []int{8, 4, 4},
			[]string{"spot: 1", "dear: 1", "shares dear: 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := clusterOf(tc.groups...)
			var got []string
			for i, gpus := range tc.gpus {
				g := gangOf(types.UID(fmt.Sprintf("gang-%d", i)), gpus)
				plan := planner.Plan(s, g, state.DefaultPolicy(state.AtomicScaleUp))
				got = append(got, said(&plan))
				if plan.Outcome == planner.Fits || plan.Outcome == planner.Launch {
					s = s.Taking(g.UID, g.Tenant(), &plan)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plans (-want +got):\n%s", diff)
			}
		})
	}
}

// said is what a plan comes to in a few words.
func said(plan *planner.Verdict) (out string) {
	if plan.Outcome != planner.Launch {
		return plan.Outcome.String()
	}
	for _, l := range plan.Launches {
		out += fmt.Sprintf("%s: %d", l.Group, l.Count)
	}
	for _, l := range plan.Shares {
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf("shares %s: %d", l.Group, l.Count)
	}
	return out
}

// TestTheRoomThatOthersLeave: what is counted on is what will be there for sure once
// machines have joined and pods have come, and nothing else.
func TestTheRoomThatOthersLeave(t *testing.T) {
	half := nodegroups.Resources{"nvidia.com/gpu": 4, "pods": 4}
	waits := func(changes ...func(*state.Booking)) func(*state.Node) {
		return func(n *state.Node) {
			b := state.Booking{Key: "other", Namespace: "ns", UID: "other", Open: true, Held: true, Booked: half, Remaining: half, Since: noon}
			for _, change := range changes {
				change(&b)
			}
			n.Cordon, n.Bookings, n.Labelled = state.Held, []state.Booking{b}, []state.Booking{b}
		}
	}
	quarter := nodegroups.Resources{"nvidia.com/gpu": 2, "pods": 2}
	full := func(changes ...func(*state.Booking)) func(*state.Node) {
		return func(n *state.Node) { waits(changes...)(n); n.Free = half }
	}
	late := func(b *state.Booking) { b.Since = noon.Add(-planner.ComesWithin) }
	unheard := func(b *state.Booking) { b.Since = noon.Add(-planner.StartsWithin) }
	provisioned := func(b *state.Booking) { b.Provisioned = noon }
	coming := func(b *state.Booking) { b.Came = []nodegroups.Resources{{"nvidia.com/gpu": 1, "pods": 1}} }
	open := func(b *state.Booking) { b.Held = false }
	in := func(uid types.UID, gpus, count int, changes ...func(*planner.UpcomingAttempt)) planner.UpcomingAttempt {
		u := planner.UpcomingAttempt{Gang: gangOf(uid, gpus), Policy: state.DefaultPolicy(state.AtomicScaleUp),
			Launches: []planner.GroupCount{{Group: "gpu", Count: count}}, Held: true}
		u.Gang.Launch = state.Token(uid, 1)
		for _, change := range changes {
			change(&u)
		}
		return u
	}
	for _, tc := range []struct {
		name   string
		nodes  []func(*state.Node)
		flying []planner.UpcomingAttempt
		want   string
	}{
		{"pods are about to come to one node", []func(*state.Node){waits()}, nil, "Fits"},
		{"pods that were about to come to one node have not, for a minute", []func(*state.Node){waits(late)}, nil, "Fits"},
		{"nobody knows when pods come to one node", []func(*state.Node){waits(open)}, nil, "Fits"},
		{"pods are about to come to two nodes", []func(*state.Node){waits(), full()}, nil, "shares gpu: 1"},
		{"pods that were about to come to two nodes have not begun to", []func(*state.Node){waits(unheard), full(unheard)}, nil, "gpu: 1"},
		{"they have begun to on one of them", []func(*state.Node){waits(unheard), full(unheard, coming)}, nil, "shares gpu: 1"},
		{"the last of the nodes has just been booked", []func(*state.Node){waits(unheard), full()}, nil, "shares gpu: 1"},
		{"the last of the nodes has just been booked, and pods have begun to come", []func(*state.Node){waits(late), full(coming)}, nil,
			"shares gpu: 1"},
		{"the pods could not come before", []func(*state.Node){waits(unheard, provisioned), full(unheard, provisioned)}, nil, "shares gpu: 1"},
		{"they have begun to, and have not come within a minute", []func(*state.Node){waits(late), full(late, coming)}, nil, "gpu: 1"},
		{"pods that were about to come to two nodes have not, for a minute", []func(*state.Node){waits(late), full(late)}, nil, "gpu: 1"},
		{"nobody knows when pods come to two nodes", []func(*state.Node){waits(open), full(open)}, nil, "gpu: 1"},
		{"pods of one gang are about to come to one node, and of another one to it and to another node", []func(*state.Node){
			func(n *state.Node) {
				waits()(n)
				b := n.Bookings[0]
				b.UID, b.Key, b.Booked, b.Remaining = "third", "third", quarter, quarter
				n.Bookings, n.Labelled = append(n.Bookings, b), append(n.Labelled, b)
				n.Free = n.Free.Clone()
				n.Free.Add(quarter, 1)
			}, full(func(b *state.Booking) { b.UID, b.Key = "third", "third" })}, nil, "shares gpu: 1"},
		{"the node is about to go", []func(*state.Node){func(n *state.Node) { waits()(n); n.Cordon = state.ScalingDown }}, nil, "gpu: 1"},
		{"another request of the name has booked the node", []func(*state.Node){waits(func(b *state.Booking) { b.Key = "gang" })}, nil, "gpu: 1"},
		{"a machine is on its way", nil, []planner.UpcomingAttempt{in("a", 4, 1)}, "shares gpu: 1"},
		{"a request that gets it does not begin at once", nil, []planner.UpcomingAttempt{in("a", 4, 1, func(u *planner.UpcomingAttempt) { u.Held = false })}, "gpu: 1"},
		{"an older request comes before", nil, []planner.UpcomingAttempt{in("a", 4, 1), in("b", 4, 0)}, "gpu: 1"},
		{"an older request that takes its time comes before", nil, []planner.UpcomingAttempt{in("a", 1, 1), in("b", 1, 0, func(u *planner.UpcomingAttempt) { u.Held = false })}, "gpu: 1"},
		{"an older request that finds nothing comes before", nil, []planner.UpcomingAttempt{in("b", 4, 0), in("a", 4, 1)}, "shares gpu: 1"},
		{"the machine has become a node", []func(*state.Node){func(n *state.Node) { n.Cordon, n.Launch, n.InFlight = state.Joining, "a-1", true }},
			[]planner.UpcomingAttempt{in("a", 4, 1), in("b", 4, 0)}, "gpu: 1"},
		{"the machine is booked, and the attempt not over", []func(*state.Node){func(n *state.Node) {
			waits(func(b *state.Booking) { b.UID, b.Key = "a", "a" })(n)
			n.Launch = "a-1"
		}}, []planner.UpcomingAttempt{in("a", 4, 1), in("b", 4, 0)}, "gpu: 1"},
		{"an attempt has booked a half-used node beside its machine", []func(*state.Node){func(n *state.Node) {
			waits(func(b *state.Booking) { b.UID, b.Key = "a", "a" })(n)
			n.Cordon = state.Open
		}}, []planner.UpcomingAttempt{in("a", 12, 1)}, "shares gpu: 1"},
		{"somebody has booked a part of what he needs, and began first", []func(*state.Node){func(n *state.Node) {
			waits(func(b *state.Booking) { b.UID, b.Key = "a", "a" })(n)
			n.Free = half
		}}, []planner.UpcomingAttempt{in("a", 6, 0), in("b", 6, 1)}, "gpu: 1"},
		{"somebody has booked a part of what he needs, and the rest is what others leave", []func(*state.Node){func(n *state.Node) {
			waits(func(b *state.Booking) { b.UID, b.Key = "b", "b" })(n)
			n.Free = half
		}}, []planner.UpcomingAttempt{in("a", 4, 1), in("b", 8, 0)}, "gpu: 1"},
		{"somebody who came later has booked what others leave", []func(*state.Node){func(n *state.Node) {
			waits(func(b *state.Booking) { b.UID, b.Key = "b", "b" })(n)
		}}, []planner.UpcomingAttempt{in("a", 4, 0), in("b", 4, 0)}, "gpu: 1"},
		{"pods are on their way that may keep others away", nil, []planner.UpcomingAttempt{in("a", 1, 1, func(u *planner.UpcomingAttempt) {
			u.Gang.PodSets[0].Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname,
					LabelSelector: &metav1.LabelSelector{}}},
			}}
		})}, "gpu: 1"},
		{"its group is gone", nil, []planner.UpcomingAttempt{in("a", 4, 1, func(u *planner.UpcomingAttempt) { u.Launches[0].Group = "gone" })}, "gpu: 1"},
		{"a machine turns out to be smaller", nil, []planner.UpcomingAttempt{in("a", 9, 1)}, "gpu: 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory()
			for i, change := range tc.nodes {
				s.node(fmt.Sprintf("node-%d", i), change)
			}
			look := *s.view.Snapshot
			look.Nodes = s.view.Nodes.Clone()
			s.view.Upcoming = planner.NewUpcoming(&look, tc.flying)
			plan := planner.Plan(s.view.Snapshot, state.Gang{Namespace: "ns", Name: "ns/gang", UID: uid, Key: "gang",
				PodSets: []state.PodSet{asking("workers", 4, "1")}}, state.DefaultPolicy(state.AtomicScaleUp))
			if got := said(&plan); got != tc.want {
				t.Errorf("plan is %q (%s), want %q", got, plan.Message(), tc.want)
			}
		})
	}
}

// shares has the request wait for the room that another one leaves, which launches a
// machine for 8 pods of so many GPUs.
func shares(otherGPUs int) func(*story) {
	return func(s *story) {
		s.request.Attempt = Attempt{Number: 1, Phase: Launching, Shares: []planner.GroupCount{{Group: "gpu", Count: 1}}, Started: noon}
		s.request.Gang = gangOf(uid, 4)
		s.request.Gang.Launch = token
		s.request.Pods = 4
		s.countOn(planner.UpcomingAttempt{Gang: gangOf("other", otherGPUs), Policy: state.DefaultPolicy(state.AtomicScaleUp),
			Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Held: true})
	}
}

// countOn has these attempts in flight, and then the request's own.
func (s *story) countOn(flying ...planner.UpcomingAttempt) {
	look := *s.view.Snapshot
	look.Nodes = s.view.Nodes.Clone()
	for i := range flying {
		flying[i].Gang.Launch = state.Token(flying[i].Gang.UID, 1)
	}
	own := planner.UpcomingAttempt{Gang: s.request.Gang, Policy: s.request.Policy, Launches: s.request.Attempt.Launches, Held: true}
	s.view.Upcoming = planner.NewUpcoming(&look, append(flying, own))
}

// TestARequestThatSharesMachines waits for as long as the requests that launch them do.
func TestARequestThatSharesMachines(t *testing.T) {
	begun := func(launches, shares int) func(*testing.T, Step) {
		return func(t *testing.T, got Step) {
			var want Attempt
			if launches > 0 {
				want.Launches = []planner.GroupCount{{Group: "gpu", Count: launches}}
			}
			if shares > 0 {
				want.Shares = []planner.GroupCount{{Group: "gpu", Count: shares}}
			}
			if !slices.Equal(got.Attempt.Launches, want.Launches) || !slices.Equal(got.Attempt.Shares, want.Shares) || got.Attempt.Number != 2 {
				t.Errorf("attempt is %+v", got.Attempt)
			}
		}
	}
	half := func(n *state.Node) {
		n.Free = whole.Clone()
		n.Free.Sub(nodegroups.Resources{"nvidia.com/gpu": 4, "pods": 4}, 1)
		n.Pods = 4
	}
	waits := func(n *state.Node) {
		booked := nodegroups.Resources{"nvidia.com/gpu": 4, "pods": 4}
		n.Cordon = state.Held
		n.Bookings = []state.Booking{{Key: "other", Namespace: "ns", UID: "other", Open: true, Held: true, Booked: booked, Remaining: booked,
			Since: noon}}
		n.Labelled = n.Bookings
	}
	// thirdLeaves: the other request needs all of its machine, and a third one leaves enough of another.
	thirdLeaves := func(s *story) {
		s.countOn(planner.UpcomingAttempt{Gang: gangOf("other", 8), Policy: state.DefaultPolicy(state.AtomicScaleUp),
			Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Held: true})
		s.view.Upcoming = s.view.Upcoming.With(planner.UpcomingAttempt{Gang: gangOf("third", 2),
			Policy: state.DefaultPolicy(state.AtomicScaleUp), Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Held: true})
	}
	play(t, []expected{
		{"the machine is on its way", newStory().with(shares(4)), Rest, "", nil},
		{"the other's pods have come", newStory().node("a", half).with(shares(8)), Book, "", nil},
		{"the other has booked it, and its pods do not come", newStory().node("a", waits).with(shares(4)).with(func(s *story) { s.countOn() }), Book, "",
			nil},
		{"the other needs all of it", newStory().with(shares(8)), Begin, "Attempt 2 launches 1 machine of NodeGroup gpu for 10.00 USD per hour", begun(1, 0)},
		{"there is another one to share with", newStory().with(shares(4)).with(thirdLeaves).at(shareAgain), Begin, "Attempt 2 launches nothing: the rest fits on 1 machine of group gpu shared with other requests",
			begun(0, 1)},
		{"there is another one to share with, but it has just begun to share", newStory().with(shares(4)).with(thirdLeaves), Rest, "", func(t *testing.T, got Step) {
			if want := noon.Add(shareAgain); !got.At.Equal(want) {
				t.Errorf("it looks again at %s, want %s", got.At, want)
			}
		}},
		{"there is another one to share with, but it has waited in vain for long", newStory().with(shares(4)).with(thirdLeaves).
			at(planner.StartsWithin), Begin, "Attempt 2 launches 1 machine of NodeGroup gpu for 10.00 USD per hour", begun(1, 0)},
		{"there is another one to share with, it has waited in vain for long, and none may be launched", newStory().with(shares(4)).
			with(thirdLeaves).with(dry).at(planner.StartsWithin), Begin, "Attempt 2 launches nothing", begun(0, 1)},
		{"nobody gets machines any more, and none may be launched", newStory().with(shares(4)).with(dry).with(func(s *story) { s.countOn() }), Report, "Capacity is not found now", nil},
		{"its own machine has joined, the other's not yet", newStory().node("a", young).with(shares(4)).machines(booting).with(func(s *story) {
			s.request.Gang = gangOf(uid, 12)
			s.request.Gang.Launch = token
			s.request.Attempt.Launches = []planner.GroupCount{{Group: "gpu", Count: 1}}
			s.countOn(planner.UpcomingAttempt{Gang: gangOf("other", 4), Policy: state.DefaultPolicy(state.AtomicScaleUp),
				Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Held: true})
		}), Rest, "", nil},
		{"its own machine has joined, and the other's will not", newStory().node("a", young).with(shares(4)).machines(booting).with(func(s *story) {
			s.request.Gang = gangOf(uid, 12)
			s.request.Gang.Launch = token
			s.request.Attempt.Launches = []planner.GroupCount{{Group: "gpu", Count: 1}}
			s.countOn()
		}), RollBack, "machines launched for other gangs do not leave the capacity", nil},
	})
}

// sharer is a gang that gets one machine of 8 GPUs for 12 pods, and counts on a half of another.
func sharer(uid types.UID) planner.UpcomingAttempt {
	u := planner.UpcomingAttempt{Gang: gangOf(uid, 12), Policy: state.DefaultPolicy(state.AtomicScaleUp),
		Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Shares: true, Held: true}
	u.Gang.Launch = state.Token(uid, 1)
	return u
}

// TestWhatIsCountedOnIsKept: from when the room is there that a gang counts on until its own machines are, no other is given it.
func TestWhatIsCountedOnIsKept(t *testing.T) {
	free := func(gpus int64) func(*state.Node) {
		return func(n *state.Node) {
			n.Free, n.Pods = nodegroups.Resources{"nvidia.com/gpu": gpus, "pods": gpus}, 8-int(gpus)
		}
	}
	alone := sharer("a")
	alone.Shares = false
	for _, tc := range []struct {
		name   string
		free   int64
		flying []planner.UpcomingAttempt
		gpus   int
		want   string
	}{
		{"nobody counts on it", 4, nil, 4, "Fits"},
		{"a gang counts on all of it", 4, []planner.UpcomingAttempt{sharer("a")}, 4, "gpu: 1"},
		{"a gang counts on a half of it", 8, []planner.UpcomingAttempt{sharer("a")}, 4, "Fits"},
		{"two gangs count on a half each", 8, []planner.UpcomingAttempt{sharer("a"), sharer("b")}, 4, "gpu: 1"},
		{"a gang that launches enough counts on nothing", 4, []planner.UpcomingAttempt{alone}, 4, "Fits"},
		{"what lacks a machine beside it shares it, and does not keep the others off", 8, []planner.UpcomingAttempt{sharer("a")}, 12,
			"gpu: 1, shares gpu: 1"},
		{"what lacks a machine beside it books it where nobody counts on it", 4, nil, 12, "gpu: 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory().node("node", free(tc.free))
			look := *s.view.Snapshot
			look.Nodes = s.view.Nodes.Clone()
			s.view.Upcoming = planner.NewUpcoming(&look, tc.flying)
			gang := gangOf(uid, tc.gpus)
			plan := planner.Plan(s.view.Snapshot, gang, state.DefaultPolicy(state.AtomicScaleUp))
			if got := said(&plan); got != tc.want {
				t.Errorf("plan is %q (%s), want %q", got, plan.Message(), tc.want)
			}
			check := planner.Plan(s.view.Snapshot, gang, state.DefaultPolicy(state.CheckCapacity))
			told := strings.Contains(check.Message(), "beside what is kept for requests whose machines are on their way")
			if shares := len(tc.flying) > 0 && tc.flying[0].Shares; check.Outcome == planner.Wait && told != shares {
				t.Errorf("why it does not fit now is told as %q", check.Message())
			}
			if without, _ := planner.Place(s.view.Without().Nodes, gang); tc.gpus == 4 && (without.Outcome == planner.Fits) != (tc.want == "Fits") {
				t.Errorf("without any pods it is %s (%s)", without.Outcome, without.Message())
			}
		})
	}
}

// TestAGangThatSharesAndLaunches has the room that it counts on while its own machine boots: it comes first in time, and books what
// would be terminated.
func TestAGangThatSharesAndLaunches(t *testing.T) {
	of := func(began ...planner.UpcomingAttempt) func(*story) {
		return func(s *story) {
			own := sharer(uid)
			s.request.Gang, s.request.Pods, s.request.PodsHeld = own.Gang, 12, true
			s.request.Attempt = Attempt{Number: 1, Phase: Launching, Launches: own.Launches, Shares: own.Launches, Started: noon}
			look := *s.view.Snapshot
			look.Nodes = s.view.Nodes.Clone()
			s.view.Upcoming = planner.NewUpcoming(&look, append(began, own)).With(sharer("later"))
		}
	}
	half := func(n *state.Node) { n.Free, n.Pods = nodegroups.Resources{"nvidia.com/gpu": 4, "pods": 4}, 4 }
	idle := func(n *state.Node) {
		n.IdleSince, n.Machine = noon, &cloudprovider.Machine{Name: n.Name, ProviderID: n.ProviderID, Group: "gpu"}
	}
	booksB := func(t *testing.T, got Step) {
		if len(got.Book) != 1 || got.Book[0].Node != "b" || !got.Open || got.Attempt.Phase != Launching {
			t.Errorf("it books %+v, open %t, in attempt %+v", got.Book, got.Open, got.Attempt)
		}
	}
	earlier := sharer("earlier")
	play(t, []expected{
		{"its machine boots, and others use the node", newStory().node("b", half).with(of()).machines(booting), Rest, "", nil},
		{"its machine boots, and the node is idle", newStory().node("b", idle).with(of()).machines(booting), Book, "", booksB},
		{"an earlier gang counts on a part of the idle node", newStory().node("b", idle).with(of(earlier)).machines(booting), Rest, "", nil},
		{"the node is no machine of a cloud", newStory().node("b", func(n *state.Node) { n.IdleSince = noon }).with(of()).machines(booting), Rest, "", nil},
		{"its machine has joined", newStory().node("a", young).node("b", half).with(of()).machines(booting), Book, "", nil},
		{"its machine has joined, and an earlier gang counts on the node", newStory().node("a", young).node("b", half).with(of(earlier)).
			machines(booting), RollBack, "machines launched for other gangs do not leave the capacity", nil},
	})
}

// TestASharedBookingIsRepairedAtOnce: once pods may have come, no request waits for others.
func TestASharedBookingIsRepairedAtOnce(t *testing.T) {
	s := newStory().provisioned().node("a", booked).with(podsWaiting)
	s.countOn(planner.UpcomingAttempt{Gang: gangOf("other", 1), Policy: state.DefaultPolicy(state.AtomicScaleUp),
		Launches: []planner.GroupCount{{Group: "gpu", Count: 3}}, Held: true})
	got := Next(&s.request, s.view)
	if got.Do != Begin || len(got.Attempt.Launches) == 0 || len(got.Attempt.Shares) > 0 {
		t.Errorf("step is %s %+v (%s)", got.Do, got.Attempt, got.Condition.Message)
	}
}

// TestASharerPaysItsPart: a budget has to have room for half of a machine that another
// request launches.
func TestASharerPaysItsPart(t *testing.T) {
	for _, tc := range []struct {
		usd  int64
		want string
	}{{15, "shares gpu: 1"}, {14, "Wait"}} {
		s := clusterOf(at8("gpu", 9))
		first, second := gangOf("first", 4), gangOf("second", 4)
		first.Queue = "rich"
		second.Queue = "poor"
		s.Budgets = []spend.Budget{{
			Policy: "policy", Name: "poor", Covers: func(t state.Tenant) bool { return t.Queue == "poor" }, MicroUSD: tc.usd * 1e6,
			Starts: noon.Add(-time.Hour), Ends: noon.Add(24 * time.Hour), Reserve: 3 * time.Hour,
		}}
		plan := planner.Plan(s, first, state.DefaultPolicy(state.AtomicScaleUp))
		s = s.Taking("first", first.Tenant(), &plan)
		if plan = planner.Plan(s, second, state.DefaultPolicy(state.AtomicScaleUp)); said(&plan) != tc.want {
			t.Errorf("with a budget of %d USD for 3 h the second gang is told %s %s, want %s", tc.usd, said(&plan), plan.Message(), tc.want)
		}
	}
}
