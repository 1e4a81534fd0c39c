package scheduler_test

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestASliceWaitsForTheOneThatItReplaces while that one is being changed: else both
// would have quota.
func TestASliceWaitsForTheOneThatItReplaces(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.LocalQueue("main", "queue", ""))
	w.Set(queues.ClusterQueue(t, "queue", nil, "spot cpu=10"))
	old := w.Workload(t, "old", map[string]string{"cpu": "1", "count": "4"})
	old.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	w.Set(old)
	w.Cycles(t)

	shrunk := w.Find(t, "old").DeepCopy()
	shrunk.Spec.PodSets[0].Count = 3
	w.Set(shrunk)
	verdicts := w.State.Cycle(w.Now)
	if len(verdicts) != 1 || verdicts[0].Reason != "QuotaShrunk" {
		t.Fatalf("the old one does not shrink: %+v", verdicts)
	}
	larger := w.Workload(t, "larger", map[string]string{"cpu": "1", "count": "6"})
	larger.Annotations = map[string]string{workload.ReplacementAnnotation: "old"}
	larger.OwnerReferences = shrunk.OwnerReferences
	w.Set(larger)
	for _, v := range w.State.Cycle(w.Now) {
		if v.Action != lifecycle.Wait {
			t.Errorf("while the old one is written, the larger one gets %s", v.Action)
		}
	}

	written := shrunk.DeepCopy()
	written.Status = *verdicts[0].Status
	written.ResourceVersion = "1000"
	w.State.Settle(written.UID, written)
	w.Now = w.Now.Add(time.Second)
	w.Cycles(t)
	c := w.Find(t, "old").Status.Conditions
	if !workload.IsAdmitted(w.Find(t, "larger")) || !workload.IsFinished(w.Find(t, "old")) ||
		c[len(c)-1].Reason != kueue.WorkloadSliceReplaced {
		t.Errorf("the larger one does not take its place: %+v", c)
	}
}
