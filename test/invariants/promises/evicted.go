package promises

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// preemptedReasons are the reasons that Preempted=True may have.
var preemptedReasons = map[string]bool{
	kueue.InClusterQueueReason:                true,
	kueue.InCohortReclamationReason:           true,
	kueue.InCohortFairSharingReason:           true,
	kueue.InCohortReclaimWhileBorrowingReason: true,
}

// judgeEvicted: a Workload that is stopped gets the reason in the same write (P7), and a preempted one the Workload that preempts it.
// Other controllers may evict it, too, for other reasons.
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
