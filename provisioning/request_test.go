package provisioning

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// story is a request for two pods of 8 GPUs each, and the world around it.
type story struct {
	request Request
	view    View
	// bound pods of the gang are on the first node.
	bound int
}

const (
	uid   = types.UID("uid")
	token = "uid-1"
)

var whole = nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}

func newStory() *story {
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
	}}}
	s := &story{request: Request{
		UID: uid, Namespace: "ns", Name: "gang", Created: noon, ValidFor: time.Hour,
		Gang:    Gang{Name: "ns/gang", UID: uid, Key: "gang", PodSets: []PodSet{{Name: "workers", Count: 2, Template: template}}},
		Pods:    2,
		Policy:  DefaultPolicy(AtomicScaleUp),
		Attempt: Attempt{Phase: Done},
	}}
	s.view = View{Snapshot: NewSnapshot(noon, NewNodes(), []nodegroups.Group{{
		Name: "gpu", CapacityType: v1alpha1.OnDemand, Max: 4, Allocatable: whole,
		Labels: map[string]string{v1alpha1.NodeGroupLabel: "gpu"}, JoinTimeout: 10 * time.Minute,
	}}, nil)}
	return s
}

func stockout(until time.Time) []v1alpha1.Backoff {
	return []v1alpha1.Backoff{{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 1, Until: metav1.NewTime(until)}}
}

func (s *story) node(name string, change func(*Node)) *story {
	n := Node{Name: name, Group: "gpu", Ready: true, Allocatable: whole, Free: whole, Created: noon.Add(-time.Hour)}
	if change != nil {
		change(&n)
	}
	s.view.Nodes.Set(&n)
	return s
}

func young(n *Node)      { n.Cordon, n.Launch = Joining, token }
func notReady(n *Node)   { young(n); n.Ready = false }
func withoutGPU(n *Node) { young(n); n.Allocatable = nodegroups.Resources{"cpu": 96000} }
func startupTaint(n *Node) {
	young(n)
	n.Taints = []corev1.Taint{{Key: "network-is-not-there", Effect: corev1.TaintEffectNoSchedule}}
}

func booked(since time.Time) func(*Node) {
	return func(n *Node) {
		n.Cordon = Held
		n.Bookings = []Booking{{Key: "gang", Namespace: "ns", UID: uid, Remaining: nodegroups.Resources{"nvidia.com/gpu": 8, "pods": 1}, Since: since}}
		n.Labelled = n.Bookings
	}
}

func launchedAndBooked(n *Node) { booked(noon)(n); n.Launch = token }

func (s *story) attempt(phase AttemptPhase) *story {
	s.request.Attempt = Attempt{Number: 1, Phase: phase, Launches: []GroupCount{{"gpu", 2}}, Started: noon}
	s.request.Gang.Launch = token
	return s
}

func (s *story) machines(states ...cloudprovider.State) *story {
	for i, state := range states {
		s.view.Machines = append(s.view.Machines, cloudprovider.Machine{Name: string(rune('a' + i)), Group: "gpu", Launch: token, State: state, Reason: "BootFailed"})
	}
	return s
}

func missing(s *story) {
	s.request.Missing = []string{"workers"}
	s.request.Gang.PodSets = nil
}

func (s *story) provisioned(bound int) *story {
	s.request.Status, s.request.ProvisionedAt = Provisioned, noon
	s.bound = bound
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

const (
	booting    = cloudprovider.Booting
	running    = cloudprovider.Running
	terminated = cloudprovider.Terminated
)

func TestNext(t *testing.T) {
	for _, tc := range []struct {
		name string
		*story
		want    Action
		message string
		check   func(*testing.T, Step)
	}{
		{name: "nothing is there, so an attempt begins", story: newStory(), want: Begin, message: "2 machines of group gpu",
			check: func(t *testing.T, s Step) {
				if s.Attempt.Number != 1 || s.Attempt.Machines("gpu") != 2 || s.Attempt.Phase != Launching {
					t.Errorf("attempt is %+v", s.Attempt)
				}
			}},
		{name: "free nodes are booked before anything is launched", story: newStory().node("a", nil).node("b", nil), want: Book},
		{name: "freshly cordoned nodes are watched for a moment", story: newStory().node("a", booked(noon)).node("b", booked(noon)), want: Rest,
			check: func(t *testing.T, s Step) {
				if s.At != noon.Add(settle) {
					t.Errorf("looks again at %s", s.At)
				}
			}},
		{name: "settled nodes are provisioned", story: newStory().node("a", booked(noon)).node("b", booked(noon)).at(settle), want: Provision, message: "2 nodes booked for 2 pods"},
		{name: "a pod that slipped in while it settled makes the plan anew", want: Book,
			story: newStory().node("a", booked(noon)).node("b", func(n *Node) { booked(noon)(n); n.Free = nodegroups.Resources{} }).node("c", nil).at(settle),
			check: func(t *testing.T, s Step) {
				if len(s.Book) != 1 || s.Book[0].Node != "c" || len(s.Unbook) != 1 || s.Unbook[0] != "b" {
					t.Errorf("books %v, unbooks %v", s.Book, s.Unbook)
				}
			}},
		{name: "a gang that cannot be had now waits and keeps nothing", want: Book,
			story: newStory().node("a", booked(noon)).with(func(s *story) { s.view.Groups[0].Backoffs = stockout(noon.Add(time.Minute)) }),
			check: func(t *testing.T, s Step) {
				if len(s.Book) != 0 || len(s.Unbook) != 1 {
					t.Errorf("books %v, unbooks %v", s.Book, s.Unbook)
				}
			}},
		{name: "it says why it waits and until when", want: Report, message: "tried again at 2026-01-01T12:01:00Z",
			story: newStory().with(func(s *story) { s.view.Groups[0].Backoffs = stockout(noon.Add(time.Minute)) }),
			check: func(t *testing.T, s Step) {
				if s.At != noon.Add(time.Minute) {
					t.Errorf("looks again at %s", s.At)
				}
			}},
		{name: "a gang that can never be had fails", story: newStory().with(func(s *story) { s.view.Groups[0].Max = 1 }), want: Fail, message: "1 short"},
		{name: "noRetry fails instead of waiting", want: Fail,
			story: newStory().with(func(s *story) {
				s.request.NoRetry = true
				s.view.Groups[0].Backoffs = stockout(noon.Add(time.Minute))
			})},
		{name: "a template that is not known is looked up first", story: newStory().with(missing), want: LookUp},
		{name: "parameters that cannot be read fail the request", story: newStory().with(func(s *story) { s.request.Invalid = "noRetry is maybe" }), want: Fail, message: "noRetry is maybe"},
		{name: "what is lacking is waited for", story: newStory().with(func(s *story) { s.request.Lacking = "no such policy" }), want: Report, message: "no such policy"},
		{name: "a request past its time fails", story: newStory().at(time.Hour), want: Fail, message: "ValidUntilSeconds"},
		{name: "a second request of the same key waits", story: newStory().with(func(s *story) { s.view.KeyTaken = "ns/first" }), want: Report, message: "ns/first"},

		{name: "an attempt on record without its machines calls the cloud, also after a crash", story: newStory().attempt(Launching).machines(booting), want: LaunchMachines},
		{name: "machines that boot are waited for until the join timeout", story: newStory().attempt(Launching).machines(booting, booting), want: Rest,
			check: func(t *testing.T, s Step) {
				if s.At != noon.Add(10*time.Minute) {
					t.Errorf("looks again at %s", s.At)
				}
			}},
		{name: "a machine that died while it booted rolls the whole attempt back", story: newStory().attempt(Launching).machines(running, terminated), want: RollBack,
			check: wantFailure(v1alpha1.Lost)},
		{name: "machines that do not join in time roll it back", want: RollBack, check: wantFailure(v1alpha1.Timeout),
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", notReady).at(10 * time.Minute)},
		{name: "a node that is not Ready is waited for", story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", notReady), want: Rest},
		{name: "a node without its GPUs is waited for", story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", withoutGPU), want: Rest},
		{name: "a node with a startup taint is waited for", story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", startupTaint), want: Rest},
		{name: "a node without the pod of a DaemonSet that belongs there is waited for", want: Rest,
			story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", func(n *Node) { young(n); n.Created = noon }).
				with(func(s *story) {
					s.view.DaemonSets = []DaemonSet{NewDaemonSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "ds", Namespace: "kube-system", Name: "agent"}})}
				}),
			check: func(t *testing.T, s Step) {
				if s.At != noon.Add(daemonWait) {
					t.Errorf("looks again at %s", s.At)
				}
			}},
		{name: "when all have joined they are booked", story: newStory().attempt(Launching).machines(running, running).node("a", young).node("b", young), want: Book,
			check: func(t *testing.T, s Step) {
				if len(s.Book) != 2 || !s.Book[0].Whole {
					t.Errorf("books %v", s.Book)
				}
			}},
		{name: "launched nodes need not settle", story: newStory().attempt(Launching).machines(running, running).node("a", launchedAndBooked).node("b", launchedAndBooked), want: Provision,
			check: func(t *testing.T, s Step) {
				if s.Reason != ReasonCapacityProvisioned || s.Attempt.Phase != Done {
					t.Errorf("step is %+v", s)
				}
			}},
		{name: "nodes that give less than their template roll it back", want: RollBack, check: wantFailure(v1alpha1.Config),
			story: newStory().attempt(Launching).machines(running, running).node("a", young).
				node("b", func(n *Node) {
					young(n)
					n.Allocatable = nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "nvidia.com/gpu": 8}
					n.Free = n.Allocatable
				})},
		{name: "room that others took meanwhile is not the group's fault", want: RollBack, check: wantFailure(v1alpha1.Lost),
			story: newStory().attempt(Launching).machines(running, running).node("a", young).
				node("b", func(n *Node) { young(n); n.Free = nodegroups.Resources{"nvidia.com/gpu": 8} })},
		{name: "a launch that keeps failing ends at the join timeout, too", story: newStory().attempt(Launching).machines(booting).at(10 * time.Minute), want: RollBack,
			check: wantFailure(v1alpha1.Timeout)},
		{name: "pods of the gang that came early are not counted against it", want: Provision,
			story: newStory().node("a", booked(noon)).node("b", func(n *Node) {
				booked(noon)(n)
				n.Free = nodegroups.Resources{"cpu": 96000, "pods": 109}
				n.Pods = 1
				n.Bookings[0].Used, n.Bookings[0].Running = nodegroups.Resources{"nvidia.com/gpu": 8, "pods": 1}, 1
			}).at(settle)},
		{name: "a booking that ends under a half-started gang leaves the labels", want: Expire,
			story: newStory().provisioned(1).node("a", booked(noon)).node("b", booked(noon)).at(10 * time.Minute).with(func(s *story) { s.view.Active = 2 }),
			check: func(t *testing.T, s Step) {
				if !s.KeepLabels {
					t.Error("the labels that the late pods select would go")
				}
			}},
		{name: "a template deleted in flight rolls it back", story: newStory().attempt(Launching).machines(booting, booting).with(missing), want: RollBack, check: wantFailure(v1alpha1.Config)},
		{name: "a group deleted in flight rolls it back", want: RollBack, check: wantFailure(v1alpha1.Config),
			story: newStory().attempt(Launching).machines(booting, booting).with(func(s *story) { s.view.Groups = nil })},

		{name: "a rollback takes back by name what is left", story: newStory().attempt(RollingBack).machines(booting, running, terminated), want: TakeBack,
			check: func(t *testing.T, s Step) {
				if len(s.TakeBack) != 2 {
					t.Errorf("takes back %v", s.TakeBack)
				}
			}},
		{name: "a rollback waits for the last node to go", story: newStory().attempt(RollingBack).machines(terminated).node("a", young), want: Rest},
		{name: "after a rollback the next attempt has the next number", story: newStory().attempt(RollingBack), want: Begin,
			check: func(t *testing.T, s Step) {
				if s.Attempt.Number != 2 || s.Attempt.Failure != nil {
					t.Errorf("attempt is %+v", s.Attempt)
				}
			}},

		{name: "booked capacity waits for its pods", story: newStory().provisioned(1).node("a", booked(noon)).node("b", booked(noon)), want: Rest},
		{name: "a template deleted meanwhile changes nothing", story: newStory().provisioned(0).with(missing).node("a", booked(noon)).node("b", booked(noon)), want: Rest},
		{name: "when all pods are bound the booking is consumed", story: newStory().provisioned(2).node("a", booked(noon)).node("b", booked(noon)), want: Consume},
		{name: "a booking that nobody uses expires", story: newStory().provisioned(0).node("a", booked(noon)).node("b", booked(noon)).at(10 * time.Minute), want: Expire, message: "0 of 2 pods"},
		{name: "a machine lost before the pods came ends the booking", story: newStory().provisioned(0).node("a", booked(noon)), want: Expire, message: "lost"},
		{name: "what is over rests", story: newStory().with(func(s *story) { s.request.Status = Over }), want: Rest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.bound > 0 {
				tc.view.Nodes.Find("a").Labelled[0].Pods = tc.bound
			}
			got := Next(&tc.request, tc.view)
			if got.Do != tc.want {
				t.Fatalf("step is %s (%s), want %s", got.Do, got.Message, tc.want)
			}
			if !strings.Contains(got.Message, tc.message) {
				t.Errorf("message %q does not speak of %q", got.Message, tc.message)
			}
			if tc.check != nil {
				tc.check(t, got)
			}
		})
	}
}

func wantFailure(class v1alpha1.ErrorClass) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		if f := s.Attempt.Failure; s.Attempt.Phase != RollingBack || f == nil || f.Class != class || f.Message == "" {
			t.Errorf("attempt is %+v with failure %+v, want class %s", s.Attempt, f, class)
		}
	}
}
