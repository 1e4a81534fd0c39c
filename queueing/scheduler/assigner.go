package scheduler

import (
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

const (
	// maxPlans bounds how often the planner, or the search for victims, is asked for
	// one Workload. It is more than the flavors of any usual queue, and keeps a
	// Workload of many podSets, each of which may be on any flavor, from holding up
	// a cycle.
	maxPlans = 64
	// maxTries bounds how often a flavor is looked at for one Workload, since the
	// combinations of many podSets and flavors are without number.
	maxTries = 4096
)

// Assign finds quota for a pending Workload: for all of its pods, else, where it
// allows that, for as many as can be had. Nil with the notes on every flavor if it
// can have none.
func (s *Cycle) Assign(q *cache.ClusterQueue, w *cache.Workload) (*Proposal, *assigner) {
	full := s.search(q, w, cache.PodCounts(w))
	if full.found != nil {
		return full.found, full
	}
	if part := s.partly(q, w); part != nil {
		return part.found, part
	}
	return nil, full
}

func (s *Cycle) search(q *cache.ClusterQueue, w *cache.Workload, counts []int32) *assigner {
	a := &assigner{s: s, queue: q, w: w, counts: counts, assumed: quota.Amounts{}, skip: s.flavorOffset(q, w), old: s.cache.ReplacedBy(q, w)}
	if a.split() {
		defer a.withoutReplaced()()
		a.Chosen = make([]option, len(a.slots))
		if !a.choose(0) {
			a.tellNever()
		}
	}
	a.Notes.sort(cache.FlavorsOf(q.Object))
	return a
}

// partly looks for the largest number of pods, not under minCount, of the podSet
// that has one; nil if none has. If not even the smallest will do, it is that
// which is answered.
func (s *Cycle) partly(q *cache.ClusterQueue, w *cache.Workload) *assigner {
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
	if best.found == nil {
		return best
	}
	for least++; least <= most; {
		counts[i] = least + (most-least)/2
		if a := s.search(q, w, slices.Clone(counts)); a.found != nil {
			best, least = a, counts[i]+1
		} else {
			most = counts[i] - 1
		}
	}
	return best
}

// tellNever has a slot that asks for more than there ever is on any flavor explained by itself: what others lack comes in time.
func (a *assigner) tellNever() {
	if len(a.slots) < 2 {
		return
	}
	for i := range a.slots {
		alone := &assigner{s: a.s, queue: a.queue, w: a.w, counts: a.counts, assumed: quota.Amounts{}, slots: a.slots[i : i+1],
			Chosen: make([]option, 1)}
		could := slices.ContainsFunc(alone.slots[0].flavors, func(f kueue.FlavorQuotas) bool { return alone.couldServe(0, f.Name) })
		if !could && alone.Notes.reason() == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota {
			a.Notes = alone.Notes
			return
		}
	}
}

// choose tries the options of slot i and of all after it, in their order.
func (a *assigner) choose(i int) bool {
	if i == len(a.slots) {
		return a.complete()
	}
	for _, o := range a.options(i) {
		use := a.use(i, o.Flavor)
		a.Chosen[i] = o
		a.assumed.Add(use)
		if a.choose(i + 1) {
			return true
		}
		a.assumed.Sub(use)
		if a.plans >= maxPlans || a.tries >= maxTries {
			return false
		}
	}
	return false
}

// complete looks at a whole combination: which Workloads would have to leave, and whether the
// machines can be had.
func (a *assigner) complete() bool {
	p := &Proposal{Usage: quota.Amounts{}, replaces: a.old}
	worst := fits
	for _, o := range a.Chosen {
		worst = min(worst, o.mode)
		p.distance = max(p.distance, o.distance)
	}
	p.Usage.Add(a.assumed)
	if worst < fits {
		a.plans++
		victims, why := a.victims(p.Usage, nil)
		if why != "" {
			a.note(why, kueue.WorkloadQuotaReservedReasonWaitingForQuota)
			return false
		}
		p.victims = victims
	}
	if k := borrowsReserved(a.queue, a.w, p); k != nil {
		a.note(fmt.Sprintf("the quota that it would borrow from ClusterQueue %s is kept for the first pending workload there; "+
			"a ClusterQueue with reclaimWithinCohort Any would lend it meanwhile", k.Queue.Object.Name),
			kueue.WorkloadQuotaReservedReasonWaitingForQuota)
		return false
	}
	if !a.place(p) || !a.obtainable(p) {
		return false
	}
	cache.Write(p.placed, p.admission)
	a.found = p
	return true
}
