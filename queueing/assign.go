package queueing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning"
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

// proposal is how a Workload could have its quota.
type proposal struct {
	admission *kueue.Admission
	usage     quota.Amounts
	// distance is from how far quota is borrowed; 0 is not at all.
	distance int
	// victims have to leave first; none where everything is free.
	victims []victim
	// replaces is the Workload slice whose place it takes; nil if there is none.
	replaces *Workload
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
	queue *queue
	w     *Workload
	// counts is how many pods of each podSet there are to be.
	counts []int32
	// old is the slice that the Workload replaces; nil if there is none.
	old *Workload
	// running: its pods run already, so what nobody gave quota for is not counted.
	running bool

	slots  []slot
	chosen []option
	// assumed is what the slots before the current one take.
	assumed quota.Amounts
	// skip is how many flavors to pass over at first, see blindly.
	skip         int
	plans, tries int
	// skipped: the last search for victims found only what others have claimed.
	skipped bool
	// found is the combination that was taken.
	found *proposal
	until time.Time
	notes notes
}

// option is a flavor that a slot could have.
type option struct {
	flavor   kueue.ResourceFlavorReference
	mode     mode
	distance int
	// final: the search of flavors ends here, by the queue's fungibility.
	final bool
}

// mode is what it takes to have quota, the best last.
type mode int

const (
	preempt mode = iota
	// reclaim takes back only what others have borrowed.
	reclaim
	fits
)

// assign finds quota for a pending Workload: for all of its pods, else, where it
// allows that, for as many as can be had. Nil with the notes on every flavor if it
// can have none.
func (s *Cycle) assign(q *queue, w *Workload) (*proposal, *assigner) {
	full := s.search(q, w, podCounts(w))
	if full.found != nil {
		return full.found, full
	}
	if part := s.partly(q, w); part != nil {
		return part.found, part
	}
	return nil, full
}

func (s *Cycle) search(q *queue, w *Workload, counts []int32) *assigner {
	a := &assigner{s: s, queue: q, w: w, counts: counts, assumed: quota.Amounts{}, skip: s.blindly(q, w), old: s.predecessor(q, w)}
	if a.split() {
		defer a.vacate()()
		a.chosen = make([]option, len(a.slots))
		a.choose(0)
	}
	a.notes.sort(flavorsOf(q.object))
	return a
}

// partly looks for the largest number of pods, not under minCount, of the podSet
// that has one; nil if none has. If not even the smallest will do, it is that
// which is answered.
func (s *Cycle) partly(q *queue, w *Workload) *assigner {
	i := slices.IndexFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool { return ps.MinCount != nil })
	if i < 0 {
		return nil
	}
	counts := podCounts(w)
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

// podCounts is how many pods of each podSet are to run: all but those that will
// not run any more.
func podCounts(w *Workload) []int32 {
	out := make([]int32, len(w.Object.Spec.PodSets))
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		out[i] = max(0, ps.Count-reclaimable(w.Object, ps.Name))
	}
	return out
}

// split cuts the Workload's requests into slots. It fails if a resource is
// covered by no group, since nobody gave quota for it.
func (a *assigner) split() bool {
	for i := range a.counts {
		rest := a.w.Pod[i].Clone()
		// Quota on pods counts pods, whatever they ask for.
		if covers(a.queue.object, corev1.ResourcePods) {
			rest[corev1.ResourcePods] = 1
		}
		for _, group := range a.queue.object.Spec.ResourceGroups {
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
			if rest[name] > 0 && !a.running && !a.s.ignoresUndeclared() {
				a.refuse(i, "", kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
					"resource %s unavailable in ClusterQueue %s: an admin can add it to a resource group", name, a.queue.object.Name)
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
		use := a.use(i, o.flavor)
		a.chosen[i] = o
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

// options are the flavors that slot i could have, the preferred first: those at
// which the queue's fungibility says to stop looking, in the order of the spec;
// then the others, the best first.
func (a *assigner) options(i int) []option {
	s := a.slots[i]
	var out []option
	for k := range s.flavors {
		a.tries++
		name := s.flavors[(k+a.skip)%len(s.flavors)].Name
		if why := a.unsuitable(i, name); why != "" {
			a.refuse(s.podSet, name, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, "%s", why)
			continue
		}
		if o, ok := a.option(i, name); ok {
			out = append(out, o)
		}
	}
	overPreemption := !prefersPreemption(a.queue.object)
	slices.SortStableFunc(out, func(x, y option) int {
		if x.final != y.final {
			return cmp.Compare(btoi(y.final), btoi(x.final))
		}
		if x.final {
			return 0
		}
		byMode, byDistance := cmp.Compare(y.mode, x.mode), cmp.Compare(x.distance, y.distance)
		if overPreemption {
			return cmp.Or(byMode, byDistance)
		}
		return cmp.Or(byDistance, byMode)
	})
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
	a.notes.add(note{flavor, a.w.Object.Spec.PodSets[podSet].Name, code, fmt.Sprintf(format, args...)})
}

// unsuitable says why the nodes of a flavor are not for slot i, or "".
func (a *assigner) unsuitable(i int, name kueue.ResourceFlavorReference) string {
	s := a.slots[i]
	flavor := a.s.flavors[name]
	if why := mismatch(&a.w.Object.Spec.PodSets[s.podSet].Template.Spec, flavor); why != "" {
		return why
	}
	if why := a.moves(i, name); why != "" {
		return why
	}
	for j := range i {
		if a.slots[j].podSet != s.podSet {
			continue
		}
		if label, found := contradiction(a.s.flavors[a.chosen[j].flavor], flavor); found {
			return fmt.Sprintf("flavor %s and flavor %s want different values of the node label %s", name, a.chosen[j].flavor, label)
		}
	}
	return ""
}

// option says what it takes to have the quota of slot i on a flavor; ok is false
// with a note if nothing helps.
func (a *assigner) option(i int, name kueue.ResourceFlavorReference) (out option, ok bool) {
	s := a.slots[i]
	node := a.queue.node
	out = option{flavor: name, mode: fits}
	names := s.need.Names()
	wanted := func(resourceName corev1.ResourceName) (quota.FlavorResource, int64, func(int64) string) {
		fr := quota.FlavorResource{Flavor: name, Resource: resourceName}
		return fr, nodegroups.Plus(s.need[resourceName], a.assumed[fr]), func(v int64) string { return nodegroups.Quantity(resourceName, v) }
	}
	// What can never be comes first: whoever waits for the rest would wait for ever.
	for _, resourceName := range names {
		fr, want, show := wanted(resourceName)
		if most := node.Potential(fr); want > most {
			a.refuse(s.podSet, name, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
				"insufficient quota for %s in flavor %s, previously considered podsets requests (%s) + current podset request (%s) > maximum capacity (%s)%s: "+
					"ask for less or have the quota raised",
				resourceName, name, show(a.assumed[fr]), show(s.need[resourceName]), show(most), borrowed(node, fr))
			return out, false
		}
	}
	for _, resourceName := range names {
		fr, want, show := wanted(resourceName)
		out.distance = max(out.distance, node.Distance(fr, want))
		free := max(0, node.Available(fr))
		if want <= free {
			continue
		}
		by, ok, why := a.couldPreempt(fr, want)
		if !ok {
			message := fmt.Sprintf("insufficient unused quota for %s in flavor %s, %s more needed: %s are free of %s%s, when a running job ends or the quota grows",
				resourceName, name, show(want-free), show(free), show(node.Potential(fr)), borrowed(node, fr))
			if why != "" {
				message += "; " + why
			}
			a.refuse(s.podSet, name, kueue.WorkloadQuotaReservedReasonWaitingForQuota, "%s", message)
			return out, false
		}
		out.mode = min(out.mode, by)
	}
	f := fungibility(a.queue.object)
	mayBorrow := out.distance == 0 || f.WhenCanBorrow != kueue.TryNextFlavor
	out.final = mayBorrow && (out.mode == fits || f.WhenCanPreempt == kueue.MayStopSearch)
	return out, true
}

// borrowed tells how much of the whole quota would be borrowed.
func borrowed(node *quota.Node, fr quota.FlavorResource) string {
	if node.Parent() == nil {
		return ""
	}
	if v := node.Borrowable(fr); v > 0 {
		return fmt.Sprintf(" (%s of it borrowed from cohort %s)", nodegroups.Quantity(fr.Resource, v), node.Parent().Name)
	}
	return ""
}

func fungibility(cq *kueue.ClusterQueue) kueue.FlavorFungibility {
	if cq.Spec.FlavorFungibility == nil {
		return kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.TryNextFlavor}
	}
	return *cq.Spec.FlavorFungibility
}

func prefersPreemption(cq *kueue.ClusterQueue) bool {
	f := cq.Spec.FlavorFungibility
	return f != nil && f.Preference != nil && *f.Preference == kueue.PreemptionOverBorrowing
}

// complete looks at a whole combination: who would have to leave, and whether the
// machines can be had.
func (a *assigner) complete() bool {
	p := &proposal{usage: quota.Amounts{}, replaces: a.old}
	worst := fits
	for _, o := range a.chosen {
		worst = min(worst, o.mode)
		p.distance = max(p.distance, o.distance)
	}
	p.usage.Add(a.assumed)
	if worst < fits {
		a.plans++
		victims, why := a.victims(p.usage)
		if why != "" {
			a.note(why, kueue.WorkloadQuotaReservedReasonWaitingForQuota)
			return false
		}
		p.victims = victims
	}
	if k := borrowsKept(a.queue, p); k != nil {
		a.note(fmt.Sprintf("the quota that it would borrow from ClusterQueue %s is kept for workload %s/%s, which waits for it; "+
			"a queue whose reclaimWithinCohort is Any lends it meanwhile", k.queue.object.Name, k.head.Object.Namespace, k.head.Object.Name),
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
	out := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(a.queue.object.Name)}
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
				assignment.Flavors[name] = a.chosen[j].flavor
				usage[name] = v
			}
		}
		assignment.ResourceUsage = usage.List()
		out.PodSetAssignments = append(out.PodSetAssignments, assignment)
	}
	return out
}
