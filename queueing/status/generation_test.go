package status_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/queues"
)

// TestConditionsAreOfTheNewestGeneration: a change of the spec that leaves a condition as it is moves its observedGeneration.
func TestConditionsAreOfTheNewestGeneration(t *testing.T) {
	w := queues.New()
	w.Set(queues.RequestConfig(t, "config", map[string]string{"class": "best-effort-atomic-scale-up.autoscaling.x-k8s.io"}))
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "check"}}
	check.Spec.ControllerName = "kueue.x-k8s.io/provisioning-request"
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "ProvisioningRequestConfig", Name: "config"}
	w.Set(queues.Flavor("spot", nil))
	for range 2 {
		queue, local := queues.ClusterQueue(t, "team", nil, "spot cpu=2"), queues.LocalQueue("main", "team", "")
		changed := check.DeepCopy()
		w.Set(changed)
		w.Set(queue)
		w.Set(local)
		w.Cycles(t)
		report := w.State.Report(w.Now)
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
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(queues.ClusterQueue(t, "team", nil, "spot cpu=1"))
	runs := w.Workload(t, "runs", map[string]string{"cpu": "1"})
	w.Set(runs)
	w.Cycles(t)
	leaving := queues.ClusterQueue(t, "team", nil, "spot cpu=1")
	leaving.DeletionTimestamp = &metav1.Time{Time: w.Now}
	w.Set(leaving)
	w.Set(w.Workload(t, "waits", map[string]string{"cpu": "1"}))
	w.Cycles(t)
	got := w.State.Report(w.Now).ClusterQueues["team"]
	if c := got.Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != kueue.ClusterQueueActiveReasonTerminating {
		t.Errorf("its condition is %+v", c)
	}
	if got.PendingWorkloads != 1 || got.ReservingWorkloads != 1 || got.AdmittedWorkloads != 1 {
		t.Errorf("%d wait, %d have quota and %d are admitted", got.PendingWorkloads, got.ReservingWorkloads, got.AdmittedWorkloads)
	}
}

// TestALocalQueueWithoutItsClusterQueue (13708) has no figures of before.
func TestALocalQueueWithoutItsClusterQueue(t *testing.T) {
	w := queues.WithOneQueue(t)
	w.Set(w.Workload(t, "runs", map[string]string{"cpu": "1"}))
	w.Set(w.Workload(t, "waits", map[string]string{"cpu": "1"}))
	w.Cycles(t)
	main := types.NamespacedName{Namespace: "default", Name: "main"}
	if st := w.State.Report(w.Now).LocalQueues[main]; st.AdmittedWorkloads != 1 || st.PendingWorkloads != 1 {
		t.Fatalf("at first it has the status %+v", st)
	}
	w.Delete(w.State.Queues["team"].Object)
	w.Cycles(t)
	w.State.MarkAllDirty()
	st := w.State.Report(w.Now).LocalQueues[main]
	if st.ReservingWorkloads != 0 || st.AdmittedWorkloads != 0 || len(st.FlavorsReservation)+len(st.FlavorsUsage) != 0 {
		t.Errorf("its status is %+v", st)
	}
}
