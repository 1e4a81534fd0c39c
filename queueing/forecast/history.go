package forecast

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// minRuns is the number of runs that an estimate requires.
	minRuns = 3
	// minRunsOfQueue is the number of runs of other templates of the LocalQueue that an estimate requires: the first
	// runs to end are the short ones.
	minRunsOfQueue = 12
	// maxRuns is the number of runs that are kept of a kind, the latest ones: what a template runs may change.
	maxRuns = 64
	// maxKinds bounds the memory: 2,000 kinds with 64 runs take some 8 MB. The kinds whose last run ended first are
	// forgotten first.
	maxKinds = 2000
)

// kind is the key of remembered run times. Template 0 stands for all of the LocalQueue.
type kind struct {
	queue    types.NamespacedName
	template uint64
}

// kindOf returns the kind of a Workload: its LocalQueue, the kind of its job, and for each podSet the number of pods,
// their images and requests. Names, labels and arguments differ from run to run.
func kindOf(w *kueue.Workload) kind {
	h := fnv.New64a()
	if owner := metav1.GetControllerOf(w); owner != nil {
		fmt.Fprintf(h, "%s %s\n", owner.APIVersion, owner.Kind)
	}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		fmt.Fprintf(h, "%s %d\n", ps.Name, ps.Count)
		for _, containers := range [][]corev1.Container{ps.Template.Spec.InitContainers, ps.Template.Spec.Containers} {
			for j := range containers {
				fmt.Fprintln(h, containers[j].Image)
				requests := containers[j].Resources.Requests
				for _, name := range slices.Sorted(maps.Keys(requests)) {
					v := requests[name]
					fmt.Fprintln(h, name, v.String())
				}
			}
		}
	}
	return kind{queue: queueOf(w), template: h.Sum64()}
}

func queueOf(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
}

// History has the run times of finished Workloads, the creation times of Workloads, and the durations of launches. The
// zero value is empty. It is not safe for concurrent use.
type History struct {
	kinds map[kind]*runs
	// seen numbers the runs, which orders the kinds.
	seen int64
	// sources are the sources of arrivals since a time.
	sources map[arrivalSource]*arrivals
	since   time.Time
	// launches are the latest launches of each group.
	launches map[string][]run
}

// runs are the latest runs of a kind, the oldest first.
type runs struct {
	list []run
	last int64
}

type run struct {
	// of is the Workload that ran, or the request that machines were launched for.
	of   types.UID
	took time.Duration
}

// Observe records the run time of a Workload. It ignores a Workload that has not finished, never ran, or was recorded
// before.
func (h *History) Observe(w *kueue.Workload) {
	took, ok := ranFor(w)
	if !ok {
		return
	}
	if h.kinds == nil {
		h.kinds = map[kind]*runs{}
	}
	own := kindOf(w)
	for _, k := range []kind{own, {queue: own.queue}} {
		h.add(k, run{w.UID, took})
	}
}

// Copy returns a copy for a forecast that runs while the original continues to observe; the copy must not observe. It
// is cheap: it shares the values of the maps, because they are replaced, and lists are only appended to.
func (h *History) Copy() *History {
	out := *h
	out.kinds, out.sources, out.launches = maps.Clone(h.kinds), maps.Clone(h.sources), maps.Clone(h.launches)
	return &out
}

func (h *History) add(k kind, r run) {
	var before []run
	if known := h.kinds[k]; known != nil {
		before = known.list
	} else if len(h.kinds) >= maxKinds {
		h.forget()
	}
	if slices.ContainsFunc(before, func(o run) bool { return o.of == r.of }) {
		return
	}
	if len(before) == maxRuns {
		before = before[1:]
	}
	h.seen++
	h.kinds[k] = &runs{list: append(before, r), last: h.seen}
}

// forget forgets the kind whose last run ended first.
func (h *History) forget() {
	oldest := slices.MinFunc(slices.Collect(maps.Keys(h.kinds)), func(a, b kind) int { return cmp.Compare(h.kinds[a].last, h.kinds[b].last) })
	delete(h.kinds, oldest)
}

// ranFor returns how long a finished Workload was admitted, over all admissions.
func ranFor(w *kueue.Workload) (time.Duration, bool) {
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
	if !workload.IsFinished(w) || workload.IsReplaced(w) || admitted == nil || admitted.Status != metav1.ConditionTrue {
		return 0, false
	}
	finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	took := finished.LastTransitionTime.Sub(admitted.LastTransitionTime.Time) + ranBefore(w)
	return max(0, took), true
}

// ranBefore returns how long a Workload ran in earlier admissions.
func ranBefore(w *kueue.Workload) time.Duration {
	if s := w.Status.AccumulatedPastExecutionTimeSeconds; s != nil {
		return time.Duration(max(0, *s)) * time.Second
	}
	return 0
}

// known returns the run times to expect for a kind, or else for its LocalQueue, and the kind that has them; none if
// there are too few.
func (h *History) known(own kind) (kind, []run) {
	if h == nil {
		return own, nil
	}
	if r := h.kinds[own]; r != nil && len(r.list) >= minRuns {
		return own, r.list
	}
	others := kind{queue: own.queue}
	if r := h.kinds[others]; r != nil && len(r.list) >= minRunsOfQueue {
		return others, r.list
	}
	return own, nil
}
