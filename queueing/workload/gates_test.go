package workload_test

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestAnEvictionClosesTheGates: the next attempt needs a new admission.
func TestAnEvictionClosesTheGates(t *testing.T) {
	object := &kueue.Workload{}
	object.Status.PreemptionGates = []kueue.PreemptionGateState{{Name: "a", Position: kueue.PreemptionGatePositionOpen}}
	object.Status.Conditions = append(object.Status.Conditions, metav1.Condition{Type: kueue.WorkloadBlockedOnPreemptionGates,
		Status: metav1.ConditionTrue})
	status := workload.Evicted(object, kueue.WorkloadEvictedByPreemption, "", time.Unix(0, 0))
	if status.PreemptionGates[0].Position != kueue.PreemptionGatePositionClosed ||
		apimeta.IsStatusConditionTrue(status.Conditions, kueue.WorkloadBlockedOnPreemptionGates) {
		t.Errorf("after the eviction: %+v", status)
	}
	// It waits for nothing but quota.
	if !apimeta.IsStatusConditionTrue(status.Conditions, kueue.WorkloadRequeued) {
		t.Error("a preempted workload is not requeued at once")
	}
}
