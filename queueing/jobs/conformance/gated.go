package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// gated plays what creates pods that queue by their gates, as the policies for pods leave them:
// a user, or the controller of an object that creates another pod in place of each that is deleted.
type gated struct {
	kind string
	// object is the kind that creates the pods. It is empty for pods that a user creates.
	object string
	// many is how many pods there are, and ordered: each is created once the one before it runs.
	many    int
	ordered bool
	// dress makes a pod the i-th of its kind.
	dress func(pod *unstructured.Unstructured, i int)
	// returns: another pod is created in place of each that is deleted.
	returns bool

	// made is how many pods were created.
	made int
	// deleted: no more pods are wanted.
	deleted bool
}

// gangs returns the kinds of gangs that have a Workload, with their members.
func gangs() []*gated {
	const queue = `labels: {kueue.x-k8s.io/queue-name: main}`
	annotate := func(pod *unstructured.Unstructured, pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			set(pod.Object, pairs[i+1], "metadata", "annotations", pairs[i])
		}
	}
	label := func(pod *unstructured.Unstructured, key, value string) {
		set(pod.Object, value, "metadata", "labels", key)
	}
	const parent = "kueue.x-k8s.io/pod-suspending-parent"
	template := func(of string) string {
		return fmt.Sprintf("{metadata: {annotations: {%s: %s}}, %s", parent, of, strings.TrimPrefix(container, "{"))
	}
	const leaderWorkerSet = "leaderworkerset.x-k8s.io/leaderworkerset"
	return []*gated{
		{kind: "Pod", many: 1, dress: func(*unstructured.Unstructured, int) {}},
		{kind: "pod group", many: 3, returns: true, dress: func(pod *unstructured.Unstructured, _ int) {
			annotate(pod, "kueue.x-k8s.io/pod-group-name", "group", "kueue.x-k8s.io/pod-group-total-count", "3")
		}},
		{kind: "StatefulSet", many: 3, ordered: true, returns: true,
			object: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: default, name: set, uid: set-uid, ` + queue + `},
				spec: {replicas: 3, template: ` + template("statefulset") + `}}`,
			dress: func(pod *unstructured.Unstructured, i int) {
				annotate(pod, parent, "statefulset")
				label(pod, "apps.kubernetes.io/pod-index", fmt.Sprint(i))
			}},
		// The workers of a group are created once their leader runs, as with startupPolicy LeaderReady;
		// here also one by one.
		{kind: "LeaderWorkerSet", many: 3, ordered: true, returns: true,
			object: `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {namespace: default, name: set, uid: set-uid, ` + queue + `},
				spec: {replicas: 1, startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 3, leaderTemplate: ` + template(leaderWorkerSet) + `,
				workerTemplate: ` + template(leaderWorkerSet) + `}}}`,
			dress: func(pod *unstructured.Unstructured, i int) {
				annotate(pod, parent, leaderWorkerSet)
				label(pod, "leaderworkerset.sigs.k8s.io/name", "set")
				label(pod, "leaderworkerset.sigs.k8s.io/group-index", "0")
				label(pod, "leaderworkerset.sigs.k8s.io/worker-index", fmt.Sprint(i))
			}},
	}
}

// owner is the object that the pods are of; nil for those of a user.
func (g *gated) owner() *unstructured.Unstructured {
	if g.object == "" {
		return nil
	}
	return read(g.object)
}

// submit implements actor.
func (g *gated) submit(w *world) {
	if owner := g.owner(); owner != nil {
		w.create(user, owner)
		return
	}
	for range g.many {
		g.create(w, g.made)
	}
}

// step implements actor.
func (g *gated) step(w *world) {
	switch all := w.of(podKind); {
	case g.deleted || !g.returns:
	case g.object == "":
		for n := len(all); n < g.many; n++ {
			g.create(w, n)
		}
	case g.job(w) != nil && g.job(w).GetDeletionTimestamp() == nil: // else their controllers leave it alone
		for i := range g.many {
			at := slices.IndexFunc(all, func(pod *unstructured.Unstructured) bool { return pod.GetName() == fmt.Sprint("set-", i) })
			if at < 0 {
				g.create(w, i)
			}
			if g.ordered && (at < 0 || phaseOf(all[at]) != "Running") {
				break
			}
		}
	}
	running := slices.DeleteFunc(w.running(), func(pod *unstructured.Unstructured) bool { return phaseOf(pod) != "Running" })
	if w.outcome == succeeds && len(running) > 0 {
		w.edit(node, running[0], func(o map[string]any) { set(o, "Succeeded", "status", "phase") })
	}
}

// create creates the i-th pod.
func (g *gated) create(w *world, i int) {
	g.made++
	pod := read(container)
	pod.SetGroupVersionKind(podKind)
	pod.SetNamespace("default")
	pod.SetName(fmt.Sprint("pod-", g.made))
	if owner := g.owner(); owner != nil {
		pod.SetName(fmt.Sprint("set-", i))
		pod.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	}
	pod.SetLabels(map[string]string{jobs.QueueLabel: "main", workload.ManagedLabel: "true"})
	g.dress(pod, i)
	set(pod.Object, []any{map[string]any{"name": "kueue.x-k8s.io/admission"}}, "spec", "schedulingGates")
	set(pod.Object, "Pending", "status", "phase")
	w.create(user, pod)
}

// job implements actor. It creates the first pods if a user creates them.
func (g *gated) job(w *world) *unstructured.Unstructured {
	if owner := g.owner(); owner != nil {
		return w.objects[idOf(owner)]
	}
	if all := w.of(podKind); len(all) > 0 {
		return all[0]
	}
	return nil
}

// ended implements actor.
func (g *gated) ended(w *world) bool { return g.object == "" && len(w.alive()) == 0 }

// pods implements actor.
func (g *gated) pods(*world) int { return g.many }

// queued implements actor.
func (g *gated) queued(*world) bool { return true }

// runs implements actor.
func (g *gated) runs(w *world) bool { return len(w.running()) > 0 }

// stops implements actor: a pod that runs is deleted.
func (g *gated) stops(c change) bool {
	return c.before != nil && c.before.GetKind() == podKind.Kind && len(get[[]any](c.before.Object, "spec", "schedulingGates")) == 0 &&
		c.before.GetDeletionTimestamp() == nil && (c.after == nil || c.after.GetDeletionTimestamp() != nil)
}

// held implements actor.
func (g *gated) held(w *world) (wrong string) {
	for _, pod := range w.of(podKind) {
		if selector := get[map[string]any](pod.Object, "spec", "nodeSelector"); len(selector) > 0 {
			wrong += fmt.Sprintf("pod %s goes to %v; ", pod.GetName(), selector)
		}
	}
	return wrong
}

// remove deletes what the user has created.
func (g *gated) remove(w *world) {
	g.deleted = true
	if g.object != "" {
		w.remove(user, g.owner())
		return
	}
	for _, pod := range w.of(podKind) {
		w.remove(user, pod)
	}
}

// stories returns the stories of pods. Pods of a user end, and pods of an object are deleted with it.
func (g *gated) stories() []story {
	gone := step{"they are deleted, and nothing is left", func(w *world) { w.actor.(*gated).remove(w) }, isGone}
	waiting := step{"they wait", func(w *world) { w.pool = "" }, waits}
	run := step{"they run", func(w *world) { w.pool = "a" }, allRun("a")}
	end := []step{gone}
	out := kept()
	if g.object == "" {
		end = []step{ends(succeeds), gone}
		out = []story{{"they are deleted while they are held, and finalizers keep them", []step{waiting,
			{"they let go", func(w *world) {
				for _, pod := range w.of(podKind) {
					w.keep(user, pod, finalizer)
				}
				w.actor.(*gated).remove(w)
			}, letsGo},
			{"they do not start", func(w *world) { w.pool = "a" }, func(w *world) bool { return pass(w, 60) && letsGo(w) }},
			{"the finalizers go, and nothing is left", func(w *world) {
				for _, pod := range w.of(podKind) {
					w.unkeep(user, pod, finalizer)
				}
			}, isGone}}}}
	}
	out = append(out, []story{
		{"they run and end", append([]step{starts}, end...)},
		{"they are deleted while they are held", []step{waiting, gone}},
	}...)
	if !g.returns {
		return append(out, story{"they are evicted, and gone for good",
			[]step{waiting, run, {"they are evicted", func(w *world) { w.evict("") }, isGone}}})
	}
	if g.object != "" {
		for _, all := range []bool{true, false} {
			out = append(out, story{map[bool]string{true: "they are replaced at once", false: "they are replaced one by one"}[all],
				append([]step{starts, g.rollOut(all)}, end...)})
		}
	}
	return append(out,
		story{"they are evicted amid their pods", append([]step{
			{"they have pods", nil, func(w *world) bool { return len(w.running()) > 0 }}, evicted, again}, end...)},
		story{"they are held, evicted, and run elsewhere", append([]step{waiting, run, evicted, again}, end...)})
}

// rollOut replaces the pods by pods of a template with another image, as their controllers do; a group of a LeaderWorkerSet is
// replaced at once, because its pods end with their leader. Nothing is admitted meanwhile, so released quota would be lost.
func (g *gated) rollOut(all bool) step {
	old := func(w *world) (out []*unstructured.Unstructured) {
		return slices.DeleteFunc(w.running(), func(pod *unstructured.Unstructured) bool { return pod.GetCreationTimestamp().After(w.began) })
	}
	return step{"their Workload keeps its quota for others", func(w *world) {
		w.pool = ""
		w.edit(user, w.actor.job(w), func(o map[string]any) { dress(o, "v2") })
		if all {
			for _, pod := range w.running() {
				w.remove(user, pod)
			}
		}
	}, func(w *world) bool {
		left := old(w)
		if len(left) == 0 {
			return allRun("a")(w)
		}
		if whole := len(w.running()) == g.many && !slices.ContainsFunc(w.running(), isGoing); whole {
			w.remove(user, left[len(left)-1])
		}
		return false
	}}
}

func isGoing(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil }

// dress gives the containers below a value an image.
func dress(value any, image string) {
	switch x := value.(type) {
	case map[string]any:
		if _, is := x["image"]; is {
			x["image"] = image
		}
		for _, inner := range x {
			dress(inner, image)
		}
	case []any:
		for _, inner := range x {
			dress(inner, image)
		}
	}
}

// RunGated tests the reconciler of pods with each kind that creates them.
func RunGated(t *testing.T, s Subject) {
	for i, g := range gangs() {
		t.Run(g.kind, func(t *testing.T) {
			begin := func() *world { return newWorld(s, gangs()[i]) }
			playAll(t, g.stories(), i, begin)
			if !t.Failed() {
				interrupt(t, longest(g.stories()), i, begin)
			}
		})
	}
}
