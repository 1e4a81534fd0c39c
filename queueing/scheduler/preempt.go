package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/preemption"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// question is which Workloads could make room for one.
func (s *Cycle) question(q *cache.ClusterQueue, w *cache.Workload, needs quota.Amounts, room preemption.Room) preemption.Question {
	out := preemption.Question{
		Queue: q.Node, FairSharing: s.cache.Config.FairSharing, Priority: w.Priority, Queued: w.Since, Needs: needs, Room: room,
		Running: s.running,
	}
	if q.Object.Spec.Preemption != nil {
		out.Policy = *q.Object.Spec.Preemption
	}
	return out
}

// decide says what has to leave for the Workload, and notes where nothing can but what
// others have claimed.
func (a *assigner) decide(needs quota.Amounts, room preemption.Room) preemption.Answer {
	answer := preemption.Decide(a.s.question(a.queue, a.w, needs, room))
	a.skipped = answer.Claimed
	return answer
}

// running are the Workloads in a ClusterQueue that could be asked to leave.
func (s *Cycle) running(n *quota.Node) []*preemption.Workload {
	q := s.cache.Queues[kueue.ClusterQueueReference(n.Name)]
	byUsage := s.cache.SharesByUsage(q)
	q.Tree.MissedCandidates = q.Tree.MissedCandidates || q.Unobserved > 0
	out := make([]*preemption.Workload, 0, len(q.WithQuota))
	for _, w := range q.WithQuota {
		c := &w.Candidate
		// What would be lost if it left is the time that its pods have run.
		c.Cost = int64(workload.PodsIn(w.Object.Status.Admission)) * int64(max(0, s.now.Sub(c.Reserved))/time.Second)
		c.Claimed, c.LocalQueueUsage = w.Claimed, 0
		if byUsage && w.Local != nil {
			c.LocalQueueUsage = w.Local.Usage
		}
		out = append(out, c)
	}
	return out
}

// couldPreempt says how preemption could make room for so much of one flavor and
// resource. Where it cannot, the answer has no targets; its Why says what keeps it from
// that, if the queue has a policy at all.
func (a *assigner) couldPreempt(fr quota.FlavorResource, want int64) (by mode, answer preemption.Answer) {
	switch {
	case !preempts(a.queue.Object):
		return 0, answer
	case !a.entitled(fr, want):
		answer.Why = "preemption cannot help: the ClusterQueue would have to borrow, and borrowWithinCohort does not let it preempt for that"
		return 0, answer
	}
	answer = a.decide(quota.Amounts{fr: want}, nil)
	if slices.ContainsFunc(answer.Targets, func(t preemption.Target) bool { return t.Queue == a.queue.Node }) {
		return preempt, answer
	}
	return reclaim, answer
}

// entitled reports whether the ClusterQueue may preempt at all for so much of a flavor: for its nominal quota, for that of a cohort
// around it, and for what it would borrow only as borrowWithinCohort says, or where shares decide.
func (a *assigner) entitled(fr quota.FlavorResource, want int64) bool {
	node, p := a.queue.Node, a.queue.Object.Spec.Preemption
	byShare := a.s.cache.Config.FairSharing != nil && preemption.PolicyOf(p.ReclaimWithinCohort) != kueue.PreemptionPolicyNever
	return want <= node.Quota(fr).Nominal || node.Within(fr, want) || byShare || preemption.MayBorrow(p.BorrowWithinCohort)
}

// preempts says that the policy of a ClusterQueue allows preemption.
func preempts(cq *kueue.ClusterQueue) bool {
	p := cq.Spec.Preemption
	return p != nil && (preemption.PolicyOf(p.WithinClusterQueue) != kueue.PreemptionPolicyNever ||
		preemption.PolicyOf(p.ReclaimWithinCohort) != kueue.PreemptionPolicyNever)
}

// victims are those that have to leave for a Workload to have its quota, and room for its pods
// where that is asked for; why says why none can.
func (a *assigner) victims(needs quota.Amounts, room preemption.Room) (out []victim, why string) {
	answer := a.decide(needs, room)
	for _, t := range answer.Targets {
		out = append(out, victim{a.s.cache.Workloads[t.UID], t.Reason})
	}
	return out, answer.Why
}

// preempted has a victim stop. Its quota goes with the same write unless pods may
// run on it.
func (s *Cycle) preempted(v victim, by *cache.Workload) *lifecycle.Verdict {
	uid, jobUID, preemptor := "UNKNOWN", "UNKNOWN", nameFor(v.Workload, by)
	if v.Object.Namespace == by.Object.Namespace {
		uid, jobUID = string(by.Object.UID), cmp.Or(by.Object.Labels[workload.JobUIDLabel], jobUID)
		preemptor += fmt.Sprintf(" of priority %d", by.Priority)
	}
	message := fmt.Sprintf("Preempted to accommodate a workload (UID: %s, JobUID: %s) due to %s; preemptor path: %s; preemptee path: %s; "+
		"the preemptor is %s", uid, jobUID, humanReason[v.reason], pathOf(by.Queue), pathOf(v.Queue), preemptor)
	out := s.rules.Preempt(v.Workload, message)
	apimeta.SetStatusCondition(&out.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadPreempted, Status: metav1.ConditionTrue, Reason: v.reason, Message: out.Message,
		ObservedGeneration: v.Object.Generation, LastTransitionTime: metav1.NewTime(s.now),
	})
	out.PreemptedFor, out.PreemptedBy = kueue.ClusterQueueReference(by.Queue.Object.Name), by.Object.UID
	out.Preemption = fmt.Sprintf("Preempted %s due to %s", nameFor(by, v.Workload), humanReason[v.reason])
	if v.Object.Namespace == by.Object.Namespace {
		out.Preemption = fmt.Sprintf("Preempted workload %s/%s (UID: %s) in ClusterQueue %s; preemptor effective priority: %d; preemptee "+
			"effective priority: %d; due to %s",
			v.Object.Namespace, v.Object.Name, v.Object.UID, v.Queue.Object.Name, by.Priority, v.Priority, humanReason[v.reason])
	}
	v.Busy = true
	return out
}

// pathOf names the cohorts above a ClusterQueue and itself, from the root down.
func pathOf(q *cache.ClusterQueue) string {
	out := ""
	for _, n := range q.Node.Path() {
		out = "/" + n.Name + out
	}
	return out
}

var humanReason = map[string]string{
	kueue.InClusterQueueReason:                "prioritization in the ClusterQueue",
	kueue.InCohortReclamationReason:           "reclamation within the cohort",
	kueue.InCohortFairSharingReason:           "Fair Sharing within the cohort",
	kueue.InCohortReclaimWhileBorrowingReason: "reclamation within the cohort while borrowing",
}
