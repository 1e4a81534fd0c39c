package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/history"
)

// TestPhasesOfAJob follow each other without a gap, of one that is there and of one that has ended.
func TestPhasesOfAJob(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	workload := func(conditions ...metav1.Condition) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}}
		w.Status.Conditions, w.Status.Admission = conditions, &kueue.Admission{}
		return w
	}
	is := func(condition string, minutes int) metav1.Condition {
		return metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded,
			LastTransitionTime: metav1.NewTime(at(minutes))}
	}
	reserved, admitted := is(kueue.WorkloadQuotaReserved, 10), is(kueue.WorkloadAdmitted, 15)
	waiting, starting := JobPhase{Waiting, noon, at(10)}, JobPhase{Starting, at(10), at(15)}
	ended := &history.Job{Created: noon, Reserved: at(10), Started: at(15), Ended: at(60)}
	for name, tt := range map[string]struct{ got, want []JobPhase }{
		"it waits":  {PhasesOf(workload()), []JobPhase{{State: Waiting, From: noon}}},
		"it starts": {PhasesOf(workload(reserved)), []JobPhase{waiting, {State: Starting, From: at(10)}}},
		"it runs":   {PhasesOf(workload(reserved, admitted)), []JobPhase{waiting, starting, {State: Running, From: at(15)}}},
		"it is evicted": {PhasesOf(workload(reserved, admitted, is(kueue.WorkloadEvicted, 30))),
			[]JobPhase{waiting, starting, {Running, at(15), at(30)}, {State: Stopping, From: at(30)}}},
		"it has ended":     {PhasesOf(workload(reserved, admitted, is(kueue.WorkloadFinished, 60))), []JobPhase{waiting, starting, {Running, at(15), at(60)}}},
		"it is recorded":   {PhasesOfEnded(ended), []JobPhase{waiting, starting, {Running, at(15), at(60)}}},
		"it never started": {PhasesOfEnded(&history.Job{Created: noon, Ended: at(60)}), []JobPhase{{Waiting, noon, at(60)}}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
