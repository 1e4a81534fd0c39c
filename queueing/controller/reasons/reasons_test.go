package reasons

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func workload(name string) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(start)}}
}

// TestPace counts how many reasons are written by when.
func TestPace(t *testing.T) {
	for name, tt := range map[string]struct {
		// took is how long a write takes, seldom every fifth where it is another; acts
		// is how many acts there are a second.
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
			q := New()
			for i := range 1500 {
				w := workload(fmt.Sprint(i))
				q.Set(w, "WaitingForQuota", "no room", start)
			}
			told := 0
			for at, now := 0, start; at < len(tt.at); now = now.Add(refillEvery) {
				for range tt.acts / int(time.Second/refillEvery) {
					q.Acted()
				}
				if now.Sub(start) > tt.at[at] {
					if off := told - tt.told[at]; off < -15 || off > 15 {
						t.Errorf("%d are told after %v, want %d", told, tt.at[at], tt.told[at])
					}
					at++
				}
				for q.Next(now) != nil {
					q.Spend()
					told++
					took := tt.took
					if told%5 == 0 && tt.seldom > 0 {
						took = tt.seldom
					}
					q.Took(took, now)
					q.Done()
				}
			}
		})
	}
}

// TestEachCrowdGetsItsReasonsInTime: Workloads that come when all others have a reason wait no
// longer than those did, however slow the API server is.
func TestEachCrowdGetsItsReasonsInTime(t *testing.T) {
	q := New()
	now := start
	told := func(d time.Duration) (n int) {
		for end := now.Add(d); now.Before(end); now = now.Add(refillEvery) {
			for q.Next(now) != nil {
				q.Spend()
				q.Took(time.Second, now)
				q.Done()
				n++
			}
		}
		return n
	}
	for crowd := range 3 {
		for i := range 1100 {
			w := workload(fmt.Sprint(crowd, i))
			w.CreationTimestamp.Time = now
			q.Set(w, "WaitingForQuota", "no room", now)
		}
		if n := told(FirstAfter + time.Second); n < 1000 {
			t.Errorf("%d of crowd %d are told in time, want 1,000", n, crowd)
		}
		told(time.Minute)
	}
}

// TestOrder: a first reason comes before another message for a reason that was written, and only the last of several counts.
func TestOrder(t *testing.T) {
	q := New()
	q.tokens = 10_000
	known := workload("known")
	apimeta.SetStatusCondition(&known.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "WaitingForQuota", Message: "1 missing",
	})
	now := start.Add(time.Minute)
	q.Written("known", now.Add(-time.Second))
	q.Set(known, "WaitingForQuota", "2 missing", now)
	for i := range 3 {
		q.Set(workload("new"), "WaitingForQuota", fmt.Sprint(i, " missing"), now)
	}
	q.Set(workload("gone"), "WaitingForQuota", "1 missing", now)
	q.Remove("gone")
	if n := q.Next(now); n == nil || n.Workload != "new" || n.Message != "2 missing" {
		t.Errorf("first is %+v, want the last reason of the new one", n)
	}
	if n := q.Next(now); n != nil {
		t.Errorf("%+v is told again too soon", n)
	}
	if got, want := q.WakeAt(now), now.Add(-time.Second).Add(RefreshAfter); !got.Equal(want) {
		t.Errorf("it goes on at %v, want %v", got, want)
	}
	later := now.Add(RefreshAfter)
	q.Set(workload("newer"), "WaitingForQuota", "1 missing", later)
	for _, want := range []types.UID{"newer", "known"} {
		if n := q.Next(later); n == nil || n.Workload != want {
			t.Errorf("then comes %+v, want %s", n, want)
		}
	}
}

// TestNamespacesTakeTurns: a namespace whose Workloads have a thousand reasons delays the first one of another namespace by one write.
func TestNamespacesTakeTurns(t *testing.T) {
	q := New()
	set := func(namespace, name, message string) {
		w := workload(name)
		w.Namespace = namespace
		q.Set(w, "WaitingForQuota", message, start)
	}
	for i := range 1000 {
		set("flood", fmt.Sprint(i), "no room")
	}
	next := func() string {
		r := q.Next(start.Add(FirstAfter))
		if r == nil {
			t.Fatal("no reason is written")
		}
		return r.namespace + "/" + string(r.Workload) + ": " + r.Message
	}
	got := []string{next()}
	set("small", "job", "no room")
	set("flood", "1", "less room") // keeps its place
	q.Remove("2")
	for range 3 {
		got = append(got, next())
	}
	want := []string{"flood/0: no room", "flood/1: less room", "small/job: no room", "flood/3: no room"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons are written in this order (-want +got):\n%s", diff)
	}
}
