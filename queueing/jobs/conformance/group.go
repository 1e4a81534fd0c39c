package conformance

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// ofGroup is how many pods a group has.
const ofGroup = 3

// group plays the controller of a pod group: it creates another pod in place of each that is
// deleted, as the policies for pods leave it.
type group struct {
	// made is how many pods were created.
	made int
	// deleted: no more pods are wanted.
	deleted bool
}

// submit implements actor.
func (g *group) submit(w *world) { g.step(w) }

// step implements actor.
func (g *group) step(w *world) {
	all := w.of(podKind)
	for n := len(all); n < ofGroup && !g.deleted; n++ {
		g.made++
		pod := read(container)
		pod.SetGroupVersionKind(podKind)
		pod.SetNamespace("default")
		pod.SetName(fmt.Sprint("pod-", g.made))
		pod.SetLabels(map[string]string{jobs.QueueLabel: "main", workload.ManagedLabel: "true"})
		pod.SetAnnotations(map[string]string{"kueue.x-k8s.io/pod-group-name": "group", "kueue.x-k8s.io/pod-group-total-count": fmt.Sprint(ofGroup)})
		set(pod.Object, []any{map[string]any{"name": "kueue.x-k8s.io/admission"}}, "spec", "schedulingGates")
		set(pod.Object, "Pending", "status", "phase")
		w.create(user, pod)
	}
	running := slices.DeleteFunc(w.running(), func(pod *unstructured.Unstructured) bool { return phaseOf(pod) != "Running" })
	if w.outcome == succeeds && len(running) > 0 {
		w.edit(node, running[0], func(o map[string]any) { set(o, "Succeeded", "status", "phase") })
	}
}

// job implements actor: a group is its first pod.
func (g *group) job(w *world) *unstructured.Unstructured {
	if all := w.of(podKind); len(all) > 0 {
		return all[0]
	}
	return nil
}

// ended implements actor.
func (g *group) ended(w *world) bool { return len(w.alive()) == 0 }

// pods implements actor.
func (g *group) pods() int { return ofGroup }

// queued implements actor.
func (g *group) queued(*world) bool { return true }

// runs implements actor.
func (g *group) runs(w *world) bool { return len(w.running()) > 0 }

// stops implements actor: a pod that runs is deleted.
func (g *group) stops(c change) bool {
	return c.before != nil && c.before.GetKind() == podKind.Kind && len(get[[]any](c.before.Object, "spec", "schedulingGates")) == 0 &&
		c.before.GetDeletionTimestamp() == nil && (c.after == nil || c.after.GetDeletionTimestamp() != nil)
}

// held implements actor.
func (g *group) held(w *world) (wrong string) {
	for _, pod := range w.of(podKind) {
		if selector := get[map[string]any](pod.Object, "spec", "nodeSelector"); len(selector) > 0 {
			wrong += fmt.Sprintf("pod %s goes to %v; ", pod.GetName(), selector)
		}
	}
	return wrong
}

// RunGroup tests the reconciler of pods by a pod group.
func RunGroup(t *testing.T, s Subject) {
	gone := step{"its pods are deleted, and nothing is left", func(w *world) {
		w.actor.(*group).deleted = true
		for _, pod := range w.of(podKind) {
			w.remove(user, pod)
		}
	}, isGone}
	all := []story{
		{"it runs and ends", []step{starts, ends(succeeds), gone}},
		{"it is held, evicted, and runs elsewhere", []step{
			{"it waits", func(w *world) { w.pool = "" }, waits},
			{"it runs", func(w *world) { w.pool = "a" }, allRun("a")}, evicted, again, ends(succeeds), gone}},
	}
	begin := func() *world { return newWorld(s, &group{}) }
	tell(t, all, begin)
	if !t.Failed() {
		interrupt(t, all, begin)
	}
}
