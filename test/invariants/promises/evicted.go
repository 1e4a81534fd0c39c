package promises

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// evictedReasons are those that Evicted=True may have, beside Deactivated with its
// causes.
var evictedReasons = map[string]bool{
	kueue.WorkloadEvictedByPreemption:          true,
	kueue.WorkloadEvictedByFlavorMigration:     true,
	kueue.WorkloadEvictedByPodsReadyTimeout:    true,
	kueue.WorkloadEvictedByAdmissionCheck:      true,
	kueue.WorkloadEvictedByClusterQueueStopped: true,
	kueue.WorkloadEvictedByLocalQueueStopped:   true,
	kueue.WorkloadEvictedDueToNodeFailures:     true,
	kueue.WorkloadEvictedOnManagerCluster:      true,
	// Muster's own.
	queueing.ReasonAdmissionEdited: true,
	queueing.ReasonSuspendedByHand: true,
}

// preemptedReasons are those that Preempted=True may have.
var preemptedReasons = map[string]bool{
	kueue.InClusterQueueReason:                true,
	kueue.InCohortReclamationReason:           true,
	kueue.InCohortFairSharingReason:           true,
	kueue.InCohortReclaimWhileBorrowingReason: true,
}

// judgeEvicted: whatever is stopped is told why in the same write (P7), and what
// makes room for another one, for which.
func (c *Checker) judgeEvicted(e Event, w *workload, o *kueue.Workload) {
	if e.Listed {
		c.unjudged(Evictions)
		return
	}
	c.judged(Evictions)
	evicted := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadEvicted)
	switch {
	case !evictedReasons[evicted.Reason] && !strings.HasPrefix(evicted.Reason, kueue.WorkloadDeactivated):
		c.suspect("evicted|"+string(w.uid), e, Explained, w.String(), "was evicted for the reason %q, which nobody knows", evicted.Reason)
	case evicted.Message == "":
		c.suspect("evicted|"+string(w.uid), e, Explained, w.String(), "was evicted (%s) without a word why", evicted.Reason)
	case evicted.Reason == kueue.WorkloadEvictedByPreemption:
		c.judged(Preemptions)
		p := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadPreempted)
		if p == nil || p.Status != metav1.ConditionTrue || !preemptedReasons[p.Reason] || p.Message == "" {
			c.suspect("evicted|"+string(w.uid), e, Explained, w.String(), "was preempted without a condition Preempted that has a known reason and a message")
		}
	}
}
