package transaction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// lostNode ran that many pods in a rack.
func lostNode(name, rack string, pods int) LostNode {
	l := LostNode{Name: name, Group: "gpu", Pods: pods, Labels: map[string]string{"rack": rack, v1alpha1.NodeGroupLabel: "gpu"}}
	for range pods {
		l.Ran = append(l.Ran, onePod)
	}
	return l
}

// lose has the gang lose these nodes.
func lose(lost ...LostNode) func(*story) { return func(s *story) { s.view.Lost = lost } }

// runsOn is a node on which the gang runs.
func runsOn(n *state.Node) {
	n.Free, n.Pods = nodegroups.Resources{"cpu": 96000, "pods": 109}, 1
	n.Labelled = []state.Booking{{Key: "gang", Namespace: "ns", UID: uid, Open: true, Booked: whole, Running: 1,
		Came: []nodegroups.Resources{onePod}, Ran: []nodegroups.Resources{onePod}, Remaining: nodegroups.Resources{}}}
}

// inRackRunning is a gang of four pods that run, and that must be in one rack.
func inRackRunning() *story {
	s := newStory()
	s.request.Status, s.request.Consumed = Over, true
	s.request.Policy.RevokeOnLoss, s.request.Policy.Topology = true, "rack"
	s.request.Gang.PodSets[0].Count, s.request.Pods, s.view.Active = 4, 4, 4
	return s.node("a", inRack("r1", runsOn))
}

// repairing is the gang once its booking is reopened for what was lost.
func repairing(t *testing.T, s *story) *story {
	t.Helper()
	step := Next(&s.request, s.view)
	if step.Do != Reopen {
		t.Fatalf("it is not reopened: %s, %s", step.Do, step.Condition.Message)
	}
	p := RepairOf(&provreq.ProvisioningRequest{Status: provreq.ProvisioningRequestStatus{
		ProvisioningClassDetails: map[string]provreq.Detail{RepairDetail: provreq.Detail(step.Repair.Encode())}}})
	s.request.Status, s.request.Consumed, s.request.Repairs, s.view.Lost = Provisioned, false, p.Number, nil
	s.request.Provisioned = metav1.Condition{Status: metav1.ConditionTrue, Reason: ReasonCapacityProvisioned,
		LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}
	again, ok := s.request.Repairing(p, s.view.Objects)
	if !ok {
		t.Fatalf("what is lost cannot be asked for: %+v", p)
	}
	s.request = *again
	return s
}

// notThere is a node that nothing is known of but its name.
func notThere(n *state.Node) { n.Ready = false }

// ran is a node whose pod runs.
func ran(n *state.Node) {
	used(n)
	n.Bookings[0].Ran = []nodegroups.Resources{onePod}
}

// isMachineA has the node be that of machine a.
func isMachineA(n *state.Node) { n.ProviderID = "id-a" }

// forRepair is the booking of the first repair.
func forRepair(change func(*state.Node)) func(*state.Node) {
	return func(n *state.Node) {
		change(n)
		for i := range n.Bookings {
			n.Bookings[i].Repair = 1
		}
	}
}

func TestLostMachinesOfAGangInARackAreReplacedThere(t *testing.T) {
	free := func(*state.Node) {}
	one := lose(lostNode("b", "r1", 1))
	chosen := func(s *story) { s.view.Groups[0].Levels = map[string]int{"rack": 0} }
	var nine []LostNode
	for i := range 9 {
		nine = append(nine, lostNode(fmt.Sprint("b", i), "r1", 1))
	}
	wantLost := func(want string) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			t.Helper()
			var got []string
			for _, l := range s.Repair.Lost {
				got = append(got, fmt.Sprintf("%s %s %d %s", l.Node, l.PodSet, l.Count, l.Labels["rack"]))
			}
			if strings.Join(got, ", ") != want || s.Repair.Number != 1 || len(s.Book)+len(s.Unbook)+len(s.Launch) > 0 ||
				s.Condition.Type != provreq.BookingExpired || s.Condition.Status != metav1.ConditionFalse {
				t.Errorf("the step is %+v, repair %+v, want %s", s, s.Repair, want)
			}
		}
	}
	revoked := func(t *testing.T, s Step) {
		t.Helper()
		if s.Condition.Type != provreq.CapacityRevoked {
			t.Errorf("the step is %+v", s)
		}
	}
	without := func(change func(*Request)) func(*story) { return func(s *story) { change(&s.request) } }
	play(t, []expected{
		{name: "by a free one there", story: inRackRunning().node("c", inRack("r1", free)).with(one), want: Reopen, check: wantLost("b workers 1 r1")},
		{name: "two at once", story: inRackRunning().node("c", inRack("r1", free)).node("d", inRack("r1", free)).with(lose(lostNode("b", "r1", 1), lostNode("e", "r1", 1))),
			want: Reopen, check: wantLost("b workers 1 r1, e workers 1 r1")},
		{name: "by one that the cloud may make there", story: inRackRunning().with(chosen).with(one), want: Reopen, check: wantLost("b workers 1 r1")},
		{name: "not by one of another rack", story: inRackRunning().node("c", inRack("r2", free)).with(one), want: ReportLoss, check: revoked},
		{name: "not by room beside the gang's own pods", story: inRackRunning().node("a", inRack("r1", runsOn), func(n *state.Node) { n.Free = whole }).with(one), want: ReportLoss, check: revoked},
		{name: "not where none is left that runs", story: newStory().with(func(s *story) { s.request = inRackRunning().request }).node("c", inRack("r1", free)).with(one), want: ReportLoss, check: revoked},
		{name: "not more than eight", story: inRackRunning().with(chosen).with(without(func(r *Request) { r.Gang.PodSets[0].Count = 12 })).with(lose(nine...)), want: ReportLoss, check: revoked},
		{name: "not of a gang that may be anywhere", story: inRackRunning().node("c", inRack("r1", free)).with(without(func(r *Request) { r.Policy.Topology = "" })).with(one), want: ReportLoss, check: revoked},
		{name: "not of one whose booking has expired", story: inRackRunning().node("c", inRack("r1", free)).with(without(func(r *Request) { r.Consumed = false })).with(one), want: ReportLoss, check: revoked},
		{name: "not where a loss is told alone", story: inRackRunning().node("c", inRack("r1", free)).with(without(func(r *Request) { r.Policy.RevokeOnLoss = false })).with(one), want: ReportLoss,
			check: func(t *testing.T, s Step) {
				if s.Condition.Type != "" {
					t.Errorf("the step is %+v", s)
				}
			}},
	})
	launched := func(n *state.Node) { young(n); n.Launch = "uid-1" }
	wantIn := func(rack string) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			t.Helper()
			if s.Attempt.Level != "rack" || s.Attempt.Domain != rack || len(s.Attempt.Launches) != 1 || s.Attempt.Launches[0].Count != 1 {
				t.Errorf("the attempt is %+v, want a machine in %s", s.Attempt, rack)
			}
		}
	}
	attempt := func(s *story) {
		s.request.Attempt = Attempt{Number: 1, Phase: Launching, Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Level: "rack",
			Domain: "r1", Started: noon}
		s.request.Gang.Launch = "uid-1"
	}
	fresh := func() *story { return repairing(t, inRackRunning().node("c", inRack("r1", free)).with(one)) }
	made := func() *story { return repairing(t, inRackRunning().with(chosen).with(one)) }
	play(t, []expected{
		{name: "what is there is booked, and the nodes that run on are left alone", story: fresh(), want: Repair, check: wantNodes("open whole c")},
		{name: "its pods are waited for", story: fresh().node("c", inRack("r1", forRepair(booked))), want: Rest, check: wantAt(10 * time.Minute)},
		{name: "until they run", story: fresh().node("c", inRack("r1", forRepair(used))), want: Consume, check: wantNodes("uncordon a, uncordon c")},
		{name: "or are not made again", story: fresh().node("c", inRack("r1", forRepair(booked))).at(10 * time.Minute), want: Consume, message: "0 of 1 pod were made again within 10m0s"},
		{name: "one that is lost meanwhile is replaced, too", story: fresh().with(lose(lostNode("a2", "r1", 1))).node("a2b", inRack("r1", free)), want: Reopen,
			check: func(t *testing.T, s Step) {
				if s.Repair.Number != 1 || len(s.Repair.Lost) != 2 || !s.Repair.Started.Equal(noon) {
					t.Errorf("the repair is %+v", s.Repair)
				}
			}},
		{name: "one that is told twice is lost once", story: fresh().with(one), want: Reopen, check: wantLost("b workers 1 r1")},
		{name: "the gang stops where there is no room for that", story: fresh().with(lose(lostNode("a2", "r1", 1))), want: ReportLoss, check: revoked},
		{name: "a stand-in that is lost is told", story: fresh().with(lose(func() LostNode { l := lostNode("c", "r1", 0); l.Repair = 1; return l }())), want: ReportLoss,
			check: func(t *testing.T, s Step) {
				if s.Condition.Type != "" {
					t.Errorf("the step is %+v", s)
				}
			}},
		{name: "it stops where that was taken and there is no other", story: fresh().node("c", inRack("r1", taken)), want: ReportLoss, check: revoked, message: "they have no others"},
		{name: "a machine is launched", story: made(), want: Begin, message: "launches 1 machine of NodeGroup gpu", check: wantIn("r1")},
		{name: "where the rest of the gang is", story: made().with(attempt), want: LaunchMachines, check: func(t *testing.T, s Step) {
			if len(s.Launch) != 1 || s.Launch[0].Together != (cloudprovider.Domain{Level: "rack", Value: "r1"}) {
				t.Errorf("launches %+v", s.Launch)
			}
		}},
		{name: "one that joins elsewhere is launched again", story: made().with(attempt).machinesOf("uid-1", running).node("b1", inRack("r2", launched), isMachineA), want: Replace, message: "keeps r1 and launches 1 machine again",
			check: func(t *testing.T, s Step) {
				if r := s.Attempt.Replacements; len(r) != 1 || r[0].Domain != "r1" || len(r[0].Lost) != 1 {
					t.Errorf("the attempt is %+v", s.Attempt)
				}
			}},
		{name: "and not more than once", story: made().with(attempt).with(func(s *story) {
			s.request.Attempt.Phase, s.request.Attempt.Failure = Done, &AttemptFailure{Group: "gpu", Class: v1alpha1.Scattered, Time: noon}
		}), want: ReportLoss, check: revoked},
		{name: "one that joins there is the gang's", story: made().with(attempt).machinesOf("uid-1", running).node("b1", inRack("r1", launched), isMachineA), want: Provision},
		{name: "the gang stops when that takes too long", story: made().with(attempt).at(10 * time.Minute), want: ReportLoss, check: revoked},
	})
	sliced := boundBy("kueue.x-k8s.io/podset-slice-required-topology-constraints", `[{"topology":"rack","size":2}]`)
	both := lose(lostNode("b", "r1", 1), lostNode("e", "r2", 1))
	apart := func() *story { return inRackRunning().with(sliced).node("d", inRack("r2", runsOn)).with(chosen) }
	second := func(s *story) { s.request.Attempt.Number, s.request.Attempt.Phase = 1, Done }
	elsewhere := func(want ...string) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			t.Helper()
			var got []string
			for _, l := range s.Repair.Lost {
				got = append(got, l.Elsewhere)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the repair is %+v, want them elsewhere by %q", s.Repair, want)
			}
		}
	}
	wantAny := func(count int) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			t.Helper()
			if s.Attempt.Level != "" || len(s.Attempt.Launches) != 1 || s.Attempt.Launches[0].Count != count {
				t.Errorf("the attempt is %+v, want %d machines in any rack", s.Attempt, count)
			}
		}
	}
	partly := func(t *testing.T, s *story) *story {
		return repairing(t, s.node("e2", inRack("r3", runsOn)).with(lose(lostNode("e1", "r3", 1)))).node("e2", notThere)
	}
	torn := func(t *testing.T) *story {
		return repairing(t, apart().with(lose(lostNode("e1", "r3", 1), lostNode("e2", "r3", 1))))
	}
	two := func(s *story) {
		attempt(s)
		s.request.Attempt.Launches[0].Count, s.request.Attempt.Level, s.request.Attempt.Domain = 2, "", ""
	}
	play(t, []expected{
		{name: "in two racks at once, where the cloud chooses the rack", story: apart().with(both), want: Reopen, check: wantLost("b workers 1 r1, e workers 1 r2")},
		{name: "not where one of them can have none", story: apart().with(both).with(func(s *story) { s.view.Groups[0].Max = 0 }), want: ReportLoss, check: revoked},
		{name: "nor where no cloud chooses it", story: inRackRunning().with(sliced).node("d", inRack("r2", runsOn)).with(both), want: ReportLoss, check: revoked},
		{name: "for one rack first", story: repairing(t, apart().with(both)), want: Begin, check: wantIn("r1")},
		{name: "then for the other", story: repairing(t, apart().with(both)).with(attempt).with(second).node("c", inRack("r1", forRepair(booked))), want: Begin, check: wantIn("r2")},
		{name: "with what there is in the one", story: repairing(t, apart().with(both).node("c", inRack("r1", free))), want: Repair, check: wantNodes("open whole c")},
		{name: "one slice as a whole may be in any rack", story: apart().with(lose(lostNode("e1", "r3", 1), lostNode("e2", "r3", 1))), want: Reopen,
			check: elsewhere("rack", "rack")},
		{name: "also if its parts are lost one after another", story: partly(t, apart()).with(lose(lostNode("e2", "r3", 1))), want: Reopen,
			check: elsewhere("rack", "rack")},
		{name: "but what is left of it is not torn from it", story: apart().node("e2", inRack("r3", runsOn)).with(lose(lostNode("e1", "r3", 1))),
			want: Reopen, check: elsewhere("")},
		{name: "one that is made up for keeps its slice to its rack", want: Repair, check: wantNodes("open whole g"),
			story: repairing(t, repairing(t, apart().with(lose(lostNode("b", "r1", 1)))).node("c", inRack("r1", forRepair(ran))).node("a", notThere).
				with(lose(lostNode("a", "r1", 1)))).node("f", inRack("r5", free)).node("g", inRack("r1", free))},
		{name: "it is booked where there is room", story: torn(t).node("f1", inRack("r5", free)).node("f2", inRack("r5", free)), want: Repair,
			check: wantNodes("open whole f1, open whole f2")},
		{name: "not in two racks", story: torn(t).node("f1", inRack("r5", free)).node("f2", inRack("r6", free)), want: Begin, check: wantAny(2)},
		{name: "or launched in one rack", story: torn(t), want: Begin, check: wantAny(2)},
		{name: "which the cloud is told", story: torn(t).with(two), want: LaunchMachines, check: wantTogether("rack")},
		{name: "and if that is two", story: torn(t).with(two).machinesOf("uid-1", running, running).node("b1", inRack("r5", launched), isMachineA).
			node("b2", inRack("r6", launched), func(n *state.Node) { n.ProviderID = "id-b" }), want: Replace,
			message: "keeps r5 and launches 1 machine again"},
		{name: "one is", story: torn(t).with(two).machinesOf("uid-1", running, running).node("b1", inRack("r5", launched), isMachineA).
			node("b2", inRack("r5", launched), func(n *state.Node) { n.ProviderID = "id-b" }), want: Provision},
		{name: "nothing is launched for that", story: repairing(t, apart().with(both).node("c", inRack("r1", free))).node("c", inRack("r1", forRepair(booked))), want: Begin, check: wantIn("r2")},
	})
}

// TestLostMachinesOfPlacedGangsAreReplacedAnywhere: gangs that no domain binds, and whose pods a topology sends to their nodes.
func TestLostMachinesOfPlacedGangsAreReplacedAnywhere(t *testing.T) {
	one := lose(lostNode("b", "r1", 1))
	anywhere := func(key, value string) *story {
		return inRackRunning().with(boundBy(key, value)).node("c", inRack("r2", func(*state.Node) {})).with(one)
	}
	loose := func(t *testing.T, s Step) {
		t.Helper()
		if l := s.Repair.Lost; len(l) != 1 || l[0].Count != 1 || l[0].Labels["rack"] != "" {
			t.Errorf("the repair is %+v", s.Repair)
		}
	}
	preferred := func() *story { return anywhere("kueue.x-k8s.io/podset-preferred-topology", "rack") }
	play(t, []expected{
		{name: "a rack is preferred", story: preferred(), want: Reopen, check: loose},
		{name: "none is asked for", story: anywhere("kueue.x-k8s.io/podset-unconstrained-topology", "true"), want: Reopen, check: loose},
		{name: "no topology places them", story: anywhere("kueue.x-k8s.io/podset-unconstrained-topology", "false"), want: ReportLoss},
		{name: "by the same rules as all machines of the gang", story: preferred().with(func(s *story) {
			s.request.Policy.Split = v1alpha1.SingleGroup
			s.view.Groups[0].Max = 0
		}).node("c", inGroup("other")), want: ReportLoss},
		{name: "what is there is booked", story: repairing(t, preferred()), want: Repair, check: wantNodes("open whole c")},
		{name: "or launched in any rack", story: repairing(t, preferred()).node("c", inRack("r2", taken)), want: Begin, check: func(t *testing.T, s Step) {
			if s.Attempt.Level != "" || len(s.Attempt.Launches) != 1 || s.Attempt.Launches[0].Count != 1 {
				t.Errorf("the attempt is %+v", s.Attempt)
			}
		}},
	})
}

// TestABookingThatIsShortKeepsToSlices: a booked node is lost before all pods have come, and one is booked in the rack of the slice
// that it was for.
func TestABookingThatIsShortKeepsToSlices(t *testing.T) {
	sliced := func() *story {
		s := newStory().provisioned()
		s.request.Gang.PodSets[0].Count, s.request.Pods, s.view.Active = 4, 4, 4
		return s.with(boundBy("kueue.x-k8s.io/podset-slice-required-topology-constraints", `[{"topology":"rack","size":2}]`)).
			node("a", inRack("r1", used)).node("c", inRack("r3", func(*state.Node) {})).node("d", inRack("r3", taken))
	}
	free := func(*state.Node) {}
	play(t, []expected{
		{name: "a slice that has begun", story: sliced().node("b1", inRack("r2", used)).node("b2", inRack("r2", booked)).node("e", inRack("r1", free)), want: Repair, check: wantNodes("open whole e")},
		{name: "and has no room there", story: sliced().node("b1", inRack("r2", used)).node("b2", inRack("r2", booked)), want: Report},
		{name: "one that has not is left for another rack when its nodes are closed", want: Book, check: wantNodes("close b2"),
			story: sliced().node("e", inRack("r1", booked)).node("b2", inRack("r2", booked)).node("c2", inRack("r3", free))},
		{name: "and no pod can land there any more", want: Repair, check: wantNodes("open whole c, open whole c2, leave b2"),
			story: sliced().node("e", inRack("r1", booked)).node("b2", inRack("r2", closedAt(-Settle))).node("c2", inRack("r3", free))},
		{name: "it is left where only the others were opened", want: Book, check: wantNodes("leave b2"),
			story: sliced().node("e", inRack("r1", booked)).node("b2", inRack("r2", closedAt(-Settle))).node("c2", inRack("r2", booked)).
				node("c3", inRack("r2", booked))},
	})
}

// TestAMachineLostBeforeAllPodsHaveComeIsReplacedInTheirRack: where some of a gang have come the others belong to them.
func TestAMachineLostBeforeAllPodsHaveComeIsReplacedInTheirRack(t *testing.T) {
	begun := func() *story {
		s := newStory().provisioned()
		s.request.Policy.Topology, s.view.Active = "rack", 2
		s.view.Groups[0].Levels = map[string]int{"rack": 0}
		return s.node("a1", inRack("r1", used))
	}
	launched := func(s *story) {
		s.attempt(Launching)
		s.request.Attempt.Launches[0].Count, s.request.Attempt.Level, s.request.Attempt.Domain = 1, "rack", "r1"
	}
	missed := func(s *story) {
		launched(s)
		s.request.Attempt.Phase, s.request.Attempt.Failure = Done, &AttemptFailure{Group: "gpu", Class: v1alpha1.Scattered, Time: noon}
	}
	elsewhere := func(is cloudprovider.State) *story {
		s := begun().attempt(Done)
		s.view.Groups[0].Levels = nil
		return s.node("b", inRack("r2", young), func(n *state.Node) {
			n.Machine = &cloudprovider.Machine{Name: "b", Group: "gpu", State: is}
		})
	}
	play(t, []expected{
		{name: "by one there", story: begun().node("c", inRack("r1", func(*state.Node) {})), want: Repair, check: wantNodes("open whole c")},
		{name: "or one that the cloud may make there", story: begun(), want: Begin, check: func(t *testing.T, s Step) {
			if a := s.Attempt; a.Level != "rack" || a.Domain != "r1" || len(a.Launches) != 1 || a.Launches[0].Count != 1 {
				t.Errorf("the attempt is %+v", a)
			}
		}},
		{name: "not where no cloud chooses the rack", story: begun().with(func(s *story) { s.view.Groups[0].Levels = nil }), want: Report},
		{name: "one that comes there is the gang's", story: begun().with(launched).machines(running).node("a", inRack("r1", young)), want: Provision},
		{name: "one that comes elsewhere is launched again", want: Replace, message: "keeps r1 and launches 1 machine again",
			story: begun().with(launched).machines(running).node("a", inRack("r2", young))},
		{name: "and not for ever", want: RollBack, check: wantLevel(v1alpha1.Scattered),
			story: begun().with(launched).machines(terminated).lost("a").with(keeps).machinesOf("uid-1r1", running).
				node("b", inRack("r2", replaced))},
		{name: "what was missed is told", story: begun().with(missed), want: Report, message: "The booking no longer fits"},
		{name: "one that came elsewhere before the others were here goes back", want: Terminate, story: elsewhere(cloudprovider.Running),
			check: func(t *testing.T, s Step) {
				if len(s.Terminate) != 1 || s.Terminate[0].Name != "b" {
					t.Errorf("terminates %+v", s.Terminate)
				}
			}},
		{name: "once", want: Report, story: elsewhere(cloudprovider.Terminated)},
		{name: "a miss before the booking does not count", story: begun().with(missed).with(func(s *story) { s.request.Attempt.Started = noon.Add(-time.Minute) }),
			want: Begin},
	})
	sliced := func() *story {
		s := begun().with(boundBy("kueue.x-k8s.io/podset-slice-required-topology-constraints", `[{"topology":"rack","size":2}]`))
		s.request.Gang.PodSets[0].Count, s.request.Pods = 4, 4
		s.attempt(Launching)
		return s.node("a2", inRack("r1", used)).machines(running, running)
	}
	play(t, []expected{
		{name: "a slice in one rack is the gang's", story: sliced().node("a", inRack("r2", young)).node("b", inRack("r2", young)), want: Provision},
		{name: "slices in two racks are the gang's, too", want: Provision, story: sliced().with(func(s *story) {
			s.request.Gang.PodSets[0].Count, s.request.Pods, s.request.Attempt.Launches[0].Count = 6, 6, 4
		}).machines(running, running).node("a", inRack("r2", young)).node("b", inRack("r2", young)).node("c", inRack("r3", young)).
			node("d", inRack("r3", young))},
		{name: "one in two racks is given up", story: sliced().node("a", inRack("r2", young)).node("b", inRack("r3", young)), want: RollBack,
			check: wantLevel(v1alpha1.Scattered)},
	})
}

// boundBy has the gang be bound by an annotation of its template alone.
func boundBy(key, value string) func(*story) {
	return func(s *story) {
		s.request.Policy.Topology = ""
		ps := &s.request.Gang.PodSets[0]
		template := ps.Template.DeepCopy()
		template.Annotations = map[string]string{key: value}
		*ps = state.NewPodSet("ns", ps.Name, ps.Count, template, fit.Objects{})
	}
}

// TestARepairKeepsToTheDomainsOfEachSlice, and pods that shared a node to one.
func TestARepairKeepsToTheDomainsOfEachSlice(t *testing.T) {
	s := inRackRunning()
	s.request.Gang.PodSets[0].Count = 16
	boundBy("kueue.x-k8s.io/podset-slice-required-topology-constraints",
		`[{"topology":"rack","size":4},{"topology":"`+corev1.LabelHostname+`","size":2}]`)(s)
	p, ok := repairFor(&s.request, s.view, []LostNode{lostNode("b", "r1", 2), lostNode("c", "r2", 2), lostNode("d", "r2", 2)})
	again, asked := s.request.Repairing(p, fit.Objects{})
	if !ok || !asked || again.Pods != 6 || len(again.Gang.PodSets) != 2 {
		t.Fatalf("the repair is %+v, %t, the gang %+v", p, ok, again.Gang)
	}
	for i, want := range []struct {
		rack   string
		count  int
		layers int
	}{{"r1", 2, 0}, {"", 4, 1}} {
		ps := again.Gang.PodSets[i]
		if ps.Count != want.count || ps.Pod.Selects()["rack"] != want.rack || ps.Pod.PerNode != 2 || len(ps.Pod.Layers) != want.layers {
			t.Errorf("podSet %d has %d pods that select %v, %d a node, %v", i, ps.Count, ps.Pod.Selects(), ps.Pod.PerNode, ps.Pod.Layers)
		}
	}
}

// TestSlicesThatAreLostAsAWholeMayBeElsewhere, layer by layer: what is left of a slice is not torn from it.
func TestSlicesThatAreLostAsAWholeMayBeElsewhere(t *testing.T) {
	at := func(block, rack string, count int) LostPods {
		return LostPods{Node: block + rack, PodSet: "w", Count: count, Labels: map[string]string{"block": block, "rack": rack}}
	}
	racks := []fit.Layer{{Level: "rack", Size: 4}}
	both := []fit.Layer{{Level: "block", Size: 8}, {Level: "rack", Size: 4}}
	for name, tc := range map[string]struct {
		lost, running []LostPods
		layers        []fit.Layer
		want          string
	}{
		"no slices":                            {[]LostPods{at("x", "1", 2)}, nil, nil, "x1 2"},
		"a part of one":                        {[]LostPods{at("x", "1", 1)}, []LostPods{at("x", "1", 3)}, racks, "x1 1"},
		"less than one, of which none run":     {[]LostPods{at("x", "1", 3)}, []LostPods{at("x", "2", 4)}, racks, "x1 3"},
		"some more than one lacks":             {[]LostPods{at("x", "1", 3)}, []LostPods{at("x", "1", 2)}, racks, "x1 3"},
		"all of one":                           {[]LostPods{at("x", "1", 4)}, []LostPods{at("x", "2", 4)}, racks, "x1 4 rack"},
		"all of one, node by node":             {[]LostPods{at("x", "1", 2), at("x", "1", 2)}, nil, racks, "x1 2 rack, x1 2 rack"},
		"more than one in a rack":              {[]LostPods{at("x", "1", 6)}, []LostPods{at("x", "1", 2)}, racks, "x1 2, x1 4 rack"},
		"parts of several racks":               {[]LostPods{at("x", "1", 2), at("x", "2", 4)}, []LostPods{at("x", "1", 2)}, racks, "x1 2, x2 4 rack"},
		"a rack whose block runs on":           {[]LostPods{at("x", "1", 4)}, []LostPods{at("x", "2", 4)}, both, "x1 4 rack"},
		"a block":                              {[]LostPods{at("x", "1", 4), at("x", "2", 4)}, []LostPods{at("y", "1", 4), at("y", "2", 4)}, both, "x1 4 block, x2 4 block"},
		"parts of racks, and one, of a block":  {[]LostPods{at("x", "1", 3), at("x", "2", 4)}, []LostPods{at("x", "1", 1)}, both, "x1 3, x2 4 rack"},
		"racks of one name in two blocks":      {[]LostPods{at("x", "1", 4)}, []LostPods{at("y", "1", 4), at("x", "2", 4)}, both, "x1 4 rack"},
		"a part where another rack runs whole": {[]LostPods{at("x", "1", 2)}, []LostPods{at("x", "1", 2), at("x", "2", 4)}, both, "x1 2"},
	} {
		var got []string
		for _, l := range divide(tc.lost, tc.running, tc.layers) {
			got = append(got, strings.TrimSpace(fmt.Sprint(l.Node, " ", l.Count, " ", l.Elsewhere)))
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s: %s, want %s", name, text, tc.want)
		}
	}
}
