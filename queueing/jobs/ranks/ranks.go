// Package ranks assigns each pod of an admitted podSet to a topology domain.
//
// Ranks are assigned to domains in the order of the assignment, so that pods with close ranks run close to each other. The rank of a pod
// is its index, from a label. If pods are in groups with their own numbering, the indexes of earlier groups are added. If ranks are not
// available, or pods run in other domains than those of their ranks, domains are filled in order as pods are created. A domain never gets
// more pods than assigned.
//
// If the labels of a new pod determine its rank, an admission policy sends it to its domain at creation, by the Plan in its template. All
// other pods are created with a scheduling gate, and each is sent to its domain by a write.
package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/placement"
)

// PodSet is the domains that were assigned to a podSet.
type PodSet struct {
	Name    kueue.PodSetReference
	levels  []string
	domains []placement.Domain
	// lost are the nodes that are to be replaced in the assignment.
	lost sets.Set[string]
	// count is how many pods were admitted.
	count int
	// index are the labels that number the pods; nil where they are not numbered.
	index *kueue.PodSetTopologyRequest
	// first is the index of the first pod: a leader has those before.
	first int
}

// PlanAnnotation of the template of a podSet has its Plan. The admission policy muster-born-in-place goes by it, and takes it off.
const PlanAnnotation = "muster.dev/places"

// mostPlan is how many bytes a Plan may have: it is in each version of the job.
const mostPlan = 32 << 10

// Start names the places that the Workload had when it started: it is quota that was reserved at a time.
func Start(w *kueue.Workload) string {
	at := int64(0)
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		at = c.LastTransitionTime.Unix()
	}
	return fmt.Sprintf("%s.%d", w.UID, at)
}

// Target sends a pod to a domain.
type Target struct {
	Pod *corev1.Pod
	// Selector are the values of the levels.
	Selector map[string]string
}

// Of returns the podSets of an admitted Workload in their order; nil for those without an
// assignment.
func Of(w *kueue.Workload) ([]*PodSet, error) {
	if w.Status.Admission == nil {
		return nil, nil
	}
	lost := sets.New[string]()
	for _, n := range w.Status.UnhealthyNodes {
		lost.Insert(n.Name)
	}
	out := make([]*PodSet, len(w.Spec.PodSets))
	for i := range out {
		a := assignmentOf(w, i)
		if a == nil || a.TopologyAssignment == nil {
			continue
		}
		domains, err := placement.Decode(a.TopologyAssignment)
		if err != nil {
			return nil, fmt.Errorf("reading the assignment of podSet %s of Workload %s/%s: %w", a.Name, w.Namespace, w.Name, err)
		}
		out[i] = &PodSet{Name: a.Name, levels: a.TopologyAssignment.Levels, domains: domains, lost: lost,
			count: countOf(w, i), first: firstOf(w, i)}
		if r := w.Spec.PodSets[i].TopologyRequest; r != nil && r.PodIndexLabel != nil {
			out[i].index = r
		}
	}
	return out, nil
}

// assignmentOf is that of a podSet; nil if it has none.
func assignmentOf(w *kueue.Workload, podSet int) *kueue.PodSetAssignment {
	all := w.Status.Admission.PodSetAssignments
	if i := slices.IndexFunc(all, func(a kueue.PodSetAssignment) bool { return a.Name == w.Spec.PodSets[podSet].Name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// countOf is how many pods of a podSet were admitted.
func countOf(w *kueue.Workload, podSet int) int {
	count := w.Spec.PodSets[podSet].Count
	if a := assignmentOf(w, podSet); a != nil {
		count = ptr.Deref(a.Count, count)
	}
	return int(count)
}

// firstOf is the index of the first pod of a podSet. In a group, the smaller podSet is the leader,
// which has the first indexes of both.
func firstOf(w *kueue.Workload, podSet int) int {
	group := groupOf(&w.Spec.PodSets[podSet])
	for i := range w.Spec.PodSets {
		if i == podSet || group == "" || groupOf(&w.Spec.PodSets[i]) != group {
			continue
		}
		if own, other := countOf(w, podSet), countOf(w, i); other < own || other == own && i < podSet {
			return other
		}
	}
	return 0
}

func groupOf(s *kueue.PodSet) string {
	if s.TopologyRequest == nil {
		return ""
	}
	return ptr.Deref(s.TopologyRequest.PodSetGroupName, "")
}

// Plan is which domain the pods of each rank have, for policies/places.yaml of the chart, whose lines it has: with it no pod needs a
// write. It is empty where that does not follow from the labels that a pod is created with, or would be too long.
func (s *PodSet) Plan(start string) string {
	index, first, subGroup, perGroup := "", 0, "", 0
	switch {
	case len(s.lost) > 0:
		return ""
	case len(s.domains) == 1: // whatever their ranks are
	case s.index == nil:
		return ""
	case s.index.SubGroupIndexLabel == nil:
		index, first = *s.index.PodIndexLabel, s.first
	default:
		groups := int(ptr.Deref(s.index.SubGroupCount, 0))
		if groups == 0 {
			return ""
		}
		index, first, subGroup, perGroup = *s.index.PodIndexLabel, s.first, *s.index.SubGroupIndexLabel, s.count/groups
	}
	ends, places, end := make([]string, len(s.domains)), make([]string, len(s.domains)), 0
	for i, d := range s.domains {
		end += int(d.Count)
		ends[i], places[i] = strconv.Itoa(end), key(d.Values)
	}
	plan := strings.Join([]string{
		start, index, strconv.Itoa(first), subGroup, strconv.Itoa(perGroup), strings.Join(s.levels, ","), strings.Join(ends, ","), strings.Join(places, ","),
	}, "\n")
	if len(plan) > mostPlan {
		return ""
	}
	return plan
}

// Moved reports whether a pod is where the podSet has no place: places have changed since pods were sent there.
func (s *PodSet) Moved(open []*corev1.Pod) bool {
	return slices.ContainsFunc(open, func(pod *corev1.Pod) bool {
		return s.wasSent(pod) && !slices.ContainsFunc(s.domains, func(d placement.Domain) bool { return key(d.Values) == s.at(pod) })
	})
}

// wasSent reports whether a pod was sent to a domain. Pods that fill the nodes of a booking are not.
func (s *PodSet) wasSent(pod *corev1.Pod) bool {
	_, sent := pod.Spec.NodeSelector[s.levels[len(s.levels)-1]]
	return sent
}

// Domains is how many domains the podSet is in.
func (s *PodSet) Domains() int { return len(s.domains) }

// Place assigns waiting pods to domains. Pods without a result wait, since their domain is full or its node is to be replaced. open are
// the pods that were sent before; their node selectors have their domains. A terminating pod uses its place and has no rank.
func (s *PodSet) Place(waiting, open []*corev1.Pod) []Target {
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(pod *corev1.Pod) bool { return isOver(pod) || terminates(pod) })
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	open = slices.DeleteFunc(slices.Clone(open), isOver)

	free := map[string]int32{}
	for _, d := range s.domains {
		free[key(d.Values)] += d.Count
	}
	for _, pod := range open {
		free[s.at(pod)]--
	}
	var out []Target
	send := func(pod *corev1.Pod, to placement.Domain) bool {
		if free[key(to.Values)] <= 0 || s.isLost(to) {
			return false
		}
		free[key(to.Values)]--
		out = append(out, Target{Pod: pod, Selector: s.selector(to)})
		return true
	}
	if domains, ok := s.byRank(waiting, open); ok {
		for i, pod := range waiting {
			send(pod, domains[i])
		}
		return out
	}
	for _, d := range s.domains {
		for len(waiting) > 0 && send(waiting[0], d) {
			waiting = waiting[1:]
		}
	}
	return out
}

// Stranded are pods that were sent to a node that the assignment has no more, or to a domain that others fill, and are not
// bound: they never will be.
func (s *PodSet) Stranded(open []*corev1.Pod) (out []*corev1.Pod) {
	if s.levels[len(s.levels)-1] != corev1.LabelHostname {
		return nil
	}
	free := map[string]int32{}
	for _, d := range s.domains {
		free[key(d.Values)] += d.Count
	}
	open = slices.DeleteFunc(slices.Clone(open), func(pod *corev1.Pod) bool { return isOver(pod) || terminates(pod) || !s.wasSent(pod) })
	// Bound pods come first, since they keep their places.
	slices.SortFunc(open, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(b.Spec.NodeName, a.Spec.NodeName), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range open {
		if free[s.at(pod)]--; free[s.at(pod)] < 0 && pod.Spec.NodeName == "" {
			out = append(out, pod)
		}
	}
	return out
}

// byRank are the domains of pods by their ranks; not ok where those do not say.
func (s *PodSet) byRank(waiting, open []*corev1.Pod) (out []placement.Domain, ok bool) {
	if s.index == nil {
		return nil, false
	}
	var byRank []placement.Domain
	for _, d := range s.domains {
		byRank = append(byRank, slices.Repeat([]placement.Domain{d}, int(d.Count))...)
	}
	taken := sets.New[int]()
	domainOf := func(pod *corev1.Pod) (placement.Domain, bool) {
		rank, ok := s.rank(pod)
		if !ok || rank >= len(byRank) || taken.Has(rank) {
			return placement.Domain{}, false
		}
		taken.Insert(rank)
		return byRank[rank], true
	}
	for _, pod := range open {
		if terminates(pod) {
			continue
		}
		if d, ok := domainOf(pod); !ok || key(d.Values) != s.at(pod) {
			return nil, false
		}
	}
	for _, pod := range waiting {
		d, ok := domainOf(pod)
		if !ok {
			return nil, false
		}
		out = append(out, d)
	}
	return out, true
}

// rank is the rank of a pod; not ok where its labels do not say.
func (s *PodSet) rank(pod *corev1.Pod) (rank int, ok bool) {
	index, ok := number(pod.Labels, *s.index.PodIndexLabel)
	if !ok {
		return 0, false
	}
	offset := s.first
	if text, found := pod.Annotations[kueue.PodIndexOffsetAnnotation]; found {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, false
		}
		offset += n
	}
	rank = index - offset
	if s.index.SubGroupIndexLabel != nil {
		groups := int(ptr.Deref(s.index.SubGroupCount, 0))
		group, ok := number(pod.Labels, *s.index.SubGroupIndexLabel)
		if !ok || group >= groups || index >= s.count/groups {
			return 0, false
		}
		rank += group * (s.count / groups)
	}
	return rank, rank >= 0 && rank < s.count
}

// number is the value of a label that counts from 0.
func number(labels map[string]string, label string) (int, bool) {
	n, err := strconv.ParseUint(labels[label], 10, 31)
	return int(n), err == nil //nolint:gosec // it was parsed as 31 bits
}

// at is the domain of a pod that was sent there.
func (s *PodSet) at(pod *corev1.Pod) string {
	values := make([]string, len(s.levels))
	for i, level := range s.levels {
		values[i] = pod.Spec.NodeSelector[level]
	}
	return key(values)
}

// key identifies a domain by all levels, since domains below different parents may have the same name.
func key(values []string) string { return strings.Join(values, "/") } // no label has a slash in its value

func (s *PodSet) isLost(d placement.Domain) bool {
	lowest := len(s.levels) - 1
	return s.levels[lowest] == corev1.LabelHostname && s.lost.Has(d.Values[lowest])
}

func (s *PodSet) selector(d placement.Domain) map[string]string {
	out := make(map[string]string, len(s.levels))
	for i, level := range s.levels {
		out[level] = d.Values[i]
	}
	return out
}

func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func terminates(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }
