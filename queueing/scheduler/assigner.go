package scheduler

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning"
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

// slot is one decision: on which flavor of a resource group one podSet gets
// what it asks for of the group's resources.
type slot struct {
	podSet  int
	flavors []kueue.FlavorQuotas
	need    nodegroups.Resources
}

// Proposal is how a Workload could have its quota.
type Proposal struct {
	admission *kueue.Admission
	Usage     quota.Amounts
	// distance is from how far quota is borrowed; 0 is not at all.
	distance int
	// victims have to leave first; none where everything is free.
	victims []victim
	// replaces is the Workload slice whose place it takes; nil if there is none.
	replaces *cache.Workload
	// plan is the planner's answer; nil where it was not asked.
	plan *provisioning.Verdict
	// awaits: it fits on machines that others are about to give back.
	awaits bool
	// ahead: its machines are asked for before its victims leave.
	ahead bool
}

// assigner looks for flavors for one Workload: the first combination, in the
// order of preference, that suits the pods, has the quota, by preemption if need
// be, and, where a capacity check holds, the machines.
type assigner struct {
	s     *Cycle
	queue *cache.ClusterQueue
	w     *cache.Workload
	// counts is how many pods of each podSet there are to be.
	counts []int32
	// old is the slice that the Workload replaces; nil if there is none.
	old *cache.Workload
	// running: its pods run already, so what nobody gave quota for is not counted.
	running bool

	slots  []slot
	Chosen []option
	// assumed is what the slots before the current one take.
	assumed quota.Amounts
	// skip is how many flavors to pass over at first, see blindly.
	skip         int
	plans, tries int
	// skipped: the last search for victims found only what others have claimed.
	skipped bool
	// found is the combination that was taken.
	found *Proposal
	until time.Time
	Notes notes
}

const (
	preempt mode = iota
	// reclaim takes back only what others have borrowed.
	reclaim
	fits
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
		a.choose(0)
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

// split cuts the Workload's requests into slots. It fails if a resource is
// covered by no group, since nobody gave quota for it.
func (a *assigner) split() bool {
	for i := range a.counts {
		rest := a.w.Pod[i].Clone()
		// Quota on pods counts pods, whatever they ask for.
		if covers(a.queue.Object, corev1.ResourcePods) {
			rest[corev1.ResourcePods] = 1
		}
		for _, group := range a.queue.Object.Spec.ResourceGroups {
			need := nodegroups.Resources{}
			for _, name := range group.CoveredResources {
				if v := rest[name]; v > 0 {
					need[name] = nodegroups.Times(v, int64(a.counts[i]))
				}
				if need[name] == quota.Endless {
					a.refuse(i, "", kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
						"insufficient quota for %s: %s is more than can be counted; ask for less", name, nodegroups.Quantity(name, quota.Endless))
					return false
				}
				delete(rest, name)
			}
			if len(need) > 0 {
				a.slots = append(a.slots, slot{podSet: i, flavors: group.Flavors, need: need})
			}
		}
		for _, name := range rest.Names() {
			if rest[name] > 0 && !a.running && !a.s.cache.IgnoresUndeclared() {
				a.refuse(i, "", kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
					"resource %s unavailable in ClusterQueue %s: an admin can add it to a resource group", name, a.queue.Object.Name)
				return false
			}
		}
	}
	return true
}

func covers(cq *kueue.ClusterQueue, name corev1.ResourceName) bool {
	return slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
		return slices.Contains(g.CoveredResources, name)
	})
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

func (a *assigner) use(i int, flavor kueue.ResourceFlavorReference) quota.Amounts {
	out := make(quota.Amounts, len(a.slots[i].need))
	for name, v := range a.slots[i].need {
		out[quota.FlavorResource{Flavor: flavor, Resource: name}] = v
	}
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// refuse notes why a podSet cannot have a flavor.
func (a *assigner) refuse(podSet int, flavor kueue.ResourceFlavorReference, code, format string, args ...any) {
	a.Notes.add(note{flavor, a.w.Object.Spec.PodSets[podSet].Name, code, fmt.Sprintf(format, args...)})
}

// complete looks at a whole combination: who would have to leave, and whether the
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
		victims, why := a.victims(p.Usage)
		if why != "" {
			a.note(why, kueue.WorkloadQuotaReservedReasonWaitingForQuota)
			return false
		}
		p.victims = victims
	}
	if k := borrowsReserved(a.queue, p); k != nil {
		a.note(fmt.Sprintf("the quota that it would borrow from ClusterQueue %s is kept for workload %s/%s, which waits for it; "+
			"a queue whose reclaimWithinCohort is Any lends it meanwhile", k.Queue.Object.Name, k.Head.Object.Namespace, k.Head.Object.Name),
			kueue.WorkloadQuotaReservedReasonWaitingForQuota)
		return false
	}
	if !a.obtainable(p) {
		return false
	}
	p.admission = a.admission()
	a.found = p
	return true
}

// admission writes the chosen flavors down as Kueue's API does.
func (a *assigner) admission() *kueue.Admission {
	out := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(a.queue.Object.Name)}
	for i := range a.counts {
		assignment := kueue.PodSetAssignment{
			Name:    a.w.Object.Spec.PodSets[i].Name,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{},
			Count:   new(a.counts[i]),
		}
		usage := nodegroups.Resources{}
		for j, s := range a.slots {
			if s.podSet != i {
				continue
			}
			for name, v := range s.need {
				assignment.Flavors[name] = a.Chosen[j].Flavor
				usage[name] = v
			}
		}
		assignment.ResourceUsage = usage.List()
		out.PodSetAssignments = append(out.PodSetAssignments, assignment)
	}
	return out
}
