package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestHowFastReasonsAreTold counts when pending Workloads are told why they wait.
func TestHowFastReasonsAreTold(t *testing.T) {
	for name, tt := range map[string]struct {
		// took is how long a write takes, seldom every fifth where it is another; acts
		// is how many a second get somebody on.
		took, seldom time.Duration
		acts         int
		told         []int
		at           []time.Duration
	}{
		"a server at rest: not at once, and all within 10 s": {
			took: 5 * time.Millisecond, at: []time.Duration{900 * time.Millisecond, 10 * time.Second}, told: []int{0, 1500},
		},
		"a server that takes its time: at the rate where it began, and 1,000 ahead of their turn": {
			took: 30 * time.Millisecond, at: []time.Duration{900 * time.Millisecond, 4 * time.Second}, told: []int{0, 1150},
		},
		"a server that is too slow: 1,000 within 4 s, and then few, but never none": {
			took: 200 * time.Millisecond, at: []time.Duration{4 * time.Second, 41 * time.Second}, told: []int{1050, 1420},
		},
		"a server that is slow now and then: as if it always were": {
			took: 5 * time.Millisecond, seldom: 200 * time.Millisecond, at: []time.Duration{41 * time.Second}, told: []int{1430},
		},
		"a server with some acts: what they leave of the rate, and 1,000 more": {
			took: 30 * time.Millisecond, acts: 20, at: []time.Duration{11 * time.Second}, told: []int{1300},
		},
		"a server full of acts: a tenth as many, and 1,000 more": {
			took: 30 * time.Millisecond, acts: 300, at: []time.Duration{900 * time.Millisecond, 11 * time.Second}, told: []int{0, 1300},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReasons()
			for i := range 1500 {
				w := workloadOf(fmt.Sprint(i), "1")
				r.note(w, "WaitingForQuota", "no room", start)
			}
			told := 0
			for at, now := 0, start; at < len(tt.at); now = now.Add(tellEvery) {
				for range tt.acts / int(time.Second/tellEvery) {
					r.acted()
				}
				if now.Sub(start) > tt.at[at] {
					if off := told - tt.told[at]; off < -15 || off > 15 {
						t.Errorf("%d are told after %v, want %d", told, tt.at[at], tt.told[at])
					}
					at++
				}
				r.refill(now)
				for r.next(now) != nil {
					r.pay()
					told++
					took := tt.took
					if told%5 == 0 && tt.seldom > 0 {
						took = tt.seldom
					}
					r.took(took, now)
				}
			}
		})
	}
}

// TestEachCrowdIsToldInTime: who comes when all others have been told needs not wait for
// longer than they did, however slow the API server is.
func TestEachCrowdIsToldInTime(t *testing.T) {
	r := newReasons()
	now := start
	told := func(d time.Duration) (n int) {
		for end := now.Add(d); now.Before(end); now = now.Add(tellEvery) {
			r.refill(now)
			for r.next(now) != nil {
				r.pay()
				r.took(time.Second, now)
				n++
			}
		}
		return n
	}
	for crowd := range 3 {
		for i := range 1100 {
			w := workloadOf(fmt.Sprint(crowd, i), "1")
			w.CreationTimestamp.Time = now
			r.note(w, "WaitingForQuota", "no room", now)
		}
		if n := told(tellAfter + time.Second); n < 1000 {
			t.Errorf("%d of crowd %d are told in time, want 1,000", n, crowd)
		}
		told(time.Minute)
	}
}

// TestWhichReasonIsToldNext: what is news goes before new words for what is known,
// and only the last of several counts.
func TestWhichReasonIsToldNext(t *testing.T) {
	r := newReasons()
	r.tokens = 10_000
	known := workloadOf("known", "1")
	apimeta.SetStatusCondition(&known.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "WaitingForQuota", Message: "1 missing",
	})
	now := start.Add(time.Minute)
	r.last["known"] = now.Add(-time.Second)
	r.note(known, "WaitingForQuota", "2 missing", now)
	for i := range 3 {
		r.note(workloadOf("new", "1"), "WaitingForQuota", fmt.Sprint(i, " missing"), now)
	}
	r.note(workloadOf("gone", "1"), "WaitingForQuota", "1 missing", now)
	r.remove("gone")
	if n := r.next(now); n == nil || n.uid != "new" || n.message != "2 missing" {
		t.Errorf("first is %+v, want the last reason of the new one", n)
	}
	if n := r.next(now); n != nil {
		t.Errorf("%+v is told again too soon", n)
	}
	if got, want := r.wakeAt(), now.Add(-time.Second).Add(refreshAfter); !got.Equal(want) {
		t.Errorf("it goes on at %v, want %v", got, want)
	}
	later := now.Add(refreshAfter)
	r.note(workloadOf("newer", "1"), "WaitingForQuota", "1 missing", later)
	for _, want := range []types.UID{"newer", "known"} {
		if n := r.next(later); n == nil || n.uid != want {
			t.Errorf("then comes %+v, want %s", n, want)
		}
	}
}

// counter counts the writes to Workloads and those of statuses.
type counter struct{ workloads, statuses int }

func (n *counter) wrap(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			n.statuses++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			n.workloads++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// TestStatusIsWrittenWhenItChanges counts the writes of a queue at rest.
func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	n := &counter{}
	w := newWorld(t, n.wrap, append(queueOf("1"), workloadOf("a", "1"))...)
	w.run(time.Minute)
	// The queue and the LocalQueue twice each, pending and then admitted; the
	// check once.
	if n.statuses != 5 || n.workloads != 1 {
		t.Errorf("%d status writes, want 5, and %d of workloads, want 1", n.statuses, n.workloads)
	}
	cq := &kueue.ClusterQueue{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	if cq.Status.AdmittedWorkloads != 1 || cq.Status.PendingWorkloads != 0 || cq.Status.FlavorsUsage[0].Resources[0].Total.String() != "1" {
		t.Errorf("status of the queue: %+v", cq.Status)
	}
}

// TestStatusesUnderLoad: 120 Workloads come in 4 s. Statuses get a twentieth of the
// writes and one a second, beside the first of each, and are right once it is quiet.
func TestStatusesUnderLoad(t *testing.T) {
	n := &counter{}
	w := newWorld(t, n.wrap, queueOf("1000")...)
	w.run(time.Second)
	*n = counter{}
	w.loop.report.saved = 0
	for i := range 120 {
		job := workloadOf(fmt.Sprintf("job-%03d", i), "1")
		job.UID = ""
		if err := w.api.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		w.run(33 * time.Millisecond)
	}
	if n.workloads < 120 || n.statuses > n.workloads/actsPerReport+4+2 {
		t.Errorf("%d writes of statuses beside %d of workloads", n.statuses, n.workloads)
	}
	cq := &kueue.ClusterQueue{}
	w.run(5 * time.Second)
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	if cq.Status.AdmittedWorkloads != 120 {
		t.Errorf("once it is quiet the status says that %d are admitted, want 120", cq.Status.AdmittedWorkloads)
	}
}

// TestAVerdictWhileTheReasonIsTold: quota comes back while a Workload is being told
// that it waits for it. It gets the quota with the next write, and no write is lost.
func TestAVerdictWhileTheReasonIsTold(t *testing.T) {
	n := &counter{}
	w := newWorld(t, n.wrap, append(queueOf("1"), workloadOf("a", "1"), workloadOf("b", "1"))...)
	w.run(500 * time.Millisecond)
	if !workload.IsAdmitted(w.workload("a")) {
		t.Fatal("a is not admitted")
	}
	var slow func()
	carryOut := w.loop.start
	w.loop.start = func(u urgency, write write) {
		if u == paced && slow == nil && len(w.loop.reasons.underWay) > 0 {
			slow = func() { carryOut(u, write) }
			return
		}
		carryOut(u, write)
	}
	w.run(time.Second)
	if slow == nil {
		t.Fatal("b is not told why it waits")
	}
	if err := w.api.Delete(t.Context(), w.workload("a")); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	before := n.workloads
	slow()
	w.run(time.Second)
	if !workload.IsAdmitted(w.workload("b")) || n.workloads != before+2 {
		t.Errorf("b is admitted: %v, after %d writes, want 2", workload.IsAdmitted(w.workload("b")), n.workloads-before)
	}
}

// TestAReasonThatCouldNotBeTold is told again, unless something else is about to be said
// of the Workload.
func TestAReasonThatCouldNotBeTold(t *testing.T) {
	for name, tc := range map[string]struct {
		behind []held
		again  bool
	}{
		"nothing behind it":                    {nil, true},
		"a request that is made behind it":     {[]held{{waits: true}}, true},
		"an admission behind it":               {[]held{{}}, false},
		"an admission behind a request, after": {[]held{{waits: true}, {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, append(queueOf("0"), workloadOf("a", "1"))...)
			w.run(5 * time.Second)
			r, object := w.loop.reasons, w.workload("a")
			went := 0
			for i := range tc.behind {
				tc.behind[i].then = func(_, after *kueue.Workload) {
					if went++; after != nil {
						t.Errorf("it goes on with %v", after)
					}
				}
			}
			r.underWay[object.UID] = tc.behind
			w.loop.told(&note{uid: object.UID, reason: "r", message: "m"}, object, nil, errors.New("connection refused"), time.Now())
			if again := r.notes[object.UID] != nil; again != tc.again || went != len(tc.behind) {
				t.Errorf("told again: %t, want %t; %d of %d went on", again, tc.again, went, len(tc.behind))
			}
		})
	}
}

// TestEventsUnderLoad: the thousandth admission of a moment is told by its
// conditions alone, a warning always.
func TestEventsUnderLoad(t *testing.T) {
	w := newWorld(t, nil, queueOf("1")...)
	object := workloadOf("a", "1")
	for range 1000 {
		w.loop.event(object, corev1.EventTypeNormal, "Admitted", "it may run")
	}
	w.loop.event(object, corev1.EventTypeWarning, "FailedCreate", "it may not")
	if got := len(w.events); got != eventsAtOnce+1 || w.events[got-1] != "FailedCreate a" {
		t.Errorf("%d Events, the last is %q", got, w.events[got-1])
	}
	w.now = w.now.Add(2 * time.Second)
	for range 1000 {
		w.loop.event(object, corev1.EventTypeNormal, "Admitted", "it may run")
	}
	if got, want := len(w.events), eventsAtOnce+1+2*eventsPerSecond; got != want {
		t.Errorf("%d Events two seconds later, want %d", got, want)
	}
}
