package queueing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// A job that grows while it runs gets a second Workload, a slice of the new size
// that replaces the first. It is judged as if the first had gone, on the same flavors.
// With its quota it takes over the pods: the first counts no more, and is Finished once
// the second is admitted. A job that shrinks keeps its Workload, and its quota shrinks
// with it.
//
//	first:  admitted ────────────────▶ counts no more ─────▶ Finished, WorkloadSliceReplaced
//	second: waits ──quota assumed──▶ reserved ──▶ admitted
const (
	// ReplacementAnnotation names the Workload that a slice replaces, with or
	// without its namespace.
	ReplacementAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
	// ElasticAnnotation, "true" on a Workload, says that its job may shrink and grow.
	ElasticAnnotation = "kueue.x-k8s.io/elastic-job"
)

// predecessor is the Workload whose place a slice takes; nil if there is none that
// could be taken. Only slices of one job replace each other.
func (s *Cache) predecessor(q *queue, w *Workload) *Workload {
	key := replacedKey(w.Object)
	if key.Name == "" {
		return nil
	}
	for _, old := range q.holding {
		if keyOf(old.Object) == key && !old.busy && IsAdmitted(old.Object) && !IsEvicted(old.Object) && sameJob(old.Object, w.Object) {
			return old
		}
	}
	return nil
}

// changing holds a slice back while a verdict on the Workload that it replaces is
// being carried out, or another slice takes its place. Judged without it, the slice
// would get quota beside that one's.
func (s *Cycle) changing(w *Workload, p *proposal) *hold {
	key := replacedKey(w.Object)
	if key.Name == "" || p.replaces != nil {
		return nil
	}
	changes := slices.ContainsFunc(slices.Collect(maps.Values(w.queue.holding)), func(old *Workload) bool {
		return keyOf(old.Object) == key && old.busy && sameJob(old.Object, w.Object)
	})
	if by := s.successors[key]; by != nil && by != w {
		old := s.workloads[by.succeeds]
		changes = changes || old != nil && HasQuota(old.Object) && sameJob(old.Object, w.Object)
	}
	if !changes {
		return nil
	}
	return &hold{reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation, until: s.now.Add(lookAgain), aside: true,
		message: fmt.Sprintf("Workload %s, which this one replaces, is just being changed", key.Name)}
}

// lookAgain is how long a slice waits for the one that it replaces. A write takes
// milliseconds.
const lookAgain = 100 * time.Millisecond

// replacedKey is that of the Workload in the same namespace that a slice replaces. It has
// no name for others.
func replacedKey(w *kueue.Workload) types.NamespacedName {
	name := w.Annotations[ReplacementAnnotation]
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		if namespace != w.Namespace {
			return types.NamespacedName{}
		}
		name = rest
	}
	if name == "" || name == w.Name {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: w.Namespace, Name: name}
}

func keyOf(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}

func sameJob(a, b *kueue.Workload) bool {
	x, y := metav1.GetControllerOf(a), metav1.GetControllerOf(b)
	return a.Namespace == b.Namespace && x != nil && y != nil && x.UID == y.UID && x.Kind == y.Kind && x.Name == y.Name
}

// vacate takes the usage of the slice that is to be replaced out of the tree, and
// returns what puts it back.
func (a *assigner) vacate() (restore func()) {
	old := a.old
	if old == nil {
		return func() {}
	}
	a.queue.node.Sub(old.Usage)
	// Nobody else may have it leave meanwhile.
	claimed := old.claimed
	old.claimed = true
	return func() {
		a.queue.node.Add(old.Usage)
		old.claimed = claimed
	}
}

// moves says that a flavor is another one than that on which the pods of the slice
// to be replaced run; "" if it is not.
func (a *assigner) moves(i int, name kueue.ResourceFlavorReference) string {
	if a.old == nil {
		return ""
	}
	slot := a.slots[i]
	have := findAssignment(a.old.Object, a.w.Object.Spec.PodSets[slot.podSet].Name)
	for _, resource := range slot.need.Names() {
		if flavor, ok := have.Flavors[resource]; ok && flavor != name {
			return fmt.Sprintf("flavor %s: the pods of Workload %s, which this one replaces, run on flavor %s", name, a.old.Object.Name, flavor)
		}
	}
	return ""
}

func findAssignment(w *kueue.Workload, podSet kueue.PodSetReference) *kueue.PodSetAssignment {
	for i := range w.Status.Admission.PodSetAssignments {
		if ps := &w.Status.Admission.PodSetAssignments[i]; ps.Name == podSet {
			return ps
		}
	}
	return &kueue.PodSetAssignment{}
}

// growth is what a proposal uses more than the slice that it replaces.
func (p *proposal) growth() quota.Amounts {
	if p.replaces == nil {
		return p.usage
	}
	out := maps.Clone(p.usage)
	for fr, v := range p.replaces.Usage {
		out[fr] = max(0, out[fr]-v)
	}
	return out
}

// succeed takes in whether a slice has quota, be it only assumed. As long as it has, the
// Workload that it replaces counts nowhere: its quota is part of the slice's, and it gets
// none.
func (s *Cache) succeed(w *Workload, has bool) {
	key := replacedKey(w.Object)
	if key.Name == "" {
		return
	}
	switch by := s.successors[key]; {
	case has && by == nil:
		s.successors[key] = w
	case !has && by == w:
		delete(s.successors, key)
	default:
		// The one that it replaces may end now.
		s.touch(w.succeeds)
		return
	}
	for uid, old := range s.workloads {
		if keyOf(old.Object) == key && sameJob(old.Object, w.Object) {
			w.succeeds = uid
			s.leave(old)
			s.enter(old)
			s.due[uid] = old
		}
	}
}

// successor is the slice that has quota in the place of a Workload; nil if there is
// none.
func (s *Cache) successor(w *Workload) *Workload {
	if by := s.successors[keyOf(w.Object)]; by != nil && sameJob(by.Object, w.Object) {
		return by
	}
	return nil
}

// supersede ends a Workload once the slice that has taken its place is
// admitted.
func (s Rules) supersede(w, by *Workload) *Verdict {
	if by.assumed != nil || !IsAdmitted(by.Object) {
		return nil
	}
	message := fmt.Sprintf("Replaced to accommodate a workload (UID: %s, JobUID: %s): Workload %s has its quota and its pods",
		by.Object.UID, metav1.GetControllerOf(by.Object).UID, by.Object.Name)
	return &Verdict{Workload: w, Action: Finish, Reason: kueue.WorkloadSliceReplaced, Message: message,
		Status: Finished(w.Object, kueue.WorkloadSliceReplaced, message, s.now)}
}

// shrink gives back the quota of pods that an elastic job does without by now.
func (s Rules) shrink(w *Workload) *Verdict {
	if !isElastic(w.Object) {
		return nil
	}
	e := edit(w.Object, s.now)
	var less []string
	for i := range e.status.Admission.PodSetAssignments {
		ps := &e.status.Admission.PodSetAssignments[i]
		want, have := findPodSet(w.Object, ps.Name).Count, countOf(ps)
		if want >= have {
			continue
		}
		usage := nodegroups.ResourcesFrom(ps.ResourceUsage)
		for name, v := range usage {
			usage[name] = v / int64(have) * int64(max(0, want))
		}
		ps.Count, ps.ResourceUsage = new(max(0, want)), usage.List()
		less = append(less, fmt.Sprintf("%s has %d pods instead of %d", ps.Name, want, have))
	}
	if len(less) == 0 {
		return nil
	}
	return &Verdict{Workload: w, Action: Advance, Reason: "QuotaShrunk", Message: "The job shrinks: podSet " + strings.Join(less, ", podSet "), Status: e.status}
}

func isElastic(w *kueue.Workload) bool { return w.Annotations[ElasticAnnotation] == "true" }
