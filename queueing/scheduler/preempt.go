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

// preemptor returns the input of package preemption for a Workload.
func (s *Cycle) preemptor(q *cache.ClusterQueue, w *cache.Workload, needs quota.Amounts,
	topology preemption.TopologySimulation) preemption.Preemptor {
	out := preemption.Preemptor{
		Queue: q.Node, FairSharing: s.cache.Config.FairSharing, Priority: w.Priority, Queued: w.Since, Needs: needs, Topology: topology,
	}
	if q.Object.Spec.Preemption != nil {
		out.Policy = *q.Object.Spec.Preemption
	}
	out.Running = func(n *quota.Node) []*preemption.Workload {
		policy := out.Policy.ReclaimWithinCohort
		if n == q.Node {
			policy = out.Policy.WithinClusterQueue
		}
		return s.running(n, policy, w.Priority)
	}
	return out
}

// decidePreemption chooses victims for the Workload, and records whether all candidates are already preempted for
// others.
func (a *assigner) decidePreemption(needs quota.Amounts, topology preemption.TopologySimulation) preemption.Result {
	result := preemption.Decide(a.s.preemptor(a.queue, a.w, needs, topology))
	a.candidatesTargeted = result.CandidatesTargeted
	return result
}

// running returns the Workloads with quota in a ClusterQueue; none if the policy protects all of them from the priority.
func (s *Cycle) running(n *quota.Node, policy kueue.PreemptionPolicy, priority int32) []*preemption.Workload {
	q := s.cache.Queues[kueue.ClusterQueueReference(n.Name)]
	if !s.hasCandidates(q, policy, priority) {
		return nil
	}
	byUsage := s.cache.SharesByUsage(q)
	out := make([]*preemption.Workload, 0, len(q.WithQuota))
	for _, w := range q.WithQuota {
		c := &w.Candidate
		// The cost of a preemption is the time that the pods have run.
		c.Cost = int64(workload.PodsIn(w.Object.Status.Admission)) * int64(max(0, s.now.Sub(c.Reserved))/time.Second)
		c.Targeted, c.LocalQueueUsage = w.Targeted, 0
		if byUsage && w.Local != nil {
			c.LocalQueueUsage = w.Local.Usage
		}
		out = append(out, c)
	}
	return out
}

// hasCandidates reports whether a policy may allow a Workload of the priority to preempt one of a ClusterQueue. What has assumed quota may
// become a candidate once its object shows it.
func (s *Cycle) hasCandidates(q *cache.ClusterQueue, policy kueue.PreemptionPolicy, priority int32) bool {
	q.Tree.MissedCandidates = q.Tree.MissedCandidates || q.Unobserved > 0
	return q.HasCandidates(policy, priority)
}

// couldPreempt returns the result of preemption for an amount of one flavor and resource. Without targets, its Message
// says what prevents preemption, if the queue has a preemption policy at all.
func (a *assigner) couldPreempt(fr quota.FlavorResource, want int64) (by assignmentMode, result preemption.Result) {
	switch {
	case !preempts(a.queue.Object):
		return 0, result
	case !a.s.mayPreemptFor(a.queue, fr, want):
		result.Why = "preemption cannot help: the ClusterQueue would have to borrow, and borrowWithinCohort does not let it preempt for that"
		return 0, result
	}
	result = a.decidePreemption(quota.Amounts{fr: want}, nil)
	if slices.ContainsFunc(result.Targets, func(t preemption.Target) bool { return t.Queue == a.queue.Node }) {
		return modePreempt, result
	}
	return modeReclaim, result
}

// mayPreemptFor reports whether the ClusterQueue may preempt for an amount of a flavor: within its nominal quota or
// that of a cohort around it, when it borrows only as borrowWithinCohort allows, or when shares decide.
func (s *Cycle) mayPreemptFor(q *cache.ClusterQueue, fr quota.FlavorResource, want int64) bool {
	node, p := q.Node, q.Object.Spec.Preemption
	byShare := s.cache.Config.FairSharing != nil && preemption.PolicyOf(p.ReclaimWithinCohort) != kueue.PreemptionPolicyNever
	return want <= node.Quota(fr).Nominal || node.WithinReclaimable(fr, want) || byShare || preemption.MayBorrow(p.BorrowWithinCohort)
}

// preempts reports whether the policy of a ClusterQueue allows preemption.
func preempts(cq *kueue.ClusterQueue) bool {
	p := cq.Spec.Preemption
	return p != nil && (preemption.PolicyOf(p.WithinClusterQueue) != kueue.PreemptionPolicyNever ||
		preemption.PolicyOf(p.ReclaimWithinCohort) != kueue.PreemptionPolicyNever)
}

// victims returns the Workloads to preempt so that the Workload has its quota and, if requested, its topology; why says
// why there are none.
func (a *assigner) victims(needs quota.Amounts, topology preemption.TopologySimulation) (out []victim, why string) {
	result := a.decidePreemption(needs, topology)
	for _, t := range result.Targets {
		out = append(out, victim{a.s.cache.Workloads[t.UID], t.Reason})
	}
	return out, result.Why
}

// preempted returns the verdict that evicts a victim. Its quota is released in the same write, unless pods may still
// use it.
func (s *Cycle) preempted(v victim, by *cache.Workload) *lifecycle.Verdict {
	uid, jobUID, preemptor := "UNKNOWN", "UNKNOWN", nameFor(v.Workload, by)
	if v.Object.Namespace == by.Object.Namespace {
		uid, jobUID = string(by.Object.UID), cmp.Or(by.Object.Labels[workload.JobUIDLabel], jobUID)
		preemptor += fmt.Sprintf(" of priority %d", by.Priority)
	}
	message := fmt.Sprintf("Preempted to accommodate a workload (UID: %s, JobUID: %s) due to %s; preemptor path: %s; preemptee path: %s; "+
		"the preemptor is %s", uid, jobUID, preemptionReasons[v.reason], pathOf(by.Queue), pathOf(v.Queue), preemptor)
	out := s.rules.Preempt(v.Workload, message)
	apimeta.SetStatusCondition(&out.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadPreempted, Status: metav1.ConditionTrue, Reason: v.reason, Message: out.Message,
		ObservedGeneration: v.Object.Generation, LastTransitionTime: metav1.NewTime(s.now),
	})
	out.PreemptedFor, out.PreemptedBy = kueue.ClusterQueueReference(by.Queue.Object.Name), by.Object.UID
	out.Preemption = fmt.Sprintf("Preempted %s due to %s", nameFor(by, v.Workload), preemptionReasons[v.reason])
	if v.Object.Namespace == by.Object.Namespace {
		out.Preemption = fmt.Sprintf("Preempted workload %s/%s (UID: %s) in ClusterQueue %s; preemptor effective priority: %d; preemptee "+
			"effective priority: %d; due to %s",
			v.Object.Namespace, v.Object.Name, v.Object.UID, v.Queue.Object.Name, by.Priority, v.Priority, preemptionReasons[v.reason])
	}
	v.Busy = true
	return out
}

// pathOf returns the names of the cohorts above a ClusterQueue and its own, from the root down.
func pathOf(q *cache.ClusterQueue) string {
	out := ""
	for _, n := range q.Node.Path() {
		out = "/" + n.Name + out
	}
	return out
}

var preemptionReasons = map[string]string{
	kueue.InClusterQueueReason:                "prioritization in the ClusterQueue",
	kueue.InCohortReclamationReason:           "reclamation within the cohort",
	kueue.InCohortFairSharingReason:           "Fair Sharing within the cohort",
	kueue.InCohortReclaimWhileBorrowingReason: "reclamation within the cohort while borrowing",
}
