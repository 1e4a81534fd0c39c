package transaction

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
)

// story is a request for two pods of 8 GPUs each, and the world around it.
type story struct {
	request Request
	view    View
}

const (
	uid   = types.UID("uid")
	token = "uid-1"
)

var (
	whole  = nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}
	onePod = nodegroups.Resources{"nvidia.com/gpu": 8, "pods": 1}
)

// asking is a podSet of count pods with so many GPUs each.
func asking(name string, count int, gpus string) state.PodSet {
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)},
	}}}
	return state.PodSet{Name: name, Count: count, Template: template}
}

func newStory() *story {
	s := &story{request: Request{
		UID: uid, Namespace: "ns", Name: "gang", Created: noon, ValidFor: time.Hour,
		Gang:    state.Gang{Namespace: "ns", Name: "ns/gang", UID: uid, Key: "gang", PodSets: []state.PodSet{asking("workers", 2, "8")}},
		Pods:    2,
		Policy:  state.DefaultPolicy(state.AtomicScaleUp),
		Attempt: Attempt{Phase: Done},
	}}
	s.view = View{Snapshot: planner.NewSnapshot(noon, nodeset.New(), []nodegroups.Group{{
		Name: "gpu", CapacityType: v1alpha1.OnDemand, Max: 4, Allocatable: whole, Promised: whole, MicroUSDPerHour: 10e6,
		Labels: map[string]string{v1alpha1.NodeGroupLabel: "gpu"}, JoinTimeout: 10 * time.Minute,
	}}, nil)}
	return s
}

// queued launches may wait in the cloud's queue for a day, and the request for a week.
func queued(s *story) {
	s.view.Groups[0].QueueTimeout, s.request.ValidFor = 24*time.Hour, 7*24*time.Hour
}

// startedAt has the machines started at that time.
// unanswered has the attempt's call fail since then, with an error of that class.
func unanswered(since time.Duration, class v1alpha1.ErrorClass) func(*story) {
	return func(s *story) {
		s.view.Unanswered = map[CallKey]Unanswered{{token, "gpu"}: {Since: noon.Add(since), Class: class, Message: "no answer"}}
	}
}

func startedAt(after time.Duration) func(*story) {
	return func(s *story) {
		for i := range s.view.Machines {
			s.view.Machines[i].Started = noon.Add(after)
		}
	}
}

// doubted: many machines of the group seem lost.
func doubted(s *story) { s.view.Spared = map[string]bool{"gpu": true} }

func stockout(until time.Time) []v1alpha1.Backoff {
	return []v1alpha1.Backoff{{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 1, Until: metav1.NewTime(until)}}
}

func (s *story) node(name string, changes ...func(*state.Node)) *story {
	n := state.Node{
		Name: name, ProviderID: "id-" + name, Group: "gpu", Ready: true, Allocatable: whole, Free: whole, Created: noon.Add(-time.Hour),
		Labels: map[string]string{v1alpha1.NodeGroupLabel: "gpu"},
	}
	for _, change := range changes {
		change(&n)
	}
	s.view.Nodes.Set(&n)
	if s.view.Hosts == nil {
		s.view.Hosts = map[string]string{}
	}
	s.view.Hosts[n.ProviderID] = n.Name
	return s
}

func young(n *state.Node) { n.Cordon, n.Launch, n.InFlight = state.Joining, token, true }

func notReady(n *state.Node) { young(n); n.Ready = false }

func withoutGPU(n *state.Node) { young(n); n.Allocatable = nodegroups.Resources{"cpu": 96000} }

func startupTaint(n *state.Node) {
	young(n)
	n.Taints = []corev1.Taint{{Key: "network-is-not-there", Effect: corev1.TaintEffectNoSchedule}}
}

// replaced nodes were launched for one that was lost.
// readySince is a node that has been Ready for some time.
func readySince(at time.Time, change func(*state.Node)) func(*state.Node) {
	return func(n *state.Node) {
		change(n)
		n.ReadySince = at
	}
}

func replaced(n *state.Node) { young(n); n.Launch = token + "r1" }

// besideDaemons nodes have what DaemonSets leave.
func besideDaemons(n *state.Node) {
	n.Free = nodegroups.Resources{"cpu": 96000, "nvidia.com/gpu": 4, "pods": 109}
}

// taken2 nodes have two pods that have booked nothing.
func taken2(n *state.Node) { n.UnbookedPods = []string{"theirs/squatter", "theirs/squatter-2"} }

// claimedByNone is a node that Muster holds for no request.
func claimedByNone(n *state.Node) { n.Cordon, n.Marked = state.Held, true }

// wasSquatted has the last attempt fail by a pod that had slipped in.
func wasSquatted(s *story) {
	s.request.Attempt = Attempt{Number: 1, Phase: Done, Failure: &AttemptFailure{Taken: true, Message: "pod theirs/squatter came",
		Time: s.view.Now}}
}

// taken nodes are used by others.
func taken(n *state.Node) { n.Free, n.Pods = nodegroups.Resources{"cpu": 96000, "pods": 109}, 1 }

// held nodes are booked for one of the gang's pods; those that are open let it in.
func held(since time.Time, opened bool) func(*state.Node) {
	return func(n *state.Node) {
		n.Cordon = state.Held
		n.Bookings = []state.Booking{{Key: "gang", Namespace: "ns", UID: uid, Open: opened, Booked: onePod, Remaining: onePod, Since: since}}
		n.Labelled = n.Bookings
	}
}

func leftOver(n *state.Node) {
	n.Labelled = []state.Booking{{Key: "gang", Namespace: "ns", UID: "earlier", Open: true}}
}

func claimed(n *state.Node) { held(noon, false)(n) }

func booked(n *state.Node) { held(noon, true)(n) }

// closedAt nodes were open before.
func closedAt(d time.Duration) func(*state.Node) {
	return func(n *state.Node) {
		held(noon, false)(n)
		n.Bookings[0].Closed = noon.Add(d)
	}
}

// used nodes run the pod that they were booked for.
func used(n *state.Node) {
	booked(n)
	n.Free, n.Pods = whole.Clone(), 1
	n.Free.Sub(onePod, 1)
	b := &n.Bookings[0]
	b.Came, b.Running, b.Remaining = []nodegroups.Resources{onePod}, 1, nodegroups.Resources{}
}

// servesAgain: a pod has succeeded on the node, and another one is to come, soon after the node got its devices.
func servesAgain(n *state.Node) {
	booked(n)
	n.DevicesSince = noon
	b := &n.Bookings[0]
	b.Came, b.Booked, b.Remaining = []nodegroups.Resources{onePod}, onePod.Clone(), onePod
	b.Booked.Add(onePod, 1)
}

// alsoBookedBy another request, for all that is free.
func alsoBookedBy(other types.UID) func(*state.Node) {
	return func(n *state.Node) {
		n.Bookings = append(n.Bookings, state.Booking{Key: string(other), Namespace: "ns", UID: other, Open: true, Remaining: onePod})
		n.Labelled = n.Bookings
	}
}

func sinceUnready(since time.Time) func(*state.Node) {
	return func(n *state.Node) { n.Ready, n.UnreadySince = false, since }
}

// lacksDevices is a node that has offered no devices since then.
func lacksDevices(since time.Time) func(*state.Node) {
	return func(n *state.Node) {
		n.Allocatable, n.Free, n.DevicesSince = whole.Clone(), whole.Clone(), since
		n.Allocatable["nvidia.com/gpu"], n.Free["nvidia.com/gpu"] = 0, 0
	}
}

func inGroup(group string) func(*state.Node) {
	return func(n *state.Node) { n.Group, n.Labels = group, map[string]string{v1alpha1.NodeGroupLabel: group} }
}

func (s *story) attempt(phase AttemptPhase) *story {
	s.request.Attempt = Attempt{Number: 1, Phase: phase, Launches: []planner.GroupCount{{Group: "gpu", Count: 2}}, Started: noon}
	s.request.Gang.Launch = token
	return s
}

// failedWith is an attempt that is rolled back, and of which so many machines are known to stay.
func failedWith(kept int) *story {
	s := newStory().attempt(RollingBack)
	s.request.Attempt.Failure = &AttemptFailure{Message: "too late", Kept: kept, Time: noon}
	return s
}

// terminates are the names of the machines that the step terminates.
func terminates(want ...string) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		t.Helper()
		var got []string
		for _, m := range s.Terminate {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("terminates %v, want %v", got, want)
		}
	}
}

// lost has the machine replaced at noon.
func (s *story) lost(names ...string) *story {
	r := Replacement{Started: noon}
	for _, name := range names {
		r.Lost = append(r.Lost, LostMachine{Group: "gpu", Name: name, Launch: token})
	}
	s.request.Attempt.Replacements = append(s.request.Attempt.Replacements, r)
	return s
}

// machines of the attempt are named a, b and so on, like their nodes.
func (s *story) machines(states ...cloudprovider.State) *story {
	return s.machinesOf(token, states...)
}

func (s *story) machinesOf(launch string, states ...cloudprovider.State) *story {
	for _, state := range states {
		name := string(rune('a' + len(s.view.Machines)))
		s.view.Machines = append(s.view.Machines, cloudprovider.Machine{
			Name: name, ProviderID: "id-" + name, Group: "gpu", Launch: launch, State: state, Reason: "BootFailed"})
	}
	return s
}

// held adds a hold of the attempt.
func (s *story) held(name string, state cloudprovider.State) *story {
	s.view.Machines = append(s.view.Machines, cloudprovider.Machine{Name: name, Group: "gpu", Launch: token, Hold: true, State: state})
	return s
}

// seenBeforeItWasCreated: our clock is an hour behind that of the API server.
func seenBeforeItWasCreated(s *story) {
	s.request.Created, s.request.Seen = noon.Add(time.Hour), noon
}

func missing(s *story) {
	s.request.Missing = []string{"workers"}
	s.request.Gang.PodSets = nil
}

func (s *story) provisioned() *story {
	s.request.Status = Provisioned
	s.request.Provisioned = metav1.Condition{Type: provreq.Provisioned, Status: metav1.ConditionTrue, Reason: ReasonCapacityIsFound,
		LastTransitionTime: metav1.NewTime(noon)}
	return s
}

func (s *story) at(d time.Duration) *story {
	s.view.Now = noon.Add(d)
	return s
}

func (s *story) with(change func(*story)) *story {
	change(s)
	return s
}

func dry(s *story) { s.view.Groups[0].Backoffs = stockout(noon.Add(time.Minute)) }

func noRetry(s *story) { s.request.NoRetry = true }

func leaving(s *story) { s.request.Leaving = true }

func podsHeld(s *story) { s.request.PodsHeld = true }

func podsWaiting(s *story) { s.view.Active = 2 }

const (
	booting    = cloudprovider.Booting
	running    = cloudprovider.Running
	terminated = cloudprovider.Terminated
)

// expected is a step that a story should come to.
type expected struct {
	name string
	*story
	want    Action
	message string
	check   func(*testing.T, Step)
}

func play(t *testing.T, cases []expected) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := Next(&tc.request, tc.view)
			if got.Do != tc.want {
				t.Fatalf("step is %s (%s), want %s", got.Do, got.Condition.Message, tc.want)
			}
			if !strings.Contains(got.Condition.Message, tc.message) {
				t.Errorf("message %q does not speak of %q", got.Condition.Message, tc.message)
			}
			if tc.check != nil {
				tc.check(t, got)
			}
		})
	}
}

// nodesOf says what a step does to which nodes.
func nodesOf(s Step) string {
	var out []string
	for _, p := range s.Book {
		what := "claim "
		if s.Open {
			what = "open "
		}
		if p.Whole {
			what += "whole "
		}
		out = append(out, what+p.Node)
	}
	for _, n := range s.Unbook {
		what := "unbook "
		switch {
		case s.KeepLabels:
			what = "uncordon "
		case slices.Contains(s.Leave, n):
			what = "leave "
		}
		out = append(out, what+n)
	}
	for _, n := range s.Close {
		out = append(out, "close "+n)
	}
	return strings.Join(out, ", ")
}

func wantNodes(want string) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		t.Helper()
		if got := nodesOf(s); got != want {
			t.Errorf("the step does %q, want %q", got, want)
		}
	}
}

func wantAt(d time.Duration) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		t.Helper()
		if !s.At.Equal(noon.Add(d)) {
			t.Errorf("looks again at %s, want %s", s.At, noon.Add(d))
		}
	}
}

func wantFailure(class v1alpha1.ErrorClass) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		t.Helper()
		f := s.Attempt.Failure
		if s.Attempt.Phase != RollingBack || f == nil || f.Class != class || f.Message == "" || !f.Time.Equal(s.Attempt.Failure.Time) {
			t.Fatalf("attempt is %+v with failure %+v, want class %q", s.Attempt, f, class)
		}
		if taught := len(s.Outcomes) > 0; taught != (class != "") {
			t.Errorf("lessons are %+v", s.Outcomes)
		}
	}
}

func both(checks ...func(*testing.T, Step)) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		t.Helper()
		for _, check := range checks {
			check(t, s)
		}
	}
}

func TestNextOfWhatIsPending(t *testing.T) {
	play(t, []expected{
		{name: "nothing is there, so an attempt begins", story: newStory(), want: Begin, message: "2 machines of NodeGroup gpu for 20.00 USD per hour",
			check: func(t *testing.T, s Step) {
				if s.Attempt.Number != 1 || s.Attempt.Machines("gpu") != 2 || s.Attempt.Phase != Launching {
					t.Errorf("attempt is %+v", s.Attempt)
				}
			}},
		{name: "free nodes are claimed before anything is launched", story: newStory().node("a").node("b"), want: Book, check: wantNodes("claim whole a, claim whole b")},
		{name: "what is there is claimed while the rest is launched", story: newStory().node("a"), want: Begin, check: wantNodes("claim whole a")},
		{name: "where pods are held back, claimed nodes are open at once", story: newStory().node("a").node("b").with(podsHeld), want: Book, check: wantNodes("open whole a, open whole b")},
		{name: "freshly cordoned nodes are watched for a moment", story: newStory().node("a", claimed).node("b", claimed), want: Rest, check: wantAt(Settle)},
		{name: "settled nodes are provisioned, and still closed", story: newStory().node("a", claimed).node("b", claimed).at(Settle), want: Provision,
			message: "booked for 2 pods until 2026-01-01T12:10:01Z", check: wantNodes("")},
		{name: "a pod that slipped in while it settled makes the plan anew", want: Book, check: wantNodes("claim whole c, unbook b"),
			story: newStory().node("a", claimed).node("b", claimed, taken).node("c").at(Settle)},
		{name: "a node that is to take more than was claimed is claimed anew", want: Book, check: wantNodes("claim whole a"),
			story: newStory().node("a", claimed).node("b", claimed).at(Settle).with(func(s *story) {
				s.request.Gang.PodSets = append(s.request.Gang.PodSets, asking("launcher", 1, "0"))
				s.request.Pods = 3
			})},
		{name: "a gang that cannot be had now waits, and keeps nothing", want: Report, check: wantNodes("unbook a"), story: newStory().node("a", claimed).with(dry)},
		{name: "it says why it waits and until when", want: Report, message: "next attempt at 2026-01-01T12:01:00Z", story: newStory().with(dry), check: wantAt(time.Minute)},
		{name: "the label of an earlier request of its name goes first", want: Book, check: wantNodes("unbook a"), story: newStory().node("a", leftOver).node("b")},
		{name: "a gang that can never be had fails", story: newStory().at(manifestGrace).with(func(s *story) { s.view.Groups[0].Max = 1 }), want: Fail, message: "1 short"},
		{name: "not before its group has had the time to be seen", story: newStory().with(func(s *story) { s.view.Groups[0].Max = 1 }), want: Rest, check: wantAt(manifestGrace)},
		{name: "before there is any group nothing is hopeless", story: newStory().with(func(s *story) { s.view.Groups = nil }), want: Report, message: "create one"},
		{name: "a group that was deleted while it launched is named", want: Report,
			message: "; attempt 1 launched in NodeGroup gone, which was deleted", story: newStory().attempt(Done).with(dry).with(func(s *story) {
				s.request.Attempt.Failure = &AttemptFailure{Group: "gone", Class: v1alpha1.Config, Message: "the NodeGroup was deleted", Time: noon}
			})},
		{name: "noRetry fails instead of waiting", want: Fail, message: "noRetry", story: newStory().with(noRetry).with(dry)},
		{name: "noRetry fails when others take the room that is being booked", want: Fail, message: "was taken while it was being booked",
			story: newStory().node("a", claimed).node("b", claimed, taken).with(noRetry).with(dry), check: wantNodes("unbook a, unbook b")},
		{name: "a template that is not known may come a moment later", story: newStory().with(missing), want: Rest, check: wantAt(manifestGrace)},
		{name: "then it is looked up", story: newStory().with(missing).at(manifestGrace), want: LookUp},
		{name: "no later by a clock that is behind", story: newStory().with(missing).with(seenBeforeItWasCreated).at(manifestGrace), want: LookUp},
		{name: "parameters that cannot be read fail the request", story: newStory().with(func(s *story) { s.request.Invalid = "noRetry is maybe" }), want: Fail, message: "noRetry is maybe"},
		{name: "what is lacking is waited for", story: newStory().with(func(s *story) { s.request.Lacking = "no such policy" }), want: Report, message: "no such policy", check: wantAt(time.Hour)},
		{name: "a request past its time fails", story: newStory().node("a", claimed).at(time.Hour), want: Fail, message: "ValidUntilSeconds", check: wantNodes("unbook a")},
		{name: "a second request of the same key waits", story: newStory().with(func(s *story) { s.view.KeyTaken = "ns/first" }), want: Report, message: "ns/first"},
		{name: "what is over rests", story: newStory().with(func(s *story) { s.request.Status = Over }), want: Rest},
	})
}

func TestNextOfWhatIsLaunching(t *testing.T) {
	play(t, []expected{
		{name: "an attempt on record without its machines calls the cloud, also after a crash", story: newStory().attempt(Launching).machines(booting), want: LaunchMachines,
			check: func(t *testing.T, s Step) {
				if diff := cmp.Diff([]Call{{Token: token, GroupCount: planner.GroupCount{Group: "gpu", Count: 2}, Began: noon}}, s.Launch); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			}},
		{name: "a hold is no machine: the cloud is called until those that come of it are there", want: LaunchMachines,
			story: newStory().attempt(Launching).machines(booting).held("reservation", booting)},
		{name: "a hold that is over is no loss", story: newStory().attempt(Launching).machines(booting, booting).held("reservation", terminated), want: Rest},
		{name: "machines that boot are waited for until the join timeout", story: newStory().attempt(Launching).machines(booting, booting), want: Rest, check: wantAt(10 * time.Minute)},
		{name: "no longer than the request's own time", story: newStory().attempt(Launching).machines(booting, booting).with(func(s *story) { s.request.ValidFor = time.Minute }), want: Rest, check: wantAt(time.Minute)},
		{name: "machines that do not join in time roll the attempt back", want: RollBack, check: wantFailure(v1alpha1.Timeout), message: "1 of 2 machines were ready within 10m0s (spec.joinTimeout); node b is not Ready",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", notReady).at(10 * time.Minute)},
		{name: "machines that are far older than their call are kept while so many seem lost: etcd was restored", want: Rest, check: wantAt(10*time.Minute + sparedAgain),
			story: newStory().attempt(Launching).machines(running, running).with(startedAt(-time.Hour)).with(doubted).at(10 * time.Minute)},
		{name: "not where they are few, or a person has decided", want: RollBack, check: wantFailure(v1alpha1.Timeout),
			story: newStory().attempt(Launching).machines(running, running).with(startedAt(-time.Hour)).at(10 * time.Minute)},
		{name: "nor where they are of the call, whatever is in doubt beside", want: RollBack, check: wantFailure(v1alpha1.Timeout),
			story: newStory().attempt(Launching).machines(running, running).with(startedAt(-5 * time.Minute)).with(doubted).at(10 * time.Minute)},
		{name: "nor where it is not known when they were started", want: RollBack, check: wantFailure(v1alpha1.Timeout),
			story: newStory().attempt(Launching).machines(running, running).with(doubted).at(10 * time.Minute)},
		{name: "a launch in the cloud's queue is waited for as long as its group says", want: LaunchMachines, check: wantAt(24 * time.Hour),
			story: newStory().attempt(Launching).held("queued", booting).with(queued).at(5 * time.Hour)},
		{name: "and no longer", want: RollBack, check: wantFailure(v1alpha1.Stockout), message: "0 of 2 machines were ready within 24h0m0s (spec.queueTimeout)",
			story: newStory().attempt(Launching).held("queued", booting).with(queued).at(24 * time.Hour)},
		{name: "machines that have left the queue have the join timeout from then on", want: Rest, check: wantAt(5*time.Hour + 10*time.Minute),
			story: newStory().attempt(Launching).machines(booting, booting).with(queued).with(startedAt(5 * time.Hour)).at(5 * time.Hour)},
		{name: "those of which it is not known when they started do not fail for that", want: Rest, check: wantAt(24 * time.Hour),
			story: newStory().attempt(Launching).machines(booting, booting).with(queued).at(5 * time.Hour)},
		{name: "a node that is not Ready is waited for", story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", notReady), want: Rest},
		{name: "a node without its GPUs is waited for", story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", withoutGPU), want: Rest},
		{name: "a node with a startup taint is waited for", story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", startupTaint), want: Rest},
		{name: "a node that is Ready with its GPUs and keeps a taint that its group does not declare rolls it back", want: RollBack,
			check: wantFailure(v1alpha1.Config), message: "spec.template.startupTaints",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-taintBound), startupTaint))},
		{name: "what the taint is is learned with it", want: RollBack, message: "let the pods tolerate it", check: func(t *testing.T, s Step) {
			if len(s.Outcomes) != 1 || len(s.Outcomes[0].Taints) != 1 || s.Outcomes[0].Taints[0].Key != "network-is-not-there" {
				t.Errorf("the lessons are %+v, want one with the taint", s.Outcomes)
			}
		},
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-taintBound), startupTaint))},
		{name: "a gang that tolerates the taint runs there, once it had time to go", want: Provision,
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-taintBound), startupTaint)).with(func(s *story) {
				for i, ps := range s.request.Gang.PodSets {
					template := ps.Template.DeepCopy()
					template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
					s.request.Gang.PodSets[i] = state.NewPodSet("ns", ps.Name, ps.Count, template, fit.Objects{})
				}
			})},
		{name: "what a node that is Ready waits for is not reported at once", want: Rest, check: wantAt(readyGrace),
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", readySince(noon, withoutGPU))},
		{name: "but seconds later", want: Report, message: "Attempt 1 waits for 2 machines of group gpu: node b is Ready and offers 0 of 8 nvidia.com/gpu",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-readyGrace), withoutGPU))},
		{name: "with the failure before it", want: Report, message: "0 of 8 nvidia.com/gpu; attempt 1 failed: group spot: none left",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-readyGrace), withoutGPU)).
				with(func(s *story) { s.request.Attempt.Previous = "attempt 1 failed: group spot: none left" })},
		{name: "not before it had time to lose it", want: Report, message: "unless it is removed by 2026-01-01T12:00:01Z the launch is rolled back", check: wantAt(time.Second),
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(time.Second-taintBound), startupTaint))},
		{name: "nor where the group declares it", want: Report, message: "node b is Ready and still has the taint",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-taintBound), startupTaint)).
				with(func(s *story) { s.view.Groups[0].StartupTaints = s.view.Nodes.Find("b").Taints })},
		{name: "nor before it has its GPUs", want: Report,
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-taintBound), func(n *state.Node) {
					startupTaint(n)
					withoutGPU(n)
				}))},
		{name: "nor one of Kubernetes' own", want: Report,
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				readySince(noon.Add(-taintBound), func(n *state.Node) {
					startupTaint(n)
					n.Taints[0].Key = "node.kubernetes.io/network-unavailable"
				}))},
		{name: "a node without the pod of a DaemonSet that belongs there is waited for", want: Rest, check: wantAt(daemonWait),
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				func(n *state.Node) { young(n); n.Created = noon }).
				with(func(s *story) {
					s.view.DaemonSets = []state.DaemonSet{state.NewDaemonSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "ds",
						Namespace: "kube-system", Name: "agent"}})}
				})},
		{name: "but not without one that has its pod already, or belongs elsewhere", want: Provision,
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b",
				func(n *state.Node) {
					young(n)
					n.Created, n.Daemons = noon, map[types.UID]bool{"ds": true}
				}).with(func(s *story) {
				elsewhere := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "other", Namespace: "kube-system", Name: "elsewhere"}}
				elsewhere.Spec.Template.Spec.NodeSelector = map[string]string{"place": "elsewhere"}
				s.view.DaemonSets = []state.DaemonSet{state.NewDaemonSet(elsewhere), state.NewDaemonSet(&appsv1.DaemonSet{
					ObjectMeta: metav1.ObjectMeta{UID: "ds", Namespace: "kube-system", Name: "agent"}})}
			})},
		{name: "when all have joined they are the gang's, and closed", want: Provision, check: both(wantNodes(""), func(t *testing.T, s Step) {
			if s.Condition.Reason != ReasonCapacityProvisioned || s.Attempt.Phase != Done || len(s.Outcomes) != 1 || s.Outcomes[0].Class != "" ||
				s.Outcomes[0].Got != 2 {
				t.Errorf("step is %+v", s)
			}
		}), story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", young)},
		{name: "where pods are held back they are opened first", want: Book, check: wantNodes("open whole a, open whole b"),
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", young).with(podsHeld)},
		{name: "machines beside nodes that were claimed complete the gang", want: Provision,
			story: newStory().attempt(Launching).with(func(s *story) { s.request.Attempt.Launches[0].Count = 1 }).machines(running).node("a",
				young).node("z", claimed).at(Settle)},
		{name: "nodes that give less than their template roll it back", want: RollBack, check: wantFailure(v1alpha1.Config), message: "less than spec.template",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).
				node("b", func(n *state.Node) {
					young(n)
					n.Allocatable = nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "nvidia.com/gpu": 8}
					n.Free = n.Allocatable
				})},
		{name: "a node that another request has booked is not the template's fault either", want: RollBack, check: wantFailure(""),
			message: "another request has booked node b",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).
				node("b", func(n *state.Node) {
					young(n)
					n.Allocatable = nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "nvidia.com/gpu": 8}
					n.Free, n.Bookings = nodegroups.Resources{}, []state.Booking{{UID: "other"}}
				})},
		{name: "room that others took meanwhile is not the template's fault", want: RollBack, check: wantFailure(v1alpha1.Lost), message: "other pods use capacity",
			story: newStory().attempt(Launching).machines(running, running).node("a", young).
				node("b", func(n *state.Node) { young(n); n.Free = nodegroups.Resources{"nvidia.com/gpu": 8} })},
		{name: "a DaemonSet that has come since the plan is no fault of the offering", want: RollBack, check: wantFailure(""), message: "DaemonSets take capacity",
			story: newStory().attempt(Launching).machines(running, running).node("a", young, besideDaemons).node("b", young, besideDaemons).
				with(func(s *story) { s.view.Groups[0].Usable = nodegroups.Resources{"cpu": 96000, "nvidia.com/gpu": 4} })},
		{name: "a pod that has slipped onto a machine is named, and no offering is blamed", want: RollBack, check: wantFailure(""),
			message: "pod theirs/squatter without a booking runs on the held node b, and so do 1 more",
			story:   newStory().attempt(Launching).machines(running, running).node("a", young).node("b", young, taken, taken2)},
		{name: "after that nothing is launched for a minute", want: Report, check: wantAt(unbookedPause), message: "Attempt 1 was rolled back: pod theirs/squatter",
			story: newStory().with(wasSquatted)},
		{name: "then it is tried again", want: Begin, story: newStory().with(wasSquatted).at(unbookedPause)},
		{name: "where there is room without a launch the pause is for nothing", want: Book, story: newStory().with(wasSquatted).node("a").node("b")},
		{name: "a request that waits tells of what has slipped in", want: Report, message: "; pod theirs/squatter without a booking runs on the held node b, and so do 1 more",
			story: newStory().with(dry).node("b", claimedByNone, taken, taken2)},
		{name: "a launch that keeps failing ends at the join timeout, too", story: newStory().attempt(Launching).machines(booting).at(10 * time.Minute), want: RollBack,
			check: wantFailure(v1alpha1.Timeout), message: "the cloud has made 1"},
		{name: "the time to join begins when the machines were started, however late the cloud was", want: Rest, check: wantAt(15 * time.Minute),
			story: newStory().attempt(Launching).machines(booting, booting).with(startedAt(5 * time.Minute)).at(10 * time.Minute)},
		{name: "a call that has not been answered is repeated", want: LaunchMachines, check: wantAt(3 * time.Minute),
			story: newStory().attempt(Launching).with(unanswered(time.Minute, "")).at(2 * time.Minute)},
		{name: "but not for long: that is nobody's fault", want: RollBack, check: wantFailure(v1alpha1.Outage),
			message: "the cloud has neither made machines nor refused for 2m0s: no answer",
			story:   newStory().attempt(Launching).with(unanswered(time.Minute, "")).at(3 * time.Minute)},
		{name: "a read that is throttled for so long is no more than an outage", want: RollBack, check: wantFailure(v1alpha1.Outage),
			story: newStory().attempt(Launching).with(unanswered(0, v1alpha1.Throttle)).at(2 * time.Minute)},
		{name: "credentials are for a person", want: RollBack, check: wantFailure(v1alpha1.Auth),
			story: newStory().attempt(Launching).with(unanswered(0, v1alpha1.Auth)).at(2 * time.Minute)},
		{name: "machines that are there are not given up for it", want: LaunchMachines, check: wantAt(10 * time.Minute),
			story: newStory().attempt(Launching).machines(booting).with(unanswered(0, "")).at(5 * time.Minute)},
		{name: "nor nodes that have registered", want: LaunchMachines, check: wantAt(10 * time.Minute),
			story: newStory().attempt(Launching).node("a", young).with(unanswered(0, "")).at(5 * time.Minute)},
		{name: "a hold that stands for machines of a call does not keep it", want: RollBack, check: wantFailure(v1alpha1.Outage),
			story: newStory().attempt(Launching).held("launch", booting).with(unanswered(0, "")).at(5 * time.Minute)},
		{name: "nor what waits in the cloud's queue", want: LaunchMachines, check: wantAt(24 * time.Hour),
			story: newStory().attempt(Launching).held("queued", booting).with(queued).with(unanswered(0, "")).at(5 * time.Minute)},
		{name: "where no machine was ever made none has failed to join", want: RollBack, check: wantFailure(v1alpha1.Outage), message: "the cloud has made 0",
			story: newStory().attempt(Launching).at(10 * time.Minute)},
		{name: "a template deleted in flight rolls it back, and blames no group", story: newStory().attempt(Launching).machines(booting, booting).with(missing), want: RollBack, check: wantFailure("")},
		{name: "a group deleted in flight rolls it back", want: RollBack, check: wantFailure(v1alpha1.Config),
			story: newStory().attempt(Launching).machines(booting, booting).with(func(s *story) { s.view.Groups = nil })},
		{name: "the request's deadline ends an attempt in flight", want: RollBack, check: wantFailure(""), message: "ValidUntilSeconds",
			story: newStory().attempt(Launching).machines(booting, booting).at(time.Hour)},

		{name: "the deletion of the request does, too, and blames no group", want: RollBack, check: wantFailure(""), message: "is being deleted",
			story: newStory().attempt(Launching).machines(booting, running).with(leaving)},
		{name: "its machines are terminated", want: Terminate, check: terminates("a", "b"),
			story: failedWith(0).machines(booting, running).with(leaving)},
		{name: "then nothing stays booked", want: Fail, message: "is being deleted", check: both(wantNodes("unbook c"), func(t *testing.T, s Step) {
			if s.Attempt.InFlight() {
				t.Errorf("the attempt is %s", s.Attempt.Phase)
			}
		}), story: failedWith(0).machines(terminated, terminated).node("c", claimed).with(leaving)},
		{name: "nor what was booked before machines were lost", want: Expire, message: "is being deleted", check: wantNodes("unbook c"),
			story: failedWith(0).provisioned().machines(terminated, terminated).node("c", claimed).with(leaving)},
		{name: "a gang that runs notices nothing", want: Rest, story: newStory().attempt(Launching).machines(running).with(leaving).with(func(s *story) {
			s.request.Status = Over
		})},
		{name: "a rollback terminates by name what is left", story: newStory().attempt(RollingBack).machines(booting, running, terminated), want: Terminate,
			check: func(t *testing.T, s Step) {
				if len(s.Terminate) != 2 {
					t.Errorf("terminates %v", s.Terminate)
				}
			}},
		{name: "for two minutes", want: Terminate, story: failedWith(0).machines(booting).at(undoneWithin - time.Second)},
		{name: "then another offering is tried, and scale-down terminates the rest", want: Begin, message: "Attempt 2",
			story: failedWith(0).machines(booting).at(undoneWithin)},
		{name: "but no machine that runs a pod, whatever made that", want: Terminate, check: terminates("a"),
			story: failedWith(0).machines(running, running).node("a", young).node("b", young, taken, taken2)},
		{name: "nor one of which Muster's mark is not on the node yet", want: Terminate, check: terminates("a"),
			story: failedWith(0).machines(running, running).node("a", young).node("b", taken)},
		{name: "that one is handed over, and the request says so", want: RollBack, check: func(t *testing.T, s Step) {
			if s.Attempt.Phase != RollingBack || s.Attempt.Failure.Kept != 1 || len(s.Outcomes) > 0 {
				t.Errorf("attempt is %+v with failure %+v and lessons %v", s.Attempt, s.Attempt.Failure, s.Outcomes)
			}
		}, message: "too late; 1 machine of it will be terminated once idle: pod theirs/squatter without a booking runs on the held node b",
			story: failedWith(0).machines(terminated, running).node("b", young, taken, taken2)},
		{name: "and is not waited for", want: Begin, message: "; attempt 1 failed: too late", story: failedWith(1).machines(terminated, running).node("b", young, taken, taken2),
			check: func(t *testing.T, s Step) {
				if want := "attempt 1 failed: too late"; s.Attempt.Previous != want {
					t.Errorf("the attempt after it records %q, want %q", s.Attempt.Previous, want)
				}
			}},
		{name: "pods that wait in vain for a lost kubelet hold no machine", want: Terminate, check: terminates("b"),
			story: failedWith(0).machines(terminated, running).node("b", notReady, taken, sinceUnready(noon.Add(-state.LostAfter)),
				func(n *state.Node) { n.Terminating = 1 })},
		{name: "others that stop do", want: RollBack,
			story: failedWith(0).machines(terminated, running).node("b", young, taken, func(n *state.Node) { n.Terminating = 1 })},
		{name: "and a hold like a machine", story: newStory().attempt(RollingBack).held("reservation", booting), want: Terminate,
			check: func(t *testing.T, s Step) {
				if len(s.Terminate) != 1 || s.Terminate[0].Name != "reservation" {
					t.Errorf("terminates %v", s.Terminate)
				}
			}},
		{name: "a rollback waits for the last node to go", story: newStory().attempt(RollingBack).machines(terminated).node("a", young), want: Rest},
		{name: "after a rollback the next attempt has the next number", story: newStory().attempt(RollingBack), want: Begin,
			check: func(t *testing.T, s Step) {
				if s.Attempt.Number != 2 || s.Attempt.Failure != nil {
					t.Errorf("attempt is %+v", s.Attempt)
				}
			}},
		{name: "or the request fails, if its time is over", story: newStory().attempt(RollingBack).at(time.Hour), want: Fail,
			check: func(t *testing.T, s Step) {
				if s.Attempt.Phase != Done || s.Attempt.Number != 1 {
					t.Errorf("attempt is %+v", s.Attempt)
				}
			}},
	})
}

func TestMachinesLostWhileTheyLaunchAreReplaced(t *testing.T) {
	launching := func() *story { return newStory().attempt(Launching) }
	play(t, []expected{
		{name: "a machine that died while it booted is to be launched again, with a token of its own", story: launching().machines(running, terminated), want: Replace,
			message: "launches 1 machine again: machine b ended while starting: BootFailed",
			check: func(t *testing.T, s Step) {
				want := []Call{{Token: token, GroupCount: planner.GroupCount{Group: "gpu", Count: 2}, Began: noon},
					{Token: "uid-1r1", GroupCount: planner.GroupCount{Group: "gpu", Count: 1}, Began: noon}}
				if diff := cmp.Diff(want, s.Attempt.Calls(uid)); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if len(s.Outcomes) != 1 || s.Outcomes[0].Class != v1alpha1.Lost || s.Outcomes[0].Requested != 2 || s.Outcomes[0].Got != 1 {
					t.Errorf("lessons are %+v", s.Outcomes)
				}
			}},
		{name: "only the replacement is launched then", story: launching().machines(running, terminated).lost("b"), want: LaunchMachines,
			check: func(t *testing.T, s Step) {
				if len(s.Launch) != 1 || s.Launch[0].Token != "uid-1r1" || s.Launch[0].Count != 1 {
					t.Errorf("launches %+v", s.Launch)
				}
			}},
		{name: "also when the cloud does not list the lost one any more", story: launching().machines(running).lost("b"), want: LaunchMachines,
			check: func(t *testing.T, s Step) {
				if len(s.Launch) != 1 || s.Launch[0].Token != "uid-1r1" {
					t.Errorf("launches %+v", s.Launch)
				}
			}},
		{name: "it is waited for like the others", story: launching().machines(running, terminated).lost("b").machinesOf("uid-1r1", booting).node("a", young), want: Rest, check: wantAt(10 * time.Minute)},
		{name: "for its own time", want: Rest, check: wantAt(15 * time.Minute),
			story: launching().machines(running, terminated).lost("b").machinesOf("uid-1r1", booting).node("a", young).at(12 * time.Minute).
				with(func(s *story) { s.request.Attempt.Replacements[0].Started = noon.Add(5 * time.Minute) })},
		{name: "the node of a lost machine does not count, though it is still there", want: Rest,
			story: launching().machines(running, terminated).lost("b").machinesOf("uid-1r1", running).node("b", young).node("c", replaced)},
		{name: "with it the gang is whole", want: Provision,
			story: launching().machines(running, terminated).lost("b").machinesOf("uid-1r1", running).node("a", young).node("c", replaced)},
		{name: "a replacement may be lost, too", story: launching().machines(running, terminated).lost("b").machinesOf("uid-1r1", terminated), want: Replace,
			check: func(t *testing.T, s Step) {
				if tokens := s.Attempt.Tokens(uid); !slices.Equal(tokens, []string{token, "uid-1r1", "uid-1r2"}) {
					t.Errorf("tokens are %v", tokens)
				}
			}},
		{name: "but no more than were asked for in the first place", story: launching().machines(running, terminated).lost("b", "x").machinesOf("uid-1r1", terminated, running), want: RollBack,
			check: wantFailure(v1alpha1.Lost), message: "as 2 machines did before"},
		{name: "nor where another machine would end for the same reason", story: launching().machines(running, terminated).
			with(func(s *story) { s.view.Machines[1].Class = v1alpha1.Config }), want: RollBack, check: wantFailure(v1alpha1.Config),
			message: "BootFailed"},
		{name: "nor once the group has had its time", story: launching().machines(running, terminated).at(10 * time.Minute), want: RollBack, check: wantFailure(v1alpha1.Lost)},
		{name: "a rollback takes the replacements back, too", story: launching().machines(running, terminated).lost("b").machinesOf("uid-1r1", booting).
			with(func(s *story) { s.request.Attempt.Phase = RollingBack }), want: Terminate,
			check: func(t *testing.T, s Step) {
				if len(s.Terminate) != 2 {
					t.Errorf("terminates %v", s.Terminate)
				}
			}},
	})
}

func TestNextOfWhatIsProvisioned(t *testing.T) {
	play(t, []expected{
		{name: "claimed nodes are opened once the request is Provisioned", story: newStory().provisioned().node("a", claimed).node("b", claimed), want: Book, check: wantNodes("open whole a, open whole b")},
		{name: "so are those of the attempt", story: newStory().attempt(Done).provisioned().node("a", young).node("b", young), want: Book, check: wantNodes("open whole a, open whole b")},
		{name: "a crash while they are opened is mended", story: newStory().attempt(Done).provisioned().node("a", booked).node("b", young), want: Book, check: wantNodes("open whole b")},
		{name: "open nodes wait for their pods", story: newStory().provisioned().node("a", used).node("b", booked), want: Rest, check: wantAt(10 * time.Minute)},
		{name: "at least as long as the scheduler needs for the gang", story: newStory().provisioned().node("a", used).node("b", booked).at(time.Minute).
			with(func(s *story) {
				s.request.Policy.BookingTimeout, s.request.Pods = time.Second,
					900
			}), want: Rest, check: wantAt(90 * time.Second)},
		{name: "a template deleted meanwhile changes nothing", story: newStory().provisioned().with(missing).node("a", booked), want: Rest},
		{name: "when all pods are bound the booking is consumed", story: newStory().provisioned().node("a", used).node("b", used), want: Consume, check: wantNodes("uncordon a, uncordon b")},
		{name: "a booking that nobody uses expires", story: newStory().provisioned().node("a", booked).node("b", booked).at(10 * time.Minute), want: Expire,
			message: "0 of 2 pods were bound within 10m0s", check: wantNodes("unbook a, unbook b")},
		{name: "one that ends under a half-started gang leaves the labels", story: newStory().provisioned().node("a", used).node("b", booked).at(10 * time.Minute).with(podsWaiting), want: Expire,
			check: wantNodes("uncordon a, uncordon b")},
	})
}

func TestBookingsAreRepaired(t *testing.T) {
	// fresh nodes came of the second attempt.
	fresh := func(n *state.Node) { young(n); n.Launch = "uid-2" }
	joined := func(n *state.Node) { n.Machine = &cloudprovider.Machine{Name: n.Name, Group: "gpu"} }
	bornCordoned := func(n *state.Node) { n.Cordon = state.Joining }
	inUse := func(n *state.Node) { n.Pods = 1 }
	second := func(phase AttemptPhase) func(*story) {
		return func(s *story) {
			s.request.Attempt = Attempt{Number: 2, Phase: phase, Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Started: noon}
			s.request.Gang.Launch = "uid-2"
		}
	}
	play(t, []expected{
		{name: "a lost machine is replaced by a free one", story: newStory().provisioned().node("a", booked).node("c"), want: Repair, message: "Lost parts of the booking were replaced", check: wantNodes("open whole c")},
		{name: "also when a part of the gang runs", story: newStory().provisioned().node("a", used).node("c").with(podsWaiting), want: Repair, check: wantNodes("open whole c")},
		{name: "else by one that is launched", story: newStory().attempt(Done).provisioned().node("a", booked), want: Begin, message: "1 machine of NodeGroup gpu",
			check: func(t *testing.T, s Step) {
				if s.Attempt.Number != 2 || s.Attempt.Machines("gpu") != 1 || s.Condition.Status != metav1.ConditionTrue ||
					s.Condition.Reason != ReasonCapacityIsFound {
					t.Errorf("attempt is %+v, condition %+v", s.Attempt, s.Condition)
				}
			}},
		{name: "what is left of the attempt is opened before the next one begins", story: newStory().attempt(Done).provisioned().node("a", young), want: Repair, check: wantNodes("open whole a")},
		{name: "where none can be launched it is opened for the pods that fit there", story: newStory().attempt(Done).provisioned().node("a", young).with(dry).with(podsWaiting), want: Book, check: wantNodes("open whole a")},
		{name: "nor may be, since too many were", story: rackwise().with(three).attempt(Done).provisioned().node("a", inRack("r1", young)).node("b", inRack("r1", young)).with(podsWaiting).with(boughtEnough), want: Book, check: wantNodes("open whole a, open whole b")},
		{name: "beside those that are open", story: newStory().with(three).attempt(Done).provisioned().node("a", young).node("b", booked).with(dry).with(podsWaiting), want: Book, check: wantNodes("open whole a")},
		{name: "once it is open the shortage is told", story: newStory().with(three).attempt(Done).provisioned().node("a", booked, bornCordoned).node("b", booked).with(dry).with(podsWaiting), want: Report},
		{name: "a machine of it that no pod fits on goes back", story: newStory().attempt(Done).provisioned().node("a", young, joined, lacksDevices(noon.Add(-time.Hour))).node("b", booked).with(dry).with(podsWaiting), want: Terminate, check: terminates("a")},
		{name: "the replacement is launched", story: newStory().with(second(Launching)).provisioned().node("a", booked), want: LaunchMachines},
		{name: "and waited for while the booking lasts", story: newStory().with(second(Launching)).provisioned().node("a", booked).machinesOf("uid-2", booting).with(func(s *story) { s.view.Groups[0].JoinTimeout = time.Hour }),
			want: Rest, check: wantAt(10 * time.Minute)},
		{name: "once it has joined that is on record", story: newStory().with(second(Launching)).provisioned().node("a", booked).machinesOf("uid-2", running).node("b", fresh), want: Provision,
			check: func(t *testing.T, s Step) {
				if s.Attempt.Phase != Done || s.Condition.Reason != ReasonCapacityIsFound {
					t.Errorf("step is %+v", s)
				}
			}},
		{name: "then it is opened", story: newStory().with(second(Done)).provisioned().node("a", booked).machinesOf("uid-2", running).node("b", fresh), want: Book, check: wantNodes("open whole b")},
		{name: "one that the gang has found room without goes back", story: newStory().with(second(Done)).provisioned().node("a", booked).node("b", fresh, joined, booked, bornCordoned).node("c", fresh, joined), want: Terminate,
			check: func(t *testing.T, s Step) {
				if len(s.Terminate) != 1 || s.Terminate[0].Name != "c" || nodesOf(s) != "" {
					t.Errorf("terminates %+v and does %q", s.Terminate, nodesOf(s))
				}
			}},
		{name: "not before the others are open", story: newStory().with(second(Done)).provisioned().node("a", booked).node("b", claimed).node("c", fresh, joined), want: Book, check: wantNodes("open whole b")},
		{name: "nor while somebody runs there", story: newStory().with(second(Done)).provisioned().node("a", booked).node("b", booked).node("c", fresh, joined, inUse), want: Rest},
		{name: "nor twice", story: newStory().with(second(Done)).provisioned().node("a", booked).node("b", booked).node("c", fresh), want: Rest},
		{name: "a replacement that fails is rolled back alone", story: newStory().with(second(RollingBack)).provisioned().node("a", booked).machinesOf("uid-2", booting), want: Terminate},
		{name: "then the next option is tried", story: newStory().with(second(RollingBack)).provisioned().node("a", booked).node("c"), want: Repair, check: wantNodes("open whole c")},
		{name: "where nothing can be had the booking ends, so that the rest serves others", story: newStory().provisioned().node("a", booked).with(dry), want: Expire,
			message: "lost before the pods were bound", check: wantNodes("unbook a")},
		{name: "unless pods wait for it: then it is told, and tried until the booking's time is over", story: newStory().provisioned().node("a", booked).with(dry).with(podsWaiting), want: Report,
			message: "The booking no longer fits: the 2 pods not bound yet do not all fit on the booked nodes",
			check:   both(wantAt(time.Minute), wantNodes(""))},
		{name: "the end says what was short", story: newStory().provisioned().node("a", used).with(podsWaiting).at(10 * time.Minute).with(func(s *story) {
			s.request.Provisioned.Reason, s.view.Groups = ReasonBookingIsShort, nil
		}), want: Expire, message: "1 of 2 pods were bound within 10m0s; the 1 pod not bound yet do not all fit on the booked nodes: "},
		{name: "a shortage that has passed is not told any more", story: newStory().provisioned().node("a", booked).node("b", booked).
			with(wasShort(Attempt{Phase: Done})), want: Report, message: "booked for 2 pods until 2026-01-01T12:10:00Z",
			check: wantReason(ReasonCapacityIsFound)},
		{name: "nor where machines were launched", story: newStory().provisioned().node("a", booked).node("b", booked).
			with(wasShort(Attempt{Number: 1, Phase: Done})), want: Report, check: wantReason(ReasonCapacityProvisioned)},
		{name: "nor where the launch has failed", story: newStory().provisioned().node("a", booked).node("b", booked).
			with(wasShort(Attempt{Number: 1, Phase: Done, Failure: &AttemptFailure{}})), want: Report, check: wantReason(ReasonCapacityIsFound)},

		{name: "a kubelet that restarts moves nobody", story: newStory().provisioned().node("a", booked).node("b", booked, sinceUnready(noon)).node("c").at(unreadyGrace / 2), want: Rest, check: wantAt(unreadyGrace)},
		{name: "a node that stays unready is lost", story: newStory().provisioned().node("a", booked).node("b", booked, sinceUnready(noon)).node("c").at(unreadyGrace), want: Repair, check: wantNodes("open whole c, unbook b")},
		{name: "a node whose machine has ended is lost at once", story: newStory().provisioned().node("a", booked).node("b", booked, sinceUnready(time.Time{})).node("c"), want: Repair, check: wantNodes("open whole c, unbook b")},

		{name: "a device plugin that restarts moves no gang", story: newStory().provisioned().node("a", booked).node("b", booked, lacksDevices(noon)).node("c").at(devicesGrace / 2), want: Rest, check: wantAt(devicesGrace)},
		{name: "a pod that has succeeded had devices that are not waited for",
			story: newStory().with(three).provisioned().node("a", servesAgain).at(devicesGrace / 2), want: Begin},
		{name: "nor before the machines that were launched are open", story: newStory().attempt(Done).provisioned().node("a", young).node("b", young, lacksDevices(noon)).at(devicesGrace / 2), want: Book, check: wantNodes("open whole a, open whole b")},
		{name: "devices that stay away are lost", story: newStory().provisioned().node("a", booked).node("b", booked, lacksDevices(noon)).node("c").at(devicesGrace), want: Repair, check: wantNodes("open whole c, unbook b")},
		{name: "what is booked stays so until what is launched in its place has joined", story: newStory().provisioned().node("a", booked).node("b", booked, lacksDevices(noon)).at(devicesGrace), want: Begin, check: wantNodes("")},
		{name: "and is free then", story: newStory().with(second(Done)).provisioned().node("a", booked).node("b", booked, lacksDevices(noon)).node("c", fresh).at(devicesGrace), want: Book, check: wantNodes("open whole c, unbook b")},

		{name: "room that others took is booked elsewhere", story: newStory().provisioned().node("a", booked).node("b", booked, taken).node("c"), want: Repair, check: wantNodes("open whole c, unbook b")},
		{name: "where there is none it is waited for: they may go", story: newStory().provisioned().node("a", booked).node("b", booked, taken).with(dry), want: Report, message: "no longer fits"},
		{name: "another gang's booking is not taken for it", story: newStory().provisioned().node("a", booked).node("b", booked, taken).node("c", alsoBookedBy("other")).with(dry), want: Report},
		{name: "nor does it count beside one's own", story: newStory().provisioned().node("a", booked).node("b", booked, alsoBookedBy("other")).node("c"), want: Repair, check: wantNodes("open whole c, unbook b")},
	})
}

// wasShort has the request report a booking that no longer fits, after that attempt.
func wasShort(a Attempt) func(*story) {
	return func(s *story) { s.request.Provisioned.Reason, s.request.Attempt = ReasonBookingIsShort, a }
}

func wantReason(want string) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		if s.Condition.Reason != want {
			t.Errorf("the reason is %s, want %s", s.Condition.Reason, want)
		}
	}
}

// boughtEnough: the request may buy nothing for now.
func boughtEnough(s *story) { s.request.Purchases = purchases.Record{Needed: 3, Unseen: 4} }

// packed is a request for one large pod and eight small ones, which was planned to
// have the large one on the first node and the small ones on the second.
func packed() *story {
	s := newStory().provisioned()
	s.request.Gang.PodSets = []state.PodSet{asking("large", 1, "8"), asking("small", 8, "1")}
	s.request.Pods = 9
	return s
}

// running so many small pods of the gang.
func small(n int) func(*state.Node) {
	return func(node *state.Node) {
		booked(node)
		b := &node.Bookings[0]
		b.Booked = nodegroups.Resources{"nvidia.com/gpu": 8, "pods": 8}
		one := nodegroups.Resources{"nvidia.com/gpu": 1, "pods": 1}
		node.Free, b.Remaining = whole.Clone(), b.Booked.Clone()
		for range n {
			b.Came = append(b.Came, one)
			node.Free.Sub(one, 1)
			b.Remaining.Sub(one, 1)
		}
		b.Running, node.Pods = n, n
	}
}

// The scheduler places pods as it likes on the nodes that they select: bookings
// follow it.
func TestBookingsFollowTheScheduler(t *testing.T) {
	zone := func(zone string) func(*state.Node) {
		return func(n *state.Node) {
			n.Labels = map[string]string{v1alpha1.NodeGroupLabel: "gpu", corev1.LabelTopologyZone: zone}
		}
	}
	inZone := func(s *story) {
		s.view.Groups[0].Labels = map[string]string{v1alpha1.NodeGroupLabel: "gpu", corev1.LabelTopologyZone: "z1"}
	}
	play(t, []expected{
		{name: "as it was planned", story: packed().node("a", booked).node("b", small(5)), want: Rest},
		{name: "small pods on the node of the large one leave it without room", story: packed().node("a", small(1)).node("b", small(4)).node("c"), want: Repair,
			check: both(wantNodes("open whole b, open whole c"), func(t *testing.T, s Step) {
				if !state.SameAmounts(s.Book[0].Requests, nodegroups.Resources{"nvidia.com/gpu": 7, "pods": 7}) {
					t.Errorf("books %v on b, where 4 pods run and 3 are to come", s.Book[0].Requests)
				}
			})},
		{name: "whichever podSet comes first", story: packed().node("a", small(1)).node("b", small(4)).node("c").with(func(s *story) { slices.Reverse(s.request.Gang.PodSets) }), want: Repair,
			check: wantNodes("open whole b, open whole c")},
		{name: "a machine is launched for it, if there is none", story: packed().node("a", small(1)).node("b", small(4)).with(podsWaiting), want: Repair, check: wantNodes("open whole b")},
		{name: "a new pod stays in the zone of what runs", want: Report, message: "the 1 pod not bound",
			story: newStory().provisioned().node("a", used, zone("z1")).node("c", zone("z2")).with(inZone).with(podsWaiting).with(dry)},
		{name: "where that has room", story: newStory().provisioned().node("a", used, zone("z1")).node("c", zone("z1")).with(inZone).with(podsWaiting).with(dry), want: Repair, check: wantNodes("open whole c")},
		{name: "before any pod runs the whole gang may move: its nodes are closed", want: Book,
			story: newStory().provisioned().node("a", booked, zone("z1")).node("c", zone("z2")).node("d", zone("z2")).with(inZone).with(dry),
			check: wantNodes("close a")},
		{name: "a pod that the scheduler has assumed there may still land", want: Rest, check: wantAt(Settle),
			story: newStory().provisioned().node("a", closedAt(0), zone("z1")).node("c", zone("z2")).node("d", zone("z2")).with(inZone).with(dry)},
		{name: "then it moves", story: newStory().provisioned().node("a", closedAt(-Settle), zone("z1")).node("c", zone("z2")).node("d", zone("z2")).with(inZone).with(dry), want: Repair,
			check: wantNodes("open whole c, open whole d, leave a")},
		{name: "from nodes that have never been open no pod is to be awaited", story: newStory().provisioned().node("a", claimed, zone("z1")).node("c", zone("z2")).node("d", zone("z2")).with(inZone).with(dry), want: Repair,
			check: wantNodes("open whole c, open whole d, unbook a")},
		{name: "unless what was lost is back", story: newStory().provisioned().node("a", closedAt(0), zone("z1")).node("b", closedAt(0), zone("z1")).with(inZone).with(dry), want: Book,
			check: wantNodes("open whole a, open whole b")},
		{name: "gangs that need not be together move at once", story: newStory().provisioned().node("a", booked, zone("z1")).node("c", zone("z2")).with(dry).with(func(s *story) { s.request.Policy.Split = v1alpha1.AnyZone }), want: Repair,
			check: wantNodes("open whole c")},
		{name: "with SingleGroup it stays in the group of its podSet", want: Report,
			story: newStory().provisioned().node("a", used).node("c",
				inGroup("other")).with(podsWaiting).with(dry).with(func(s *story) { s.request.Policy.Split = v1alpha1.SingleGroup })},
	})
}

func TestLostMachinesAreReported(t *testing.T) {
	lost := func(s *story) { s.view.Lost = []LostNode{{Name: "b", Pods: 1}} }
	play(t, []expected{
		{name: "of a booking, before it is repaired", story: newStory().provisioned().node("a", booked).with(lost), want: ReportLoss},
		{name: "of a gang that runs, by an Event", story: newStory().with(func(s *story) { s.request.Status = Over }).with(lost), want: ReportLoss,
			check: func(t *testing.T, s Step) {
				if s.Condition.Type != "" || len(s.Lost) != 1 {
					t.Errorf("step is %+v", s)
				}
			}},
		{name: "by a condition where that is asked for", story: newStory().with(func(s *story) { s.request.Status, s.request.Policy.RevokeOnLoss = Over, true }).with(lost), want: ReportLoss,
			message: "The machine of node b was lost with 1 pod of the gang"},
		{name: "by an Event where no pod was any more", story: newStory().with(func(s *story) { s.request.Status, s.request.Policy.RevokeOnLoss = Over, true }).with(lost).with(func(s *story) { s.view.Lost[0].Pods = 0 }), want: ReportLoss,
			check: func(t *testing.T, s Step) {
				if s.Condition.Type != "" {
					t.Errorf("step is %+v", s)
				}
			}},
	})
}

// Where so many machines seem lost at once that it is in doubt, a gang that runs is informed and goes
// on, until that is certain.
func TestAGangIsSparedWhileItIsInDoubtWhetherItHasLostMachines(t *testing.T) {
	running := func() *story {
		return newStory().with(func(s *story) { s.request.Status, s.request.Policy.RevokeOnLoss = Over, true })
	}
	fresh := func(s *story) { s.view.Lost = []LostNode{{Name: "b", Group: "gpu", Pods: 1}} }
	held := func(s *story) { s.view.Held = []LostNode{{Name: "b", Group: "gpu", Pods: 1}} }
	ended := func(n *state.Node) { n.Ready, n.Machine, n.Ended = false, nil, true }
	runs := func(n *state.Node) { n.Machine = &cloudprovider.Machine{Name: "b", Group: "gpu"} }
	isHeld := func(want bool) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			if revoked := s.Condition.Type == provreq.CapacityRevoked; s.Hold != want || revoked == want || len(s.Lost) != 1 {
				t.Errorf("the step is %+v, want it held: %t", s, want)
			}
		}
	}
	play(t, []expected{
		{name: "it is told", story: running().with(fresh).with(doubted), want: ReportLoss, check: isHeld(true)},
		{name: "it goes on while there is doubt", story: running().with(held).with(doubted), want: Rest, check: func(t *testing.T, s Step) {
			if got := s.At.Sub(noon); got != sparedAgain {
				t.Errorf("it is looked at again in %s, want %s", got, sparedAgain)
			}
		}},
		{name: "it is stopped once the node is gone for certain", story: running().with(held), want: ReportLoss, check: isHeld(false)},
		{name: "or its machine has ended and its kubelet is silent", story: running().node("b", ended).with(held), want: ReportLoss, check: isHeld(false)},
		{name: "not where the node is there again", story: running().node("b", runs).with(held), want: Rest},
		{name: "nor while that one is not Ready for a moment", story: running().node("b", runs, func(n *state.Node) { n.Ready, n.UnreadySince = false, noon.Add(-10*time.Second) }).with(held),
			want: Rest},
		{name: "too soon to tell whether many follow", story: running().with(func(s *story) {
			s.view.Lost = []LostNode{{Name: "b", Group: "gpu", Pods: 1, Settled: noon.Add(time.Second)}}
		}), want: Rest, check: func(t *testing.T, s Step) {
			if !s.At.Equal(noon.Add(time.Second)) {
				t.Errorf("it is looked at again at %s", s.At)
			}
		}},
		{name: "many have followed", story: running().with(doubted).with(func(s *story) {
			s.view.Lost = []LostNode{{Name: "b", Group: "gpu", Pods: 1, Settled: noon.Add(time.Second)}}
		}), want: ReportLoss, check: isHeld(true)},
		{name: "none has followed", story: running().with(func(s *story) {
			s.view.Lost = []LostNode{{Name: "b", Group: "gpu", Pods: 1, Settled: noon}}
		}), want: ReportLoss, check: isHeld(false)},
		{name: "it is back in time", story: running().node("b", runs).with(func(s *story) {
			s.view.Lost = []LostNode{{Name: "b", Group: "gpu", Pods: 1, Settled: noon}}
		}), want: ReportLoss, check: func(t *testing.T, s Step) {
			if s.Hold || s.Condition.Type != "" || len(s.Lost) != 1 {
				t.Errorf("the step is %+v, want it told", s)
			}
		}},
		{name: "doubt about another group does not matter", story: running().with(fresh).with(func(s *story) { s.view.Spared = map[string]bool{"cpu": true} }),
			want: ReportLoss, check: isHeld(false)},
	})
}

// TestAGangWithoutRoomForItsPodsIsRevoked: one pod of 8 GPUs has found no room, of two
// nodes that are booked for one each. The other one runs.
func TestAGangWithoutRoomForItsPodsIsRevoked(t *testing.T) {
	after := func(d time.Duration, first, second func(*state.Node)) *story {
		s := newStory().with(func(s *story) { s.request.Status, s.request.Policy.RevokeOnLoss = Over, true })
		s.view.Stranded = Stranded{Pods: 1, Since: s.view.Now.Add(-d), Requests: onePod}
		for name, change := range map[string]func(*state.Node){"a": first, "b": second} {
			s.node(name, func(n *state.Node) {
				n.Labelled = []state.Booking{{Key: "gang", Namespace: "ns", UID: uid, Open: true, Booked: onePod}}
				change(n)
			})
		}
		return s
	}
	runs := func(n *state.Node) { n.Labelled[0].Staying = onePod }
	gone := func(n *state.Node) { n.Labelled = nil }
	sound := func(*state.Node) {}
	again := func(in time.Duration) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			if left := s.At.Sub(noon); left != in {
				t.Errorf("it is looked at again in %s, want %s", left, in)
			}
		}
	}
	unready := func(since time.Duration) func(*state.Node) {
		return func(n *state.Node) { n.Ready, n.UnreadySince = false, noon.Add(-since) }
	}
	cordoned := func(n *state.Node) { n.Cordon = state.Foreign }
	vanished := func(group, host string) func(*story) {
		return func(s *story) {
			s.view.Machines = []cloudprovider.Machine{{Name: "b", Group: "gpu", ProviderID: "cloud://b", State: cloudprovider.Running}}
			s.view.Spared = map[string]bool{group: true}
			if host != "" {
				s.view.Hosts["cloud://b"] = host
			}
		}
	}
	const message = "1 pod of the gang could not be scheduled for 1m0s, and its booking has less "
	play(t, []expected{
		{name: "not at once", story: after(59*time.Second, runs, gone), want: Rest, check: again(time.Second)},
		{name: "after a minute", story: after(time.Minute, runs, gone), want: ReportLoss, message: message},
		{name: "not while many nodes have vanished, its own among them", story: after(time.Hour, runs, gone).with(vanished("gpu", "")), want: Rest,
			check: again(sparedAgain)},
		{name: "whose machine has its node, though many of others have vanished", story: after(time.Hour, runs, gone).with(vanished("gpu", "b")),
			want: ReportLoss, message: message},
		{name: "whose group has not lost many", story: after(time.Hour, runs, gone).with(vanished("cpu", "")), want: ReportLoss, message: message},
		{name: "whose node is not ready", story: after(time.Minute, runs, unready(time.Minute)), want: ReportLoss, message: message},
		{name: "whose node may be ready soon", story: after(time.Hour, runs, unready(10*time.Second)), want: Rest, check: again(50 * time.Second)},
		{name: "whose node's machine has ended", story: after(time.Minute, runs, func(n *state.Node) { n.Ready = false }), want: ReportLoss, message: message},
		{name: "whose node somebody has cordoned for a while", story: after(9*time.Minute, runs, cordoned), want: Rest, check: again(time.Minute)},
		{name: "whose node stays cordoned", story: after(10*time.Minute, runs, cordoned), want: ReportLoss, message: message},
		{name: "whose node others have got", story: after(time.Minute, runs, func(n *state.Node) { n.Labelled[0].UID = "other" }), want: ReportLoss, message: message},
		{name: "not while a pod of its own stops", story: after(time.Hour, runs, sound), want: Rest, check: again(time.Minute)},
		{name: "nor while one does, of whose gang the others have ended", story: after(time.Hour, sound, gone), want: Rest},
		{name: "where that is wanted", story: after(time.Hour, runs, gone).with(func(s *story) { s.request.Policy.RevokeOnLoss = false }), want: Rest},
		{name: "if any has no room", story: after(0, runs, gone).with(func(s *story) { s.view.Stranded = Stranded{} }), want: Rest},
	})
}

// TestPodsThatCannotStart are reported, and their gang is revoked where that is wanted: its machines are paid for in vain.
func TestPodsThatCannotStart(t *testing.T) {
	after := func(d time.Duration) *story {
		return newStory().with(func(s *story) {
			s.request.Status, s.request.Policy.RevokeOnLoss, s.request.Policy.StartTimeout = Over, true, 15*time.Minute
			s.view.Blocked = Blocked{Pods: 2, Since: s.view.Now.Add(-d), Why: "pod p: container c: ImagePullBackOff: no such image"}
		})
	}
	again := func(in time.Duration) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			if left := s.At.Sub(noon); s.At.IsZero() != (in == 0) || in > 0 && left != in {
				t.Errorf("it is looked at again in %s, want %s", left, in)
			}
		}
	}
	reports := func(kind string) func(*testing.T, Step) {
		return func(t *testing.T, s Step) {
			if s.Condition.Type != kind || s.Condition.Status != metav1.ConditionTrue {
				t.Errorf("the condition is %+v, want %s=True", s.Condition, kind)
			}
		}
	}
	reported := func(s *story) { s.request.Blocked = true }
	events := func(s *story) { s.request.Policy.RevokeOnLoss = false }
	play(t, []expected{
		{name: "not at once", story: after(time.Minute), want: Rest, check: again(2 * time.Minute)},
		{name: "after 3 minutes", story: after(3 * time.Minute), want: ReportLoss, check: reports(PodsBlocked),
			message: "2 pods of the gang have not started for 3m0s: pod p: container c: ImagePullBackOff: no such image"},
		{name: "once", story: after(4 * time.Minute).with(reported), want: Rest, check: again(11 * time.Minute)},
		{name: "until the timeout", story: after(15 * time.Minute).with(reported), want: ReportLoss, check: reports(provreq.CapacityRevoked),
			message: "2 pods of the gang have not started for 15m0s: "},
		{name: "reported only, where it may not be revoked", story: after(time.Hour).with(events), want: ReportLoss, check: reports(PodsBlocked)},
		{name: "and that once", story: after(time.Hour).with(events).with(reported), want: Rest, check: again(0)},
		{name: "without a timeout", story: after(time.Hour).with(reported).with(func(s *story) { s.request.Policy.StartTimeout = 0 }), want: Rest,
			check: again(0)},
		{name: "while the control plane has answered for a minute", story: after(time.Hour).with(func(s *story) { s.view.Answering = noon.Add(-time.Minute) }),
			want: Rest, check: again(2 * time.Minute)},
		{name: "that have started since", story: after(0).with(reported).with(func(s *story) { s.view.Blocked = Blocked{} }), want: Report},
		{name: "that run", story: after(0).with(func(s *story) { s.view.Blocked = Blocked{} }), want: Rest, check: again(0)},
	})
}

// TestARollBackOfARepairEnds also where what was lost is back: nothing is under way then.
func TestARollBackOfARepairEnds(t *testing.T) {
	play(t, []expected{
		{name: "what was lost is back", story: newStory().provisioned().attempt(RollingBack).node("a", booked).node("b", booked), want: Report, check: func(t *testing.T, s Step) {
			if s.Attempt.Phase != Done {
				t.Errorf("the attempt is %s", s.Attempt.Phase)
			}
		}},
	})
}

// TestARollBackDoesNotWaitForNodesWithoutMachine: nothing may delete them.
func TestARollBackDoesNotWaitForNodesWithoutMachine(t *testing.T) {
	with := func(change func(*state.Node)) *story {
		return newStory().attempt(RollingBack).machines(terminated, terminated).node("a", notReady, change)
	}
	ended := func(n *state.Node) { n.Ended = true }
	silent := func(n *state.Node) { n.UnreadySince = noon.Add(-time.Minute) }
	lost := func(n *state.Node) { n.UnreadySince = noon.Add(-state.LostAfter) }
	play(t, []expected{
		{name: "whose end no list has shown yet", story: with(silent), want: Rest, check: wantAt(state.LostAfter - time.Minute)},
		{name: "whose machine has ended", story: with(ended), want: Begin},
		{name: "whose machine is not known and which is lost", story: with(lost), want: Begin},
	})
}

// Every pair of the API's contract is set somewhere.
func TestAllConditionsOfTheContract(t *testing.T) {
	lost := func(s *story) { s.view.Lost = []LostNode{{Name: "b", Pods: 1}} }
	next := func(s *story) Step { return Next(&s.request, s.view) }
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	for _, tc := range []struct {
		kind   string
		status metav1.ConditionStatus
		reason string
		step   Step
	}{
		{provreq.Accepted, yes, "Accepted", next(newStory())},
		{provreq.Provisioned, yes, "CapacityIsFound", next(newStory().node("a", claimed).node("b", claimed).at(Settle))},
		{provreq.Provisioned, yes, "CapacityIsProvisioned", next(newStory().attempt(Launching).machines(running, running).node("a", young).node("b", young))},
		{provreq.Provisioned, no, "CapacityIsNotFound", next(newStory().with(dry))},
		{provreq.Provisioned, no, "FailedToCheckCapacity", next(newStory().with(func(s *story) {
			class := "nowhere"
			s.request.Gang.PodSets[0].Template.Spec.RuntimeClassName = &class
			s.view.Objects.RuntimeClass = func(string) *nodev1.RuntimeClass { return nil }
		}))},
		{provreq.Provisioned, no, "FailedToCheckCapacity", next(newStory().with(func(s *story) { s.request.Lacking = "no such policy" }))},
		{provreq.Failed, yes, "CapacityIsNotFound", next(newStory().with(dry).with(noRetry))},
		{provreq.Failed, yes, "FailedToCreatePods", NoTemplates(&newStory().request, []string{"workers"})},
		{provreq.Failed, yes, "FailedToBookCapacity", next(newStory().node("a", claimed).with(dry).with(noRetry))},
		{provreq.Failed, yes, "FailedToBookCapacity", NotBooked(&newStory().with(noRetry).request, errors.New("nodes \"a\" is forbidden"))},
		{provreq.Failed, yes, "Expired", next(newStory().at(time.Hour))},
		{provreq.BookingExpired, yes, "CapacityReservationTimeExpired", next(newStory().provisioned().node("a", booked).node("b", booked).at(10 * time.Minute))},
		{provreq.BookingExpired, yes, "CapacityBookingConsumed", next(newStory().provisioned().node("a", used).node("b", used))},
		{provreq.CapacityRevoked, yes, "MachineLost", next(newStory().with(func(s *story) { s.request.Status, s.request.Policy.RevokeOnLoss = Over, true }).with(lost))},
	} {
		t.Run(fmt.Sprintf("%s=%s %s", tc.kind, tc.status, tc.reason), func(t *testing.T) {
			conditions := tc.step.Conditions()
			i := slices.IndexFunc(conditions, func(c metav1.Condition) bool {
				return c.Type == tc.kind && c.Status == tc.status && c.Reason == tc.reason
			})
			if i < 0 {
				t.Fatalf("step %s sets %+v", tc.step.Do, conditions)
			}
			if conditions[i].Message == "" {
				t.Error("nobody says why")
			}
		})
	}
}

// What the API server refuses is reported, and tried again.
func TestNodesThatCannotBeBooked(t *testing.T) {
	s := NotBooked(&newStory().request, errors.New("nodes \"a\" is forbidden"))
	if c := s.Condition; s.Do != Report || c.Status != metav1.ConditionFalse ||
		!strings.Contains(c.Message, "is forbidden. An administrator must") {
		t.Errorf("step is %+v", s)
	}
	s = NotBooked(&newStory().provisioned().request, errors.New("nodes \"a\" is forbidden"))
	if c := s.Condition; s.Do != Report || c.Status != metav1.ConditionTrue || c.Reason != ReasonCapacityIsFound {
		t.Errorf("a Provisioned request does not stay so: %+v", s)
	}
}

func TestRefusedCallsRollBack(t *testing.T) {
	s := newStory().attempt(Launching).machines(booting)
	step := Refused(&s.request, s.view, s.request.Attempt.Calls(uid)[0],
		&cloudprovider.Error{Class: v1alpha1.Stockout, Code: "InsufficientInstanceCapacity"})
	wantFailure(v1alpha1.Stockout)(t, step)
	if !strings.Contains(step.Condition.Message, "1 of 2 machines were made: InsufficientInstanceCapacity (Stockout)") {
		t.Errorf("message is %q", step.Condition.Message)
	}
	if l := step.Outcomes[0]; l.Group != "gpu" || l.Token != token || l.Requested != 2 || l.Got != 1 {
		t.Errorf("lesson is %+v", l)
	}
}

// TestARefusalOfMachinesTogetherIsOfTheirLevel: others that need no one domain are not held off by it; no wrong image is mended by that.
func TestARefusalOfMachinesTogetherIsOfTheirLevel(t *testing.T) {
	s := rackwise()
	call := s.request.Attempt.Calls(uid)[0]
	call.Together.Level = "rack"
	for class, want := range map[v1alpha1.ErrorClass]string{v1alpha1.Stockout: "rack", v1alpha1.Scattered: "rack",
		v1alpha1.Config: "", v1alpha1.Quota: ""} {
		step := Refused(&s.request, s.view, call, &cloudprovider.Error{Class: class, Code: "No"})
		if got := step.Outcomes[0].Level; got != want {
			t.Errorf("the level of a %s is %q, want %q", class, got, want)
		}
	}
}

func TestTokens(t *testing.T) {
	const uid = types.UID("0b8c1f9e-6a1e-4c58-8a35-5d1d3b2f7a11")
	a := Attempt{Number: 12, Replacements: []Replacement{{}, {}}}
	for _, token := range a.Tokens(uid) {
		if got := state.TokenUID(token); got != uid {
			t.Errorf("TokenUID(%q) = %q", token, got)
		}
		if got := state.AttemptToken(token); got != state.Token(uid, 12) {
			t.Errorf("AttemptToken(%q) = %q", token, got)
		}
		if len(token) > 64 {
			t.Errorf("%q is longer than clouds take", token)
		}
	}
	for _, other := range []string{"", "launch", "x-runner", "x-1rest", "r-r"} {
		if got := state.AttemptToken(other); got != other {
			t.Errorf("AttemptToken(%q) = %q", other, got)
		}
	}
}

func TestAttemptsOwnTheirMachines(t *testing.T) {
	failure := &AttemptFailure{Message: "dry"}
	for _, tc := range []struct {
		status  Status
		attempt Attempt
		want    bool
	}{
		{Pending, Attempt{Phase: Done}, false},
		{Pending, Attempt{Number: 1, Phase: Launching}, true},
		{Pending, Attempt{Number: 1, Phase: RollingBack, Failure: failure}, true},
		{Pending, Attempt{Number: 1, Phase: Done, Failure: failure}, false},
		{Pending, Attempt{Number: 1, Phase: Done}, true}, // about to be Provisioned
		{Provisioned, Attempt{Number: 1, Phase: Done}, true},
		{Provisioned, Attempt{Number: 2, Phase: Launching}, true},
		{Provisioned, Attempt{Number: 2, Phase: Done, Failure: failure}, false},
		{Over, Attempt{Number: 1, Phase: Launching}, false},
		{Over, Attempt{Number: 1, Phase: Done}, false},
	} {
		if got := tc.attempt.Owned(tc.status); got != tc.want {
			t.Errorf("status %d, attempt %+v: owned %t", tc.status, tc.attempt, got)
		}
	}
}
