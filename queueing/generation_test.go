package queueing

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestConditionsAreOfTheNewestGeneration: a change of the spec that leaves a condition as it is moves its observedGeneration.
func TestConditionsAreOfTheNewestGeneration(t *testing.T) {
	w := newWorld()
	w.set(requestConfig(t, "config", map[string]string{"class": "best-effort-atomic-scale-up.autoscaling.x-k8s.io"}))
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "check"}}
	check.Spec.ControllerName = "kueue.x-k8s.io/provisioning-request"
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "ProvisioningRequestConfig", Name: "config"}
	w.set(flavor("spot", nil))
	for range 2 {
		queue, local := clusterQueue(t, "team", nil, "spot cpu=2"), localQueueTo("main", "team", "")
		changed := check.DeepCopy()
		w.set(changed)
		w.set(queue)
		w.set(local)
		w.cycles(t)
		report := w.s.Report(w.now)
		for name, c := range map[string]struct {
			conditions []metav1.Condition
			want       int64
		}{
			"check":        {report.Checks["check"].Conditions, changed.Generation},
			"ClusterQueue": {report.ClusterQueues["team"].Conditions, queue.Generation},
			"LocalQueue":   {report.LocalQueues[types.NamespacedName{Namespace: "default", Name: "main"}].Conditions, local.Generation},
		} {
			if len(c.conditions) != 1 || c.conditions[0].ObservedGeneration != c.want {
				t.Errorf("%s of generation %d: %+v", name, c.want, c.conditions)
			}
		}
	}
}

// TestAQueueThatIsBeingDeletedReportsItsWorkloads until its finalizer goes.
func TestAQueueThatIsBeingDeletedReportsItsWorkloads(t *testing.T) {
	w := newWorld()
	w.set(flavor("spot", nil))
	w.set(localQueueTo("main", "team", ""))
	w.set(clusterQueue(t, "team", nil, "spot cpu=1"))
	runs := w.workload(t, "runs", map[string]string{"cpu": "1"})
	w.set(runs)
	w.cycles(t)
	leaving := clusterQueue(t, "team", nil, "spot cpu=1")
	leaving.DeletionTimestamp = &metav1.Time{Time: w.now}
	w.set(leaving)
	w.set(w.workload(t, "waits", map[string]string{"cpu": "1"}))
	w.cycles(t)
	got := w.s.Report(w.now).ClusterQueues["team"]
	if c := got.Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != kueue.ClusterQueueActiveReasonTerminating {
		t.Errorf("its condition is %+v", c)
	}
	if got.PendingWorkloads != 1 || got.ReservingWorkloads != 1 || got.AdmittedWorkloads != 1 {
		t.Errorf("%d wait, %d have quota and %d are admitted", got.PendingWorkloads, got.ReservingWorkloads, got.AdmittedWorkloads)
	}
}
