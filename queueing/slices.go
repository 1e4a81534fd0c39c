package queueing

import (
	"fmt"
	"maps"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// A job that grows while it runs gets a second Workload, a slice of the new size
// that replaces the first. It is judged as if that had gone, on the same flavors,
// and takes over its quota and its pods in one step. A job that shrinks keeps its
// Workload, and its quota shrinks with it.
const (
	// ReplacementAnnotation names the Workload that a slice replaces, with or
	// without its namespace.
	ReplacementAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
	// ElasticAnnotation, "true" on a Workload, says that its job may shrink and grow.
	ElasticAnnotation = "kueue.x-k8s.io/elastic-job"
)

// predecessor is the Workload whose place a slice takes; nil if there is none that
// could be taken. Only slices of one job replace each other.
func (s *State) predecessor(q *queue, w *Workload) *Workload {
	name := replacementFor(w.Object)
	if name == "" {
		return nil
	}
	for _, old := range q.holding {
		if old.Object.Name == name && !old.busy && IsAdmitted(old.Object) && !IsEvicted(old.Object) && sameJob(old.Object, w.Object) {
			return old
		}
	}
	return nil
}

// changing holds a slice back while a verdict on the Workload that it replaces is
// being carried out. It would be judged as if it replaced nobody, and get its quota
// beside that one's.
func (s *State) changing(w *Workload, p *proposal) *hold {
	name := replacementFor(w.Object)
	if name == "" || p.replaces != nil {
		return nil
	}
	for _, old := range w.queue.holding {
		if old.Object.Name == name && old.busy && sameJob(old.Object, w.Object) {
			return &hold{reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation, until: s.now.Add(lookAgain), aside: true,
				message: fmt.Sprintf("Workload %s, which this one replaces, is just being changed", name)}
		}
	}
	return nil
}

// lookAgain is how long a slice waits for the one that it replaces. A write takes
// milliseconds.
const lookAgain = 100 * time.Millisecond

// replacementFor is the name of the Workload in the same namespace that a slice
// replaces; empty for others.
func replacementFor(w *kueue.Workload) string {
	key := w.Annotations[ReplacementAnnotation]
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		if namespace != w.Namespace {
			return ""
		}
		return name
	}
	return key
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
			return fmt.Sprintf("the pods of Workload %s, which this one replaces, run on flavor %s", a.old.Object.Name, flavor)
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

// replace ends the Workload whose place another one takes.
func (s *State) replace(old, by *Workload) *Replacement {
	if old == nil {
		return nil
	}
	old.busy = true
	return &Replacement{Workload: old, Status: Finished(old.Object, kueue.WorkloadSliceReplaced, replacedBy(by.Object), s.now)}
}

func replacedBy(w *kueue.Workload) string {
	return fmt.Sprintf("Replaced by Workload %s/%s (UID: %s)", w.Namespace, w.Name, w.UID)
}

// left is the Workload that was finished so that a slice can take its place, where
// the second write was never made: its pods run without quota.
func (s *State) left(w *Workload) *Workload {
	name := replacementFor(w.Object)
	if name == "" || apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadEvicted) != nil {
		return nil
	}
	for _, old := range s.workloads {
		c := apimeta.FindStatusCondition(old.Object.Status.Conditions, kueue.WorkloadFinished)
		if old.Object.Name == name && sameJob(old.Object, w.Object) && old.Object.Status.Admission != nil &&
			c != nil && c.Reason == kueue.WorkloadSliceReplaced && c.Message == replacedBy(w.Object) {
			return old
		}
	}
	return nil
}

// shrink gives back the quota of pods that an elastic job does without by now.
func (s *State) shrink(w *Workload) *Verdict {
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
