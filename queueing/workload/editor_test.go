package workload

import (
	"math"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestWhatAnEvictionLeaves is as in Kueue: a Workload that waits for nothing but quota is requeued at once, and the nodes
// that its attempt lost say nothing about the next one.
func TestWhatAnEvictionLeaves(t *testing.T) {
	for reason, requeued := range map[string]metav1.ConditionStatus{
		kueue.WorkloadEvictedByPreemption:          metav1.ConditionTrue,
		kueue.WorkloadEvictedDueToNodeFailures:     metav1.ConditionTrue,
		kueue.WorkloadEvictedByPodsReadyTimeout:    metav1.ConditionFalse,
		kueue.WorkloadEvictedByAdmissionCheck:      metav1.ConditionFalse,
		kueue.WorkloadEvictedByClusterQueueStopped: metav1.ConditionFalse,
		kueue.WorkloadDeactivated:                  metav1.ConditionFalse,
	} {
		w := &kueue.Workload{}
		w.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: "node"}}
		status := Evicted(w, reason, "", time.Unix(100, 0))
		if c := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadRequeued); c == nil || c.Status != requeued || c.Reason != reason {
			t.Errorf("%s: Requeued is %+v, want %s", reason, c, requeued)
		}
		if len(status.UnhealthyNodes) > 0 {
			t.Errorf("%s: it still has the unhealthy nodes %v", reason, status.UnhealthyNodes)
		}
	}
}

// TestAResetCheckKeepsTheTimeOfItsRetry: as in Kueue, a user sees by how long the next attempt was delayed.
func TestAResetCheckKeepsTheTimeOfItsRetry(t *testing.T) {
	w := &kueue.Workload{}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{
		{Name: "retry", State: kueue.CheckStateRetry, RequeueAfterSeconds: new(int32(60)), RetryCount: new(int32(1))},
		{Name: "pending", State: kueue.CheckStatePending, Message: "asks"},
	}
	status := Evicted(w, kueue.WorkloadEvictedByAdmissionCheck, "", time.Unix(100, 0))
	retry, pending := status.AdmissionChecks[0], status.AdmissionChecks[1]
	if retry.State != kueue.CheckStatePending || retry.RequeueAfterSeconds == nil || *retry.RequeueAfterSeconds != 60 || Retries(&retry) != 2 {
		t.Errorf("the check that asked for another attempt is %+v", retry)
	}
	if pending.Message != "asks" {
		t.Errorf("the check that has not answered is %+v", pending)
	}
	if at := RetryAt(&kueue.Workload{Status: *status}); !at.IsZero() {
		t.Errorf("it puts the next attempt off once more, until %v", at)
	}
}

func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		base  time.Duration
		n     int32
		limit time.Duration
		want  time.Duration
	}{
		{time.Minute, 0, time.Hour, time.Minute},
		{time.Minute, 3, time.Hour, 8 * time.Minute},
		{time.Minute, math.MaxInt32, time.Hour, time.Hour},
		{time.Minute, 1, time.Second, time.Second},
		{0, 0, time.Hour, 0},
		// It takes no time to find out that there is no pause.
		{0, math.MaxInt32, time.Hour, 0},
	} {
		began := time.Now()
		if got := Backoff(tt.base, tt.n, tt.limit); got != tt.want || time.Since(began) > 5*time.Second {
			t.Errorf("Backoff(%v, %d, %v) = %v after %v, want %v at once", tt.base, tt.n, tt.limit, got, time.Since(began), tt.want)
		}
	}
}
