package queueing

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestASliceWaitsForTheOneThatItReplaces while that one is being changed: else both
// would have quota.
func TestASliceWaitsForTheOneThatItReplaces(t *testing.T) {
	w := newWorld()
	w.set(flavor("spot", nil))
	w.set(localQueueTo("main", "queue", ""))
	w.set(clusterQueue(t, "queue", nil, "spot cpu=10"))
	old := w.workload(t, "old", map[string]string{"cpu": "1", "count": "4"})
	old.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	w.set(old)
	w.cycles(t)

	shrunk := w.find(t, "old").DeepCopy()
	shrunk.Spec.PodSets[0].Count = 3
	w.set(shrunk)
	verdicts := w.s.Cycle(w.now)
	if len(verdicts) != 1 || verdicts[0].Reason != "QuotaShrunk" {
		t.Fatalf("the old one does not shrink: %+v", verdicts)
	}
	larger := w.workload(t, "larger", map[string]string{"cpu": "1", "count": "6"})
	larger.Annotations = map[string]string{workload.ReplacementAnnotation: "old"}
	larger.OwnerReferences = shrunk.OwnerReferences
	w.set(larger)
	for _, v := range w.s.Cycle(w.now) {
		if v.Action != lifecycle.Wait {
			t.Errorf("while the old one is written, the larger one gets %s", v.Action)
		}
	}

	written := shrunk.DeepCopy()
	written.Status = *verdicts[0].Status
	written.ResourceVersion = "1000"
	w.s.Settle(written.UID, written)
	w.now = w.now.Add(time.Second)
	w.cycles(t)
	c := w.find(t, "old").Status.Conditions
	if !workload.IsAdmitted(w.find(t, "larger")) || !workload.IsFinished(w.find(t, "old")) ||
		c[len(c)-1].Reason != kueue.WorkloadSliceReplaced {
		t.Errorf("the larger one does not take its place: %+v", c)
	}
}
