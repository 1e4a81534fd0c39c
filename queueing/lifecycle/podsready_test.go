package lifecycle_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	for name, c := range map[string]struct {
		strategy kueueconfig.RequeuingStrategy
		tries    int32
		want     time.Duration
	}{
		"the first with Kueue's defaults":  {want: 60 * time.Second},
		"the second":                       {tries: 1, want: 120 * time.Second},
		"the limit by default":             {tries: 100, want: time.Hour},
		"a base of its own":                {strategy: kueueconfig.RequeuingStrategy{BackoffBaseSeconds: new(int32(7))}, tries: 2, want: 28 * time.Second},
		"a limit of its own":               {strategy: kueueconfig.RequeuingStrategy{BackoffMaxSeconds: new(int32(90))}, tries: 1, want: 90 * time.Second},
		"none at all":                      {strategy: kueueconfig.RequeuingStrategy{BackoffBaseSeconds: new(int32(0))}, tries: 5},
		"more tries than there are powers": {tries: 1<<31 - 1, want: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[time.Duration]bool{}
			for _, uid := range []types.UID{"a", "b", "c", "d", "e", "f", "g", "h"} {
				w := &kueue.Workload{}
				w.UID = uid
				got := lifecycle.Backoff(w, c.strategy, c.tries)
				if seen[got] = true; got != lifecycle.Backoff(w, c.strategy, c.tries) {
					t.Error("the same try pauses differently")
				}
				if got < c.want || got > c.want+c.want/60 || got%time.Second != 0 {
					t.Errorf("%s, want %s and a sixtieth more at most, in whole seconds", got, c.want)
				}
			}
			if c.want == time.Hour && len(seen) < 2 {
				t.Error("all come back at the same time")
			}
		})
	}
}

// TestCapacityIsNoReasonToDeactivate: attempts at capacity count in requeueState,
// but not against the limit of waitForPodsReady.
func TestCapacityIsNoReasonToDeactivate(t *testing.T) {
	w := queues.New()
	w.State.Config.WaitForPodsReady = &kueueconfig.WaitForPodsReady{
		RequeuingStrategy: &kueueconfig.RequeuingStrategy{BackoffLimitCount: new(int32(1))}}
	w.Set(queues.Flavor("f", nil))
	w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=8"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "train", map[string]string{"cpu": "1"}))
	w.Cycles(t)
	object := w.Find(t, "train")
	object.Status.RequeueState = &kueue.RequeueState{Count: new(int32(7))}
	w.Set(object)
	w.Now = w.Now.Add(lifecycle.DefaultReadyTimeout)
	w.Cycles(t)
	if object = w.Find(t, "train"); !workload.IsActive(object) || !workload.IsEvicted(object) {
		t.Errorf("after seven stockouts and one timeout it is active: %v, evicted: %v", workload.IsActive(object), workload.IsEvicted(object))
	}
}

// TestTheSilenceOfTheControlPlaneIsNotThePods: the time in which pods have to be ready counts from when the control plane answers.
func TestTheSilenceOfTheControlPlaneIsNotThePods(t *testing.T) {
	for name, tc := range map[string]struct {
		answering time.Duration // since the admission
		after     time.Duration
		evicted   bool
	}{
		"it was never silent, and they are in time": {after: 4 * time.Minute},
		"it was never silent, and they are late":    {after: 5 * time.Minute, evicted: true},
		"it is silent":                              {answering: 20 * time.Minute, after: 20 * time.Minute},
		"it has answered for less":                  {answering: 20 * time.Minute, after: 24 * time.Minute},
		"it has answered for so long":               {answering: 20 * time.Minute, after: 25 * time.Minute, evicted: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.New()
			w.State.Config.WaitForPodsReady = &kueueconfig.WaitForPodsReady{Timeout: metav1.Duration{Duration: 5 * time.Minute}}
			w.Set(queues.Flavor("f", nil))
			w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=8"))
			w.Set(queues.LocalQueue("main", "team", ""))
			w.Set(w.Workload(t, "train", map[string]string{"cpu": "1"}))
			w.Cycles(t)
			if tc.answering > 0 {
				w.State.SetAnswering(w.Now.Add(tc.answering))
			}
			w.Now = w.Now.Add(tc.after)
			w.Cycles(t)
			if got := workload.IsEvicted(w.Find(t, "train")); got != tc.evicted {
				t.Errorf("evicted: %v, want %v", got, tc.evicted)
			}
		})
	}
}

// TestARefusalOfAnEarlierStartDoesNotCount even if its condition is still there, as where
// another field manager has written it, too.
func TestARefusalOfAnEarlierStartDoesNotCount(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("f", nil))
	w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=8"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "train", map[string]string{"cpu": "1"}))
	w.Cycles(t)
	for _, tt := range []struct {
		at      time.Duration
		evicted bool
	}{{-time.Second, false}, {0, true}} {
		object := w.Find(t, "train")
		object.Status = *workload.PodsRefused(object, "exceeded quota", w.Now.Add(tt.at))
		w.Set(object)
		w.Cycles(t)
		if got := workload.IsEvicted(w.Find(t, "train")); got != tt.evicted {
			t.Errorf("told %s after the admission, it is evicted: %v", tt.at, got)
		}
	}
}

// TestAnEvictionReportsItsCause: as in Kueue, metrics distinguish pods that never became ready from pods that were lost.
func TestAnEvictionReportsItsCause(t *testing.T) {
	w := queues.New()
	w.State.Config.WaitForPodsReady = &kueueconfig.WaitForPodsReady{Timeout: metav1.Duration{Duration: time.Minute}}
	w.Set(queues.Flavor("f", nil))
	w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=8"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "train", map[string]string{"cpu": "1"}))
	w.Cycles(t)
	w.Now = w.Now.Add(2 * time.Minute)
	for _, v := range w.State.Cycle(w.Now) {
		if v.Action == lifecycle.Evict && v.Reason == kueue.WorkloadEvictedByPodsReadyTimeout {
			if v.Cause != kueue.WorkloadWaitForStart {
				t.Errorf("the cause of %s is %q, want %q", v.Reason, v.Cause, kueue.WorkloadWaitForStart)
			}
			return
		}
	}
	t.Error("it is not evicted")
}
