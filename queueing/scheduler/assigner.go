package scheduler

import (
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

const (
	// maxPlans bounds the calls of the planner and the searches for victims for one Workload. It exceeds the number of
	// flavors of any usual queue. It keeps a Workload with many podSets, each with many candidate flavors, from
	// delaying the cycle.
	maxPlans = 64
	// maxTries bounds how many flavors are tried for one Workload, because the combinations of podSets and flavors
	// grow exponentially.
	maxTries = 4096
)

// Assign finds an assignment for a pending Workload: for all of its pods, or, if it allows fewer, for as many as
// possible. If there is none, it returns nil and the notes on every flavor.
func (s *Cycle) Assign(q *cache.ClusterQueue, w *cache.Workload) (*Assignment, *assigner) {
	full := s.search(q, w, cache.PodCounts(w))
	if full.assignment != nil {
		return full.assignment, full
	}
	if part := s.searchReduced(q, w); part != nil {
		return part.assignment, part
	}
	return nil, full
}

func (s *Cycle) search(q *cache.ClusterQueue, w *cache.Workload, counts []int32) *assigner {
	a := &assigner{
		s: s, queue: q, w: w, counts: counts, assumed: quota.Amounts{}, flavorOffset: s.flavorOffset(q, w), replaced: s.cache.ReplacedBy(q, w),
	}
	if a.splitRequests() {
		defer a.simulateReplacedRemoval()()
		a.Chosen = make([]flavorCandidate, len(a.groupRequests))
		if !a.chooseFlavors(0) {
			a.reportUnsatisfiable()
		}
	}
	a.Notes.sort(cache.FlavorsOf(q.Object))
	s.effort += effortOfEvaluation + EffortOfPlan*a.plans
	return a
}

// searchReduced finds the largest number of pods, not below minCount, of the podSet that has one; nil if none has. If
// even minCount fails, it returns the result of that.
func (s *Cycle) searchReduced(q *cache.ClusterQueue, w *cache.Workload) *assigner {
	i := slices.IndexFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool { return ps.MinCount != nil })
	if i < 0 {
		return nil
	}
	counts := cache.PodCounts(w)
	least, most := *w.Object.Spec.PodSets[i].MinCount, counts[i]-1
	if least > most {
		return nil
	}
	counts[i] = least
	best := s.search(q, w, slices.Clone(counts))
	if best.assignment == nil {
		return best
	}
	for least++; least <= most; {
		counts[i] = least + (most-least)/2
		if a := s.search(q, w, slices.Clone(counts)); a.assignment != nil {
			best, least = a, counts[i]+1
		} else {
			most = counts[i] - 1
		}
	}
	return best
}

// reportUnsatisfiable explains the resource group whose request exceeds the maximum quota of every flavor. What the
// other groups lack may be released, so it matters less.
func (a *assigner) reportUnsatisfiable() {
	if len(a.groupRequests) < 2 {
		return
	}
	for i := range a.groupRequests {
		alone := &assigner{s: a.s, queue: a.queue, w: a.w, counts: a.counts, assumed: quota.Amounts{}, groupRequests: a.groupRequests[i : i+1],
			Chosen: make([]flavorCandidate, 1)}
		could := slices.ContainsFunc(alone.groupRequests[0].flavors, func(f kueue.FlavorQuotas) bool { return alone.fitsMaximum(0, f.Name) })
		if !could && alone.Notes.reason() == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota {
			a.Notes = alone.Notes
			return
		}
	}
}

// chooseFlavors tries the candidate flavors of group request i and of all later ones, in order.
func (a *assigner) chooseFlavors(i int) bool {
	if i == len(a.groupRequests) {
		return a.completeAssignment()
	}
	for _, o := range a.candidateFlavors(i) {
		use := a.usageOf(i, o.Flavor)
		a.Chosen[i] = o
		a.assumed.Add(use)
		if a.chooseFlavors(i + 1) {
			return true
		}
		a.assumed.Sub(use)
		if a.plans >= maxPlans || a.tries >= maxTries {
			return false
		}
	}
	return false
}

// completeAssignment checks a whole combination of flavors: which Workloads must be preempted, and whether the machines
// can be obtained.
func (a *assigner) completeAssignment() bool {
	p := &Assignment{Usage: quota.Amounts{}, replaces: a.replaced}
	worst := modeFit
	for _, o := range a.Chosen {
		worst = min(worst, o.mode)
		p.borrowingLevel = max(p.borrowingLevel, o.borrowingLevel)
	}
	p.Usage.Add(a.assumed)
	if worst < modeFit {
		a.plans++
		victims, why := a.victims(p.Usage, nil)
		if why != "" {
			a.noteCombination(why, kueue.WorkloadQuotaReservedReasonWaitingForQuota)
			return false
		}
		p.victims = victims
	}
	if k := borrowsReserved(a.queue, a.w, p); k != nil {
		a.noteCombination(fmt.Sprintf("the quota that it would borrow from ClusterQueue %s is kept for the first pending workload there; "+
			"a ClusterQueue with reclaimWithinCohort Any would lend it meanwhile", k.Queue.Object.Name),
			kueue.WorkloadQuotaReservedReasonWaitingForQuota)
		return false
	}
	if !a.placePods(p) || !a.obtainable(p) {
		return false
	}
	cache.SetTopologyAssignments(p.placed, p.admission)
	a.assignment = p
	return true
}
