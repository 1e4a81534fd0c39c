package model

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/provisioning/model/consumers"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// over is the request of a gang that has come and is over for that reason.
func (v *version) over(reason string, more ...string) *provreq.ProvisioningRequest {
	r := v.request("gang", append([]string{provreq.Provisioned, provreq.BookingExpired}, more...)...)
	r.Status.Conditions[1].Reason = reason
	return r
}

// ofJob marks a pod of the gang that a Job has made.
func ofJob(p *corev1.Pod) {
	consumes(p)
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}
}

func finishedAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}}}
	}
}

// TestRoomIsKeptBetweenTwoPodsOfAGang that runs: two pods of 4 GPUs each run on a node
// that is booked for them.
func TestRoomIsKeptBetweenTwoPodsOfAGang(t *testing.T) {
	type site struct {
		*Model
		*version
	}
	ends := func(how corev1.PodPhase) func(site) {
		return func(s site) { s.Set(s.pod("one", "n", 4, ofJob, podPhase(how))) }
	}
	for _, tc := range []struct {
		name string
		do   func(site)
		// free is what others may have at once, and after how long all that is not in use.
		free  int64
		until time.Duration
	}{
		{"while both run", func(site) {}, 0, 0},
		{"one that succeeded, of which the Job may have more", ends(corev1.PodSucceeded), 0, afterSuccess},
		{"one that failed, which the Job tries again", ends(corev1.PodFailed), 0, afterFailure},
		{"one that was deleted", func(s site) { s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}}) }, 0, afterStop},
		{"one that was stopped", func(s site) {
			s.Set(s.pod("one", "n", 4, ofJob, podPhase(corev1.PodFailed), func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) }))
		}, 0, afterStop},
		{"one that failed and was deleted", func(s site) {
			ends(corev1.PodFailed)(s)
			s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
		}, 0, afterFailure},
		{"until the next one is here", func(s site) {
			ends(corev1.PodFailed)(s)
			s.Set(s.pod("next", "n", 4, ofJob))
		}, 0, 0},
		{"of two that ended only one is here again", func(s site) {
			s.Set(s.pod("two", "n", 4, ofJob, podPhase(corev1.PodFailed)))
			ends(corev1.PodFailed)(s)
			s.Set(s.pod("next", "n", 4, ofJob))
			s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "two"}})
		}, 0, afterFailure},
		{"the next one runs on another node of the gang", func(s site) {
			ends(corev1.PodFailed)(s)
			s.Snapshot(noon)
			s.Set(s.node(booked, func(n *corev1.Node) { n.Name = "m" }))
			s.Set(s.pod("next", "m", 4, ofJob))
		}, 4, 0},
		{"another one that was there before is not in its place", func(s site) {
			ends(corev1.PodFailed)(s)
			s.Snapshot(noon)
			s.Set(s.node(booked, func(n *corev1.Node) { n.Name = "m" }))
			s.Set(s.pod("three", "m", 4, ofJob, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute)) }))
		}, 0, afterFailure},
		{"or is elsewhere, and this one ends, too", func(s site) {
			ends(corev1.PodSucceeded)(s)
			s.Set(s.pod("two", "n", 4, ofJob, podPhase(corev1.PodFailed)))
		}, 0, afterFailure},
		{"not where no controller makes another one", func(s site) { s.Set(s.pod("one", "n", 4, consumes, podPhase(corev1.PodFailed))) }, 4, 0},
		{"while the request is being deleted, which a finalizer holds up", func(s site) {
			ends(corev1.PodFailed)(s)
			s.Snapshot(noon)
			r := s.over(transaction.ReasonBookingConsumed)
			r.DeletionTimestamp = new(metav1.NewTime(noon))
			s.Set(r)
		}, 0, afterFailure},
		{"not when the request is gone", func(s site) { ends(corev1.PodFailed)(s); s.Snapshot(noon); s.Delete(s.request("gang")) }, 4, 0},
		{"not when the gang begins anew", func(s site) {
			ends(corev1.PodFailed)(s)
			s.Snapshot(noon)
			s.Set(s.over(transaction.ReasonBookingConsumed, provreq.CapacityRevoked))
		}, 4, 0},
		{"not for those who came too late", func(s site) {
			s.Set(s.over(transaction.ReasonReservationExpired))
			ends(corev1.PodFailed)(s)
		}, 4, 0},
		{"a process that begins counts from the pod's end", func(s site) {
			s.Set(s.pod("before", "n", 4, ofJob, podPhase(corev1.PodFailed), finishedAt(noon.Add(-time.Minute)), func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
			}))
			s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "two"}})
			s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
		}, 0, afterFailure - time.Minute},
		{"and not for one that ended long ago", func(s site) {
			s.Set(s.over(transaction.ReasonReservationExpired))
			s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "two"}})
			s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
			s.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			s.Set(s.node(booked))
			s.Set(s.over(transaction.ReasonBookingConsumed))
			s.Set(s.pod("before", "n", 4, ofJob, podPhase(corev1.PodFailed), finishedAt(noon.Add(-afterFailure)), func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
			}))
		}, 8, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := testingclock.NewFakePassiveClock(noon)
			m, v := New(clock, transaction.KnownClasses), new(version)
			m.Set(v.node(booked))
			m.Set(v.pod("one", "n", 4, ofJob))
			m.Set(v.pod("two", "n", 4, ofJob))
			m.Set(v.over(transaction.ReasonBookingConsumed))
			m.Snapshot(noon)
			changed := m.Changed()
			tc.do(site{m, v})
			at := func(after time.Duration) *state.Node {
				now := noon.Add(after)
				clock.SetTime(now)
				return m.Snapshot(now).Nodes.Find("n")
			}
			n := at(0)
			if n.Free[gpu] != tc.free || len(n.Labelled) > 0 && !n.Labelled[0].KeptUntil.IsZero() != (tc.until > 0) {
				t.Fatalf("%d are free, want %d; %+v", n.Free[gpu], tc.free, n.Labelled)
			}
			// Without the gang all of its room is free.
			if n := m.Snapshot(noon).Without("gang").Nodes.Find("n"); n.Free[gpu] != 8 {
				t.Errorf("without the gang %d are free, want 8", n.Free[gpu])
			}
			if tc.until == 0 {
				return
			}
			if until := n.Labelled[0].KeptUntil; !until.Equal(noon.Add(tc.until)) {
				t.Errorf("kept until %s, want %s", until, noon.Add(tc.until))
			}
			select {
			case <-changed:
			default:
			}
			m.Due(nil)
			if n := at(tc.until - time.Second); n.Labelled[0].KeptUntil.IsZero() {
				t.Errorf("too early %d are free", n.Free[gpu])
			}
			n = at(tc.until)
			if n.Free[gpu] == 0 || !n.Labelled[0].KeptUntil.IsZero() {
				t.Errorf("when it is over %d are free: %+v", n.Free[gpu], n.Labelled)
			}
			select {
			case <-changed:
			default:
				t.Error("nobody is told that there is room")
			}
		})
	}
}

// TestWhatIsRememberedOfANodeGoesWithIt, so that nothing grows.
func TestWhatIsRememberedOfANodeGoesWithIt(t *testing.T) {
	m, v := newModel()
	m.Set(v.over(transaction.ReasonBookingConsumed))
	m.Set(v.node(booked))
	for _, name := range []string{"one", "two", "three"} {
		m.Set(v.pod(name, "n", 2, ofJob))
		m.Set(v.pod(name, "n", 2, ofJob, podPhase(corev1.PodSucceeded)))
	}
	m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
	m.Snapshot(noon)
	// A pod on an unknown node.
	m.Set(v.pod("lost", "m", 2, ofJob))
	m.Set(v.pod("lost", "m", 2, ofJob, podPhase(corev1.PodFailed)))
	m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "lost"}})
	m.Set(v.pod("again", "n", 2, ofJob))
	m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "again"}})
	m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "two"}})
	m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "three"}})
	m.Snapshot(noon)
	if len(m.nodes.byName)+len(m.nodes.lapses)+len(m.nodes.endedOn)+len(m.nodes.pods)+len(m.dirty[nodeView]) > 0 {
		t.Errorf("left are %v, %v, %v, %v, %v", m.nodes.byName, m.nodes.lapses, m.nodes.endedOn, m.nodes.pods, m.dirty[nodeView])
	}
}

// TestOneThatStandsByForgets, too, though no snapshot is taken of it.
func TestOneThatStandsByForgets(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	m, v := New(clock, transaction.KnownClasses), new(version)
	m.Set(v.over(transaction.ReasonBookingConsumed))
	m.Set(v.node(booked))
	m.Set(v.pod("one", "n", 8, ofJob))
	m.Tidy()
	m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
	m.Tidy()
	if len(m.losses["gang"]) != 1 || len(m.consumers.Ended) != 1 || len(m.dirty[nodeView]) > 0 {
		t.Fatalf("at once it knows of %v and %v; %v are left to be read", m.losses, m.consumers.Ended, m.dirty[nodeView])
	}
	clock.SetTime(noon.Add(2 * consumers.Remembered))
	m.Tidy()
	if len(m.losses["gang"])+len(m.consumers.Ended) > 0 {
		t.Errorf("after hours it knows of %v and %v", m.losses, m.consumers.Ended)
	}
}

// TestBlockedPods are those of a gang that came and cannot start.
func TestBlockedPods(t *testing.T) {
	waits := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			consumes(p)
			p.Status.Phase = corev1.PodPending
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}}}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*Model, *version)
		pods   int
	}{
		{"whose image cannot be pulled", func(m *Model, v *version) { m.Set(v.pod("one", "n", 8, waits("ErrImagePull"))) }, 1},
		{"since the first error", func(m *Model, v *version) {
			m.Set(v.pod("one", "n", 8, waits("ErrImagePull")))
			m.clock.(*testingclock.FakePassiveClock).SetTime(noon.Add(time.Minute))
			m.Set(v.pod("one", "n", 8, waits("ImagePullBackOff")))
			m.Set(v.pod("two", "n", 8, waits("ImagePullBackOff")))
		}, 2},
		{"whose image is pulled", func(m *Model, v *version) { m.Set(v.pod("one", "n", 8, waits("ContainerCreating"))) }, 0},
		{"that have started", func(m *Model, v *version) {
			m.Set(v.pod("one", "n", 8, waits("ErrImagePull")))
			m.Set(v.pod("one", "n", 8, consumes))
		}, 0},
		{"that are gone", func(m *Model, v *version) {
			m.Set(v.pod("one", "n", 8, waits("ErrImagePull")))
			m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, v := newModel()
			m.Set(v.over(transaction.ReasonBookingConsumed))
			m.Due(nil)
			tc.change(m, v)
			got := transaction.Blocked{}
			for _, e := range m.Due(nil) {
				got = m.View(m.Snapshot(noon), e.Request).Blocked
			}
			if got.Pods != tc.pods || tc.pods > 0 && !got.Since.Equal(noon) {
				t.Errorf("%+v, want %d pods since %s", got, tc.pods, noon)
			}
			if want := "pod one: container main: "; tc.pods > 0 && !strings.HasPrefix(got.Why, want) {
				t.Errorf("the cause is %q, want one that begins with %q", got.Why, want)
			}
		})
	}
}

// TestStrandedPods are those in place of others of a gang that ran, as long as they have
// found no room. Whatever order the news come in, the request is due.
func TestStrandedPods(t *testing.T) {
	unschedulable := func(p *corev1.Pod) {
		consumes(p)
		// A gate is no lack of room, and the time of the condition stays that of the gate.
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
	}
	for _, tc := range []struct {
		name string
		tell func(*Model, *version)
		pods int
	}{
		{"a pod without room", func(m *Model, v *version) {
			m.Set(v.over(transaction.ReasonBookingConsumed))
			m.Due(nil)
			m.Set(v.pod("one", "", 8, unschedulable))
		}, 1},
		{"before its request is known", func(m *Model, v *version) {
			m.Set(v.pod("one", "", 8, unschedulable))
			m.Set(v.pod("two", "", 8, unschedulable))
			m.Set(v.over(transaction.ReasonBookingConsumed))
		}, 2},
		{"since it was first told", func(m *Model, v *version) {
			m.Set(v.over(transaction.ReasonBookingConsumed))
			m.Set(v.pod("one", "", 8, unschedulable))
			m.clock.(*testingclock.FakePassiveClock).SetTime(noon.Add(time.Minute))
			m.Set(v.pod("one", "", 8, unschedulable))
		}, 1},
		{"that waits while its request does", func(m *Model, v *version) {
			m.Set(v.pod("one", "", 8, unschedulable))
			m.Set(v.request("gang"))
		}, 0},
		{"that comes too late", func(m *Model, v *version) {
			m.Set(v.over(transaction.ReasonReservationExpired))
			m.Set(v.pod("one", "", 8, unschedulable))
		}, 0},
		{"that nobody waits for any more", func(m *Model, v *version) {
			m.Set(v.over(transaction.ReasonBookingConsumed, provreq.CapacityRevoked))
			m.Set(v.pod("one", "", 8, unschedulable))
		}, 0},
		{"that kube-scheduler has not looked at", func(m *Model, v *version) {
			m.Set(v.over(transaction.ReasonBookingConsumed))
			m.Set(v.pod("one", "", 8, consumes))
		}, 0},
		{"that finds a node", func(m *Model, v *version) {
			m.Set(v.over(transaction.ReasonBookingConsumed))
			m.Set(v.pod("one", "", 8, unschedulable))
			m.Set(v.pod("one", "n", 8, consumes))
		}, 0},
		{"that goes", func(m *Model, v *version) {
			m.Set(v.over(transaction.ReasonBookingConsumed))
			m.Set(v.pod("one", "", 8, unschedulable))
			m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
		}, 0},
		{"of no request", func(m *Model, v *version) { m.Set(v.pod("one", "", 8, unschedulable)) }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, v := newModel()
			tc.tell(m, v)
			got := transaction.Stranded{}
			for _, e := range m.Due(nil) {
				got = m.View(m.Snapshot(noon), e.Request).Stranded
			}
			if got.Pods != tc.pods || tc.pods > 0 && (!got.Since.Equal(noon) || got.Requests[gpu] != int64(8*tc.pods)) {
				t.Errorf("%+v, want %d pods of 8 GPUs since %s", got, tc.pods, noon)
			}
			if tc.pods > 0 && len(m.Due([]types.UID{"gang"})) != 1 {
				t.Error("it is not due when its time comes")
			}
		})
	}
}
