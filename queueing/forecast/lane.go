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

// widest is how many of a LocalQueue are judged at most. One that comes after so many
// may start around them in truth, but hardly before some of them have.
const widest = 16

// outright is how many of these are judged whatever waits before them. What is behind another one is overtaken, wrongly, by what is
// judged beside that one and starts with it.
const outright = 8

// lane are the Workloads of a LocalQueue that wait. To judge all of them at every
// step would cost too much, so only those are in the State whose turn may be next.
type lane struct {
	lines map[likeness]*line
	// free are the lines whose first may be judged.
	free lines
	// judged are in the State and wait.
	judged []waiting
}

// waiting is a Workload that is judged, and waits.
type waiting struct {
	*cache.Workload
	line *line
}

// line are Workloads that are alike: each starts after those before it, so one is
// judged at a time.
type line struct {
	lane *lane
	like likeness
	rest []*cache.Workload
	// behind are lines whose first waits as long as the one of this that is judged.
	behind []*line
	// held: one of it is judged, or it is behind another line.
	held bool
}

// likeness is the same for Workloads of a LocalQueue that are judged alike as long
// as they wait.
type likeness struct {
	terms
	// needs is a hash of how many pods there are and of what they ask for.
	needs uint64
	limit int32
}

// terms are the same for Workloads that differ at most in how much they ask for, and
// for how long.
type terms struct {
	// places is a hash of all else that decides where pods can run.
	places      uint64
	priority    int32
	annotations string
}

// isPlain says that nothing but its turn keeps a Workload from being judged.
func isPlain(w *kueue.Workload) bool {
	return w.DeletionTimestamp.IsZero() && workload.IsActive(w) && w.Status.RequeueState == nil && w.Status.Admission == nil &&
		len(w.Status.AdmissionChecks) == 0 && len(w.Status.ReclaimablePods) == 0 && len(w.Spec.PreemptionGates) == 0 &&
		!slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool { return c.Type != kueue.WorkloadQuotaReserved })
}

func likenessOf(w *cache.Workload) likeness {
	o := w.Object
	out := likeness{needs: needsOf(w), limit: -1, terms: terms{places: placesOf(w), priority: priorityOf(o)}}
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

// placesOf leaves out what differs from job to job and says nothing about where its
// pods can run, such as names, arguments and environment.
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

// keeps says that as long as a Workload waits that is judged, so will the first of
// another line: it comes later and asks, on the same terms, for no less and no less time.
func (a *waiting) keeps(o *line) bool {
	b := o.rest[0]
	return a.line.like.terms == o.like.terms && (o.like.limit < 0 || a.line.like.limit >= 0 && a.line.like.limit <= o.like.limit) &&
		compare(a.Workload, b) < 0 && asksNoMore(a.Workload, b)
}

func asksNoMore(a, b *cache.Workload) bool {
	for i := range a.Object.Spec.PodSets {
		ps := &a.Object.Spec.PodSets[i]
		// A Workload with a minimum count may start with any number of pods above it.
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

func (l *lane) add(w *cache.Workload) *line {
	like := likenessOf(w)
	if l.lines[like] == nil {
		l.lines[like] = &line{lane: l, like: like}
	}
	l.lines[like].rest = append(l.lines[like].rest, w)
	return l.lines[like]
}

// come adds one that has come after all others.
func (l *lane) come(w *cache.Workload, like likeness) *line {
	one := l.lines[like]
	if one == nil {
		one = &line{lane: l, like: like}
		l.lines[like] = one
	}
	one.rest = append(one.rest, w)
	if len(one.rest) == 1 && !one.held {
		heap.Push(&l.free, one)
	}
	return one
}

// order puts all in the order in which their queue judges them.
func (l *lane) order() {
	for _, one := range l.lines {
		slices.SortFunc(one.rest, compare)
		l.free = append(l.free, one)
	}
	heap.Init(&l.free)
}

// compare orders Workloads as their ClusterQueue does: higher priority, then the longer
// wait, then the UID.
func compare(a, b *cache.Workload) int {
	return cmp.Or(cmp.Compare(priorityOf(b.Object), priorityOf(a.Object)), a.Since.Compare(b.Since),
		strings.Compare(string(a.Object.UID), string(b.Object.UID)))
}

// hasRoom says that another one may be judged: there are few, or it has come now and goes
// before one of them.
func (l *lane) hasRoom() bool {
	return len(l.free) > 0 && (len(l.judged) < widest ||
		slices.ContainsFunc(l.judged, func(w waiting) bool { return compare(l.free[0].rest[0], w.Workload) < 0 }))
}

// next takes out the Workload to judge next beside those that are judged, or returns nil.
func (l *lane) next() *cache.Workload {
	for l.hasRoom() {
		one := heap.Pop(&l.free).(*line)
		one.held = true
		if i := slices.IndexFunc(l.judged, func(w waiting) bool { return w.keeps(one) }); i >= 0 && len(l.judged) >= outright {
			l.judged[i].line.behind = append(l.judged[i].line.behind, one)
			continue
		}
		w := one.rest[0]
		one.rest = one.rest[1:]
		l.judged = append(l.judged, waiting{w, one})
		return w
	}
	return nil
}

// left says that the one of a line that was judged waits no more.
func (l *lane) left(one *line, uid types.UID) {
	l.judged = slices.DeleteFunc(l.judged, func(w waiting) bool { return w.Object.UID == uid })
	l.release(one)
	for _, o := range one.behind {
		l.release(o)
	}
	one.behind = nil
}

// release has the first of a line judged again, if there is one.
func (l *lane) release(o *line) {
	if o.held = false; len(o.rest) > 0 {
		heap.Push(&l.free, o)
	}
}

// unjudged are those that are not judged yet, in their order.
func (l *lane) unjudged() []*cache.Workload {
	var out []*cache.Workload
	for _, one := range l.lines {
		out = append(out, one.rest...)
	}
	slices.SortFunc(out, compare)
	return out
}

// lines are a heap by the first of each.
type lines []*line

func (l lines) Len() int           { return len(l) }
func (l lines) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l lines) Less(i, j int) bool { return compare(l[i].rest[0], l[j].rest[0]) < 0 }
func (l *lines) Push(v any)        { *l = append(*l, v.(*line)) }
func (l *lines) Pop() any {
	last := len(*l) - 1
	out := (*l)[last]
	*l = (*l)[:last]
	return out
}
