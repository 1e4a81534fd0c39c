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
	// fewestRuns are needed before the past says anything.
	fewestRuns = 3
	// fewestOfOthers are needed before runs of other templates of the LocalQueue say anything:
	// the first that end are the short ones.
	fewestOfOthers = 12
	// mostRuns are remembered of a kind, the latest ones: templates stay while
	// what they run changes.
	mostRuns = 64
	// mostKinds bounds the memory: 2,000 of 64 runs take some 8 MB. Those that ended
	// least lately are forgotten first.
	mostKinds = 2000
)

// kind is what run times are remembered by. Template 0 stands for all of the
// LocalQueue.
type kind struct {
	queue    types.NamespacedName
	template uint64
}

// kindOf is that of a Workload: its LocalQueue, the kind of its job, and of each
// podSet the number of pods, their images and what they ask for. Names, labels
// and arguments differ from run to run.
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

// History is for how long Workloads ran that have finished, when which were created, and
// how long launches took. Its zero value has seen none. It is not safe for concurrent use.
type History struct {
	kinds map[kind]*runs
	// seen numbers the runs, so that the kinds have an order.
	seen int64
	// sources are where Workloads have come from since a time.
	sources map[source]*arrivals
	since   time.Time
	// launches are the latest of each group.
	launches map[string][]run
}

// runs are the latest of a kind, the oldest first.
type runs struct {
	list []run
	last int64
}

type run struct {
	// of is the Workload that ran, or the request that machines were launched for.
	of   types.UID
	took time.Duration
}

// Observe takes in a Workload. One that has not finished, or never ran, or was
// seen before, teaches nothing.
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

// Copy returns a copy for a forecast that runs while the original goes on observing; the copy itself must not observe. It is cheap:
// the values of the maps are shared, since they are replaced, and lists only grow behind what the copy has of them.
func (h *History) Copy() *History {
	out := *h
	out.kinds, out.sources, out.launches = maps.Clone(h.kinds), maps.Clone(h.sources), maps.Clone(h.launches)
	return &out
}

func (h *History) add(k kind, r run) {
	var before []run
	if known := h.kinds[k]; known != nil {
		before = known.list
	} else if len(h.kinds) >= mostKinds {
		h.forget()
	}
	if slices.ContainsFunc(before, func(o run) bool { return o.of == r.of }) {
		return
	}
	if len(before) == mostRuns {
		before = before[1:]
	}
	h.seen++
	h.kinds[k] = &runs{list: append(before, r), last: h.seen}
}

// forget drops the kind of which a run ended least lately.
func (h *History) forget() {
	oldest := slices.MinFunc(slices.Collect(maps.Keys(h.kinds)), func(a, b kind) int { return cmp.Compare(h.kinds[a].last, h.kinds[b].last) })
	delete(h.kinds, oldest)
}

// ranFor is for how long a finished Workload was admitted, all its admissions
// together.
func ranFor(w *kueue.Workload) (time.Duration, bool) {
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
	if !workload.IsFinished(w) || admitted == nil || admitted.Status != metav1.ConditionTrue {
		return 0, false
	}
	finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	took := finished.LastTransitionTime.Sub(admitted.LastTransitionTime.Time) + ranBefore(w)
	return max(0, took), true
}

// ranBefore is for how long a Workload ran in earlier admissions.
func ranBefore(w *kueue.Workload) time.Duration {
	if s := w.Status.AccumulatedPastExecutionTimeSeconds; s != nil {
		return time.Duration(max(0, *s)) * time.Second
	}
	return 0
}

// known are the run times to expect of a Workload, of its own kind or else of its
// LocalQueue, and under which kind they are; none if too few are known.
func (h *History) known(own kind) (kind, []run) {
	if h == nil {
		return own, nil
	}
	if r := h.kinds[own]; r != nil && len(r.list) >= fewestRuns {
		return own, r.list
	}
	others := kind{queue: own.queue}
	if r := h.kinds[others]; r != nil && len(r.list) >= fewestOfOthers {
		return others, r.list
	}
	return own, nil
}
