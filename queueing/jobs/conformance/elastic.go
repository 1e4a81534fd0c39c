package conformance

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// elasticJob and elasticCluster are of kinds whose jobs have other numbers of pods while they run.
var (
	elasticJob = func() *operator {
		out := *jobController
		out.what, out.writes = " that is elastic", [2]int{5, 21} // a gate is taken off each pod
		out.object = strings.Replace(out.object, "kind: Job,", "kind: Job, "+elastic+",", 1)
		out.object = strings.Replace(out.object, "completions: 2", "completions: 100", 1)
		out.scale = func(job map[string]any, n int64) { set(job, n, "spec", "parallelism") }
		return &out
	}()
	elasticCluster = func() *operator {
		out := *rayClusters
		out.what, out.alike, out.writes = " that is elastic", true, [2]int{5, 23}
		out.object = strings.Replace(out.object, "kind: RayCluster,", "kind: RayCluster, "+elastic+",", 1)
		out.scale = func(job map[string]any, n int64) {
			get[[]any](job, "spec", "workerGroupSpecs")[0].(map[string]any)["replicas"] = n
		}
		return &out
	}()
)

const elastic = `metadata: {annotations: {` + workload.ElasticAnnotation + `: "true"}}`

// shrink deletes a pod that the job has no more, and reports whether there was one.
func (op *operator) shrink(w *world, job *unstructured.Unstructured) bool {
	wanted := map[string]bool{}
	for _, r := range op.roles(w, job.Object) {
		for i := range r.count {
			wanted[podName(job, r.name, i)] = true
		}
	}
	for _, pod := range w.alive() {
		if !wanted[pod.GetName()] && pod.GetDeletionTimestamp() == nil {
			w.remove(op.kind, pod)
			return true
		}
	}
	return false
}

// scaled is the step in which a user gives a job another number of pods.
func scaled(what string, n int64, until func(*world) bool) step {
	return step{what, func(w *world) {
		w.scaled = n
		w.edit(user, w.actor.job(w), func(o map[string]any) { op(w).scale(o, n) })
	}, until}
}

// allRunWithQuota reports whether all pods run, by one Workload that has quota for no more.
func allRunWithQuota(w *world) bool {
	return allRun("a")(w) && len(w.slices()) == 1 && int(w.room()) == len(w.running())
}

// waitsForMore reports whether the next slice waits, and the pods that had quota run.
func waitsForMore(running func(*world) int) func(*world) bool {
	return func(w *world) bool { return pass(w, 30) && len(w.slices()) == 2 && len(w.running()) == running(w) }
}

// ofElastic are the stories of a job that grows and shrinks, those to interrupt first.
func ofElastic(endless bool) (toInterrupt, others []story) {
	before := func(more int) func(*world) int { return func(w *world) int { return w.actor.pods(w) - more } }
	full := func(s step) step {
		do := s.do
		return s.with(func(w *world) { w.full = true; do(w) }, s.until)
	}
	down := func(s step) step {
		do := s.do
		return s.with(func(w *world) { w.down = true; do(w) }, s.until)
	}
	end := []step{goes}
	if !endless {
		end = []step{ends(succeeds), goes}
	}
	toInterrupt = []story{
		{"it grows, shrinks and grows, is evicted, and runs elsewhere", slices.Concat([]step{starts,
			scaled("it grows", 4, allRunWithQuota), scaled("it shrinks", 1, allRunWithQuota), scaled("it grows again", 3, allRunWithQuota),
			evicted, again}, end)},
		{"it is evicted as it waits for more, and has all when it starts again", slices.Concat([]step{starts,
			full(scaled("it has no quota for more", 4, waitsForMore(before(2)))), evicted,
			again.with(func(w *world) { w.full, w.pool = false, "b" }, allRun("b"))}, end)},
	}
	others = []story{
		{"it changes its mind", slices.Concat([]step{starts,
			full(scaled("it has no quota for more", 4, waitsForMore(before(2)))), scaled("it is as it was", 2, allRunWithQuota)}, end)},
		{"it shrinks as it waits for more", slices.Concat([]step{starts,
			full(scaled("it has no quota for more", 4, waitsForMore(before(2)))), scaled("it is smaller than it was", 1, allRunWithQuota)}, end)},
		{"it grows twice before there is quota", slices.Concat([]step{starts,
			full(scaled("it has no quota for more", 3, waitsForMore(before(1)))), full(scaled("nor for more yet", 5, waitsForMore(before(3)))),
			{"there is", func(w *world) { w.full = false }, allRunWithQuota}}, end)},
		{"its operator is down as it shrinks", []step{starts,
			down(scaled("the quota is kept", 1, func(w *world) bool { return pass(w, 60) && int(w.room()) == len(w.running()) })),
			{"it is smaller", func(w *world) { w.down = false }, allRunWithQuota}}},
	}
	if !endless {
		others = append(others, story{"it ends as it waits for more", []step{starts,
			full(scaled("it has no quota for more", 4, waitsForMore(before(2)))), ends(succeeds), goes}})
	}
	return toInterrupt, others
}

// slices are the Workloads of the job that are not over, the oldest first; not to be changed.
func (w *world) slices() []*kueue.Workload {
	if w.readAt == w.revision {
		return w.read
	}
	var out []*kueue.Workload
	for _, o := range w.of(workloadKind) {
		if own := w.typed(o).(*kueue.Workload); !workload.IsFinished(own) {
			out = append(out, own)
		}
	}
	slices.SortStableFunc(out, func(a, b *kueue.Workload) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	w.read, w.readAt = out, w.revision
	return out
}

// replaced returns the slice that another slice is to replace, or nil.
func (w *world) replaced(by *kueue.Workload) *kueue.Workload {
	for _, old := range w.slices() {
		if key := workload.ReplacedKey(by); key.Name != "" && workload.KeyOf(old) == key && workload.HasQuota(old) {
			return old
		}
	}
	return nil
}

// mayBeAdmitted reports whether the queues have room for a Workload now, as one that replaces another only as that runs.
func (w *world) mayBeAdmitted(own *kueue.Workload) bool {
	if workload.HasQuota(own) || own.Annotations[workload.RefusedAnnotation] != "" || len(own.OwnerReferences) == 0 ||
		workload.RequestsAdoption(own) {
		return false
	}
	old := w.replaced(own)
	return old == nil || !w.full && workload.IsAdmitted(old) && !workload.IsEvicted(old)
}

// finishReplaced is the queues: they finish a slice once another has its place.
func (w *world) finishReplaced() {
	for _, by := range w.slices() {
		if old := w.replaced(by); old != nil && workload.IsAdmitted(by) {
			w.write(old, workload.Finished(old, kueue.WorkloadSliceReplaced, "replaced", w.now))
		}
	}
}

// room is for how many pods the job has quota.
func (w *world) room() (most int32) {
	for _, own := range w.slices() {
		if workload.HasQuota(own) {
			most = max(most, roomOf(own))
		}
	}
	return most
}

func roomOf(own *kueue.Workload) (pods int32) {
	for i := range own.Status.Admission.PodSetAssignments {
		granted := &own.Status.Admission.PodSetAssignments[i]
		have := ptr.Deref(granted.Count, 0)
		for _, r := range own.Status.ReclaimablePods {
			if r.Name == granted.Name {
				have = min(have, own.Spec.PodSets[i].Count-r.Count)
			}
		}
		pods += have
	}
	return pods
}
