package workload

import (
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestConditionsBeginWithKueuesWords, by which its users and tools find them: those of pkg/controller/jobframework/reconciler.go and
// pkg/workload/admissionchecks.go.
func TestConditionsBeginWithKueuesWords(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	with := func(conditions ...metav1.Condition) *kueue.Workload {
		return &kueue.Workload{Status: kueue.WorkloadStatus{Conditions: conditions}}
	}
	is := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	ready := is(kueue.WorkloadPodsReady, "True", kueue.WorkloadStarted, "")
	evicted := is(kueue.WorkloadEvicted, "True", kueue.WorkloadEvictedByPreemption, "Preempted to accommodate a workload")
	awaits := Edit(with(), now)
	awaits.AwaitsTopology("No place on the nodes that are booked")
	for what, c := range map[string]struct {
		status            *kueue.WorkloadStatus
		kind, reason, min string
	}{
		"all pods are ready": {Readiness(with(), true, now), kueue.WorkloadPodsReady, kueue.WorkloadStarted,
			"All pods reached readiness and the workload is running"},
		"all are ready again": {Readiness(with(is(kueue.WorkloadPodsReady, "False", kueue.WorkloadWaitForRecovery, "")), true, now),
			kueue.WorkloadPodsReady, kueue.WorkloadRecovered, "All pods reached readiness and the workload is running"},
		"one is lost": {Readiness(with(ready), false, now), kueue.WorkloadPodsReady, kueue.WorkloadWaitForRecovery,
			"At least one pod has failed, waiting for recovery"},
		"it has stopped": {Released(with(ready, evicted), now), kueue.WorkloadPodsReady, kueue.WorkloadWaitForStart,
			"Not all pods are ready or succeeded"},
		"its quota goes back": {Released(with(evicted), now), kueue.WorkloadQuotaReserved, kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			"Preempted to accommodate a workload"},
		"it has no place": {awaits.Status, kueue.WorkloadAdmitted, kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests,
			"There are pending delayed topology requests"},
	} {
		got := apimeta.FindStatusCondition(c.status.Conditions, c.kind)
		if got == nil || got.Reason != c.reason || !strings.HasPrefix(got.Message, c.min) {
			t.Errorf("%s: %+v, want %s with %q", what, got, c.reason, c.min)
		}
	}
}
