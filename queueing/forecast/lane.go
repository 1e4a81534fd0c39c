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

	"github.com/muster-dev/muster/queueing"
)

const (
	// window is how many Workloads are judged in a cycle that differ in nothing that
	// matters: the others come after them anyway.
	window = 2
	// widest is how many of a LocalQueue are judged in all. One that comes after so many may
	// start around them in truth, but hardly before some of them have.
	widest = 16
)

// lane are the Workloads of a LocalQueue that wait. To judge all of them at every
// step would cost too much, so only those are in the State whose turn may be next.
type lane struct {
	lines map[likeness]*line
	// free are the lines of which another one may be judged.
	free lines
	// judged are in the State and wait.
	judged []*queueing.Workload
}

// line are Workloads that are alike: each starts after those before it.
type line struct {
	lane *lane
	rest []*queueing.Workload
	in   int
}

// likeness is the same for Workloads of a LocalQueue that are judged alike as long
// as they wait.
type likeness struct {
	// needs is a hash of all that decides where pods can run.
	needs       uint64
	priority    int32
	limit       int32
	annotations string
}

// isPlain says that nothing but its turn keeps a Workload from being judged.
func isPlain(w *kueue.Workload) bool {
	return w.DeletionTimestamp.IsZero() && queueing.IsActive(w) && w.Status.RequeueState == nil && w.Status.Admission == nil &&
		len(w.Status.AdmissionChecks) == 0 && len(w.Status.ReclaimablePods) == 0 && len(w.Spec.PreemptionGates) == 0 &&
		!slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool { return c.Type != kueue.WorkloadQuotaReserved })
}

func likenessOf(w *queueing.Workload) likeness {
	o := w.Object
	out := likeness{needs: needsOf(w), limit: -1, priority: priorityOf(w)}
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

func priorityOf(w *queueing.Workload) int32 {
	if w.Object.Spec.Priority == nil {
		return 0
	}
	return *w.Object.Spec.Priority
}

// needsOf leaves out what differs from job to job and says nothing about where its
// pods can run, such as names, arguments and environment.
func needsOf(w *queueing.Workload) uint64 {
	h := fnv.New64a()
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		spec := &ps.Template.Spec
		for _, name := range w.Pod[i].Names() {
			fmt.Fprintln(h, name, w.Pod[i][name])
		}
		// Encoding API types cannot fail.
		_ = json.NewEncoder(h).Encode([]any{ps.Count, ps.MinCount, spec.NodeSelector, spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints})
	}
	return h.Sum64()
}

func (l *lane) add(w *queueing.Workload) *line {
	like := likenessOf(w)
	if l.lines[like] == nil {
		l.lines[like] = &line{lane: l}
	}
	l.lines[like].rest = append(l.lines[like].rest, w)
	return l.lines[like]
}

// order puts all in the order in which their queue judges them.
func (l *lane) order() {
	for _, one := range l.lines {
		slices.SortFunc(one.rest, compare)
		l.free = append(l.free, one)
	}
	heap.Init(&l.free)
}

// compare orders Workloads as their ClusterQueue does: higher priority, then created
// earlier, then the UID.
func compare(a, b *queueing.Workload) int {
	return cmp.Or(cmp.Compare(priorityOf(b), priorityOf(a)), a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time),
		strings.Compare(string(a.Object.UID), string(b.Object.UID)))
}

// ready says that somebody may be judged beside those that are.
func (l *lane) ready() bool { return len(l.judged) < widest && len(l.free) > 0 }

// lacks says that somebody has to be judged now: all before him in his line have started.
// Else the others of the line, who were refused, spoke for him.
func (l *lane) lacks() bool {
	return l.ready() && slices.ContainsFunc(l.free, func(o *line) bool { return o.in == 0 })
}

// next takes out who is to be judged next; nil if nobody is.
func (l *lane) next() *queueing.Workload {
	if !l.ready() {
		return nil
	}
	one := l.free[0]
	w := one.rest[0]
	one.rest = one.rest[1:]
	one.in++
	l.judged = append(l.judged, w)
	if one.isFree() {
		heap.Fix(&l.free, 0)
	} else {
		heap.Pop(&l.free)
	}
	return w
}

func (o *line) isFree() bool { return o.in < window && len(o.rest) > 0 }

// left says that one of a line waits no more.
func (l *lane) left(one *line, uid types.UID) {
	l.judged = slices.DeleteFunc(l.judged, func(w *queueing.Workload) bool { return w.Object.UID == uid })
	was := one.isFree()
	one.in--
	if !was && one.isFree() {
		heap.Push(&l.free, one)
	}
}

// waiting are those that are not judged yet, in their order.
func (l *lane) waiting() []*queueing.Workload {
	var out []*queueing.Workload
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
