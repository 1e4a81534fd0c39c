package promises

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// preemptedReasons are those that Preempted=True may have.
var preemptedReasons = map[string]bool{
	kueue.InClusterQueueReason:                true,
	kueue.InCohortReclamationReason:           true,
	kueue.InCohortFairSharingReason:           true,
	kueue.InCohortReclaimWhileBorrowingReason: true,
}

// judgeEvicted: whatever is stopped is told why in the same write (P7), and what
// makes room for another one, for which. Others may stop it, too, for reasons of
// their own.
func (c *Checker) judgeEvicted(e Event, w *workload, o *kueue.Workload) {
	if e.Listed {
		c.unjudged(Evictions)
		return
	}
	c.judged(Evictions)
	evicted := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadEvicted)
	switch {
	case evicted.Message == "":
		c.suspect("evicted|"+string(w.uid), e, Explained, w.String(), "was evicted (%s) without a word why", evicted.Reason)
	case evicted.Reason == kueue.WorkloadEvictedByPreemption:
		c.judged(Preemptions)
		p := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadPreempted)
		if p == nil || p.Status != metav1.ConditionTrue || !preemptedReasons[p.Reason] || p.Message == "" {
			c.suspect("evicted|"+string(w.uid), e, Explained, w.String(),
				"was preempted without a condition Preempted that has a known reason and a message")
		}
	}
}
