package forecast

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// maxEvaluated bounds how many Workloads of a LocalQueue are evaluated at a time. A later one might in fact start
// before them, but rarely before all.
const maxEvaluated = 16

// alwaysEvaluated is how many of these are evaluated whatever waits before them. A Workload that is held back behind
// another one may wrongly be overtaken by one that is evaluated at the same time.
const alwaysEvaluated = 8

// pendingQueue are the pending Workloads of a LocalQueue. Evaluating all of them at every step would cost too much, so
// the State has only those that may be next.
type pendingQueue struct {
	groups map[groupKey]*workloadGroup
	// free are the groups whose first Workload may be evaluated.
	free groupHeap
	// evaluated are the Workloads in the State that wait.
	evaluated []evaluatedWorkload
}

// evaluatedWorkload is a Workload that is evaluated and waits.
type evaluatedWorkload struct {
	*cache.Workload
	group *workloadGroup
}

// workloadGroup are similar Workloads: each starts after those before it, so only one is evaluated at a time.
type workloadGroup struct {
	queue   *pendingQueue
	key     groupKey
	pending []*cache.Workload
	// blocked are groups whose first Workload waits at least as long as the evaluated one of this group.
	blocked []*workloadGroup
	// held: one of its Workloads is evaluated, or it is blocked by another group.
	held bool
}

// groupKey is equal for Workloads of a LocalQueue whose evaluation has the same result while they wait.
type groupKey struct {
	terms
	// needs is a hash of the numbers of pods and their requests.
	needs uint64
	limit int32
}

// terms are equal for Workloads that differ at most in the amount and the duration of their requests.
type terms struct {
	// places is a hash of everything else that decides where pods can run.
	places      uint64
	priority    int32
	annotations string
}

// isPlain reports whether a Workload only waits for its turn to be evaluated.
func isPlain(w *kueue.Workload) bool {
	return w.DeletionTimestamp.IsZero() && workload.IsActive(w) && w.Status.RequeueState == nil && w.Status.Admission == nil &&
		len(w.Status.AdmissionChecks) == 0 && len(w.Status.ReclaimablePods) == 0 && len(w.Spec.PreemptionGates) == 0 &&
		!slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool { return c.Type != kueue.WorkloadQuotaReserved })
}

func groupKeyOf(w *cache.Workload) groupKey {
	o := w.Object
	out := groupKey{needs: needsOf(w), limit: -1, terms: terms{places: placesOf(w), priority: priorityOf(o)}}
	if o.Spec.MaximumExecutionTimeSeconds != nil {
		out.limit = *o.Spec.MaximumExecutionTimeSeconds
	}
	var annotations strings.Builder
	for _, k := range slices.Sorted(maps.Keys(o.Annotations)) {
		fmt.Fprintf(&annotations, "%q=%q\n", k, o.Annotations[k])
	}
	out.annotations = annotations.String()
	return out
}

func priorityOf(w *kueue.Workload) int32 {
	if w.Spec.Priority == nil {
		return 0
	}
	return *w.Spec.Priority
}

func needsOf(w *cache.Workload) uint64 {
	h := fnv.New64a()
	for i := range w.Object.Spec.PodSets {
		fmt.Fprintln(h, w.Object.Spec.PodSets[i].Count)
		for _, name := range w.Pod[i].Names() {
			fmt.Fprintln(h, name, w.Pod[i][name])
		}
	}
	return h.Sum64()
}

// placesOf leaves out what differs from job to job and does not affect where its pods can run, such as names, arguments
// and environment.
func placesOf(w *cache.Workload) uint64 {
	h := fnv.New64a()
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		spec := &ps.Template.Spec
		// Encoding API types cannot fail.
		_ = json.NewEncoder(h).Encode([]any{ps.MinCount, spec.NodeSelector, spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints})
	}
	return h.Sum64()
}

// blocks reports whether the first Workload of another group waits at least as long as this one: it is later and
// requests, on the same terms, no less and for no shorter time.
func (a *evaluatedWorkload) blocks(o *workloadGroup) bool {
	b := o.pending[0]
	return a.group.key.terms == o.key.terms && (o.key.limit < 0 || a.group.key.limit >= 0 && a.group.key.limit <= o.key.limit) &&
		compare(a.Workload, b) < 0 && requestsNoMore(a.Workload, b)
}

func requestsNoMore(a, b *cache.Workload) bool {
	for i := range a.Object.Spec.PodSets {
		ps := &a.Object.Spec.PodSets[i]
		// A Workload with minCount may start with any number of pods above it.
		if ps.MinCount != nil || ps.Count > b.Object.Spec.PodSets[i].Count {
			return false
		}
		for name, amount := range a.Pod[i] {
			if amount > b.Pod[i][name] {
				return false
			}
		}
	}
	return true
}

func (l *pendingQueue) add(w *cache.Workload) *workloadGroup {
	like := groupKeyOf(w)
	if l.groups[like] == nil {
		l.groups[like] = &workloadGroup{queue: l, key: like}
	}
	l.groups[like].pending = append(l.groups[like].pending, w)
	return l.groups[like]
}

// addLast adds a Workload that arrives after all others.
func (l *pendingQueue) addLast(w *cache.Workload, like groupKey) *workloadGroup {
	one := l.groups[like]
	if one == nil {
		one = &workloadGroup{queue: l, key: like}
		l.groups[like] = one
	}
	one.pending = append(one.pending, w)
	if len(one.pending) == 1 && !one.held {
		heap.Push(&l.free, one)
	}
	return one
}

// order sorts the Workloads in the order of their queue.
func (l *pendingQueue) order() {
	for _, one := range l.groups {
		slices.SortFunc(one.pending, compare)
		l.free = append(l.free, one)
	}
	heap.Init(&l.free)
}

// compare orders Workloads as their ClusterQueue does: higher priority, then the longer wait, then the UID.
func compare(a, b *cache.Workload) int {
	return cmp.Or(cmp.Compare(priorityOf(b.Object), priorityOf(a.Object)), a.Since.Compare(b.Since),
		strings.Compare(string(a.Object.UID), string(b.Object.UID)))
}

// mayEvaluate reports whether another Workload may be evaluated: few are, or it has arrived just now and is before one
// of them.
func (l *pendingQueue) mayEvaluate() bool {
	return len(l.free) > 0 && (len(l.evaluated) < maxEvaluated ||
		slices.ContainsFunc(l.evaluated, func(w evaluatedWorkload) bool { return compare(l.free[0].pending[0], w.Workload) < 0 }))
}

// next removes and returns the next Workload to evaluate; nil if there is none.
func (l *pendingQueue) next() *cache.Workload {
	for l.mayEvaluate() {
		one := heap.Pop(&l.free).(*workloadGroup)
		one.held = true
		if i := slices.IndexFunc(l.evaluated, func(w evaluatedWorkload) bool { return w.blocks(one) }); i >= 0 &&
			len(l.evaluated) >= alwaysEvaluated {
			l.evaluated[i].group.blocked = append(l.evaluated[i].group.blocked, one)
			continue
		}
		w := one.pending[0]
		one.pending = one.pending[1:]
		l.evaluated = append(l.evaluated, evaluatedWorkload{w, one})
		return w
	}
	return nil
}

// remove records that the evaluated Workload of a group no longer waits.
func (l *pendingQueue) remove(one *workloadGroup, uid types.UID) {
	l.evaluated = slices.DeleteFunc(l.evaluated, func(w evaluatedWorkload) bool { return w.Object.UID == uid })
	l.release(one)
	for _, o := range one.blocked {
		l.release(o)
	}
	one.blocked = nil
}

// release makes the first Workload of a group available for evaluation again.
func (l *pendingQueue) release(o *workloadGroup) {
	if o.held = false; len(o.pending) > 0 {
		heap.Push(&l.free, o)
	}
}

// unevaluated returns the Workloads that are not evaluated yet, in order.
func (l *pendingQueue) unevaluated() []*cache.Workload {
	var out []*cache.Workload
	for _, one := range l.groups {
		out = append(out, one.pending...)
	}
	slices.SortFunc(out, compare)
	return out
}

// groupHeap is a heap ordered by the first Workload of each group.
type groupHeap []*workloadGroup

func (l groupHeap) Len() int           { return len(l) }
func (l groupHeap) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l groupHeap) Less(i, j int) bool { return compare(l[i].pending[0], l[j].pending[0]) < 0 }
func (l *groupHeap) Push(v any)        { *l = append(*l, v.(*workloadGroup)) }
func (l *groupHeap) Pop() any {
	last := len(*l) - 1
	out := (*l)[last]
	*l = (*l)[:last]
	return out
}
