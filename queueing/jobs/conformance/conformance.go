package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// step is what happens to a job, and what is to come of that.
type step struct {
	what  string
	do    func(*world)
	until func(*world) bool
}

// story is what happens to one job.
type story struct {
	name  string
	steps []step
}

// patience bounds a step, in seconds. leisure is how long nothing may happen at its end.
const (
	patience = 150
	leisure  = 30
)

func allRun(pool string) func(*world) bool {
	return func(w *world) bool {
		all := w.running()
		for _, pod := range all {
			if phaseOf(pod) != "Running" || pod.GetDeletionTimestamp() != nil || get[string](pod.Object, "spec", "nodeSelector", "pool") != pool {
				return false
			}
		}
		return len(all) == w.actor.pods(w)
	}
}

// waits reports whether a job queues again, as its user wrote it.
func waits(w *world) bool {
	own := w.workload()
	return own != nil && !workload.HasQuota(own) && len(w.slices()) == 1 && len(w.running()) == 0 && w.actor.held(w) == ""
}

// isOver reports whether the Workload says what became of the job.
func isOver(reason string) func(*world) bool {
	return func(w *world) bool {
		for _, o := range w.of(workloadKind) {
			for _, c := range w.typed(o).(*kueue.Workload).Status.Conditions {
				if c.Type == kueue.WorkloadFinished && c.Reason != kueue.WorkloadSliceReplaced {
					return c.Reason == reason && len(w.running()) == 0
				}
			}
		}
		return false
	}
}

// isGone reports whether nothing of a job is left.
func isGone(w *world) bool { return len(w.objects) == w.base && len(w.life.due)+len(w.life.news) == 0 }

func ends(o outcome) step {
	reason := map[outcome]string{succeeds: kueue.WorkloadFinishedReasonSucceeded, fails: kueue.WorkloadFinishedReasonFailed}[o]
	return step{"it " + string(o), func(w *world) { w.outcome = o }, isOver(reason)}
}

var (
	starts  = step{"it runs", nil, allRun("a")}
	evicted = step{"it is evicted, and waits", func(w *world) { w.evict("") }, waits}
	again   = step{"it runs on other nodes", func(w *world) { w.pool = "b" }, allRun("b")}
	goes    = step{"it is deleted, and nothing is left", func(w *world) { w.remove(user, w.actor.job(w)) }, isGone}
)

// finalizer keeps a job that its user deletes.
const finalizer = "example.com/mine"

// letsGo reports whether no Workload of the job has quota, nor waits for it.
func letsGo(w *world) bool { return len(w.slices()) == 0 && len(w.running()) == 0 }

// kept are those of a job that is being deleted, which a finalizer puts off.
func kept() []story {
	deleted := func(w *world) {
		w.keep(user, w.actor.job(w), finalizer)
		w.remove(user, w.actor.job(w))
	}
	freed := step{"the finalizer goes, and nothing is left", func(w *world) { w.unkeep(user, w.actor.job(w), finalizer) }, isGone}
	return []story{
		{"it is deleted while it waits, and a finalizer keeps it", []step{
			{"it waits", func(w *world) { w.pool = "" }, waits},
			{"it lets go", deleted, letsGo},
			{"it does not start", func(w *world) { w.pool = "a" }, func(w *world) bool { return pass(w, 60) && letsGo(w) }}, freed}},
		{"it is deleted while it runs, and a finalizer keeps it", []step{starts,
			{"its pods keep their quota", deleted, func(w *world) bool { return pass(w, 60) && allRun("a")(w) && workload.HasQuota(w.workload()) }},
			{"it is evicted, and stops", func(w *world) { w.evict("") }, letsGo}, freed}},
		{"it is deleted once it is evicted, and a finalizer keeps it", []step{starts,
			{"it stops", func(w *world) { w.evict(""); deleted(w) }, letsGo}, freed}},
	}
}

// stories of a job that ends, or is deleted where none does.
func stories(endless bool) (out []story) {
	end := func(o outcome) []step {
		if endless {
			return []step{goes}
		}
		return []step{ends(o), goes}
	}
	add := func(name string, steps ...step) { out = append(out, story{name, steps}) }
	add("it runs and ends", append([]step{starts}, end(succeeds)...)...)
	if !endless {
		add("it fails", append([]step{starts}, end(fails)...)...)
	}
	add("it is held, evicted, and runs elsewhere", append([]step{
		{"it waits", func(w *world) { w.pool = "" }, waits},
		{"it runs", func(w *world) { w.pool = "a" }, allRun("a")}, evicted, again}, end(succeeds)...)...)
	add("it is evicted from half of its pods", append([]step{
		{"it has pods", nil, func(w *world) bool { return len(w.running()) > 0 }}, evicted, again}, end(succeeds)...)...)
	add("the queues admit it again before it has stopped", append([]step{starts,
		{"it runs elsewhere", func(w *world) { w.evict("b") }, allRun("b")}}, end(succeeds)...)...)
	return out
}

// withOperator are those of an operator that is down.
func withOperator(endless bool) []story {
	out := []story{
		{"its operator is down when it is to start", []step{starts.with(func(w *world) { w.down = true }, func(w *world) bool { return pass(w, 60) }),
			{"it runs", func(w *world) { w.down = false }, allRun("a")}}},
		{"its operator is down when it is to stop", []step{starts,
			{"the quota is kept", func(w *world) { w.down = true; w.evict("b") }, func(w *world) bool { return pass(w, 60) && workload.HasQuota(w.workload()) }},
			{"it runs elsewhere", func(w *world) { w.down = false }, allRun("b")}}},
		{"it is evicted before its operator sees that it is started", []step{
			{"it waits", func(w *world) { w.pool = "" }, waits},
			{"it is started", func(w *world) { w.down, w.pool = true, "a" }, func(w *world) bool { return op(w).runs(w) }},
			{"it is evicted", func(w *world) { w.evict("") }, func(w *world) bool { return pass(w, 8) }},
			{"it waits", func(w *world) { w.down = false }, waits}, again}},
		{"its operator begins again amid its pods", []step{
			{"it has pods", nil, func(w *world) bool { return len(w.running()) > 0 }},
			{"its operator is down", func(w *world) { w.down = true }, func(w *world) bool { return pass(w, 20) }},
			{"it runs", func(w *world) { w.down = false }, allRun("a")}}},
		{"its user edits it as it is admitted", []step{
			{"it waits", func(w *world) { w.pool = "" }, waits},
			{"it is admitted", func(w *world) { w.pool = "a" }, func(w *world) bool { return workload.HasQuota(w.workload()) }},
			{"it runs", func(w *world) { w.edit(user, op(w).job(w), func(o map[string]any) { double(o["spec"]) }) }, func(w *world) bool {
				job := runtime.DeepCopyJSON(op(w).job(w).Object)
				asked := double(job["spec"])
				return allRun("a")(w) && asked == 2*double(op(w).submitted().Object["spec"])
			}}}},
		{"its user suspends it", []step{starts, {"it queues again, and runs", func(w *world) {
			op := op(w)
			w.edit(user, op.job(w), func(o map[string]any) { op.hold(o, true) })
			w.pool = "b"
		}, allRun("b")}}},
		// So does a change of the pods of what serves: a policy suspends it in the same request.
		{"its user suspends it and changes its pods", []step{starts, {"the new ones run", func(w *world) {
			op := op(w)
			w.edit(user, op.job(w), func(o map[string]any) { op.hold(o, true); double(o["spec"]) })
			w.pool = "b"
		}, func(w *world) bool {
			return allRun("b")(w) && double(runtime.DeepCopyJSON(op(w).job(w).Object)["spec"]) == 2*double(op(w).submitted().Object["spec"])
		}}}},
	}
	if !endless {
		out = append(out, story{"its operator is down when it ends", []step{starts, {"the quota is kept", func(w *world) {
			op(w).say(w, succeeded)
			w.down = true
		}, func(w *world) bool {
			return pass(w, 60) && (op(w).kind == "Job" || workload.HasQuota(w.workload()))
		}}, {"it is over", func(w *world) { w.down = false }, isOver(kueue.WorkloadFinishedReasonSucceeded)}}})
	}
	return out
}

// readiness is the story of a job one of whose pods is not ready for a while.
var readiness = story{"a pod is not ready for a while", []step{starts,
	{"all are ready", nil, saysReady(metav1.ConditionTrue)},
	{"one is not", setReady(metav1.ConditionFalse), saysReady(metav1.ConditionFalse)},
	{"it is again", setReady(metav1.ConditionTrue), saysReady(metav1.ConditionTrue)}}}

// saysReady reports whether the Workload says that all pods are ready, or not.
func saysReady(status metav1.ConditionStatus) func(*world) bool {
	return func(w *world) bool {
		own := w.workload()
		return own != nil && apimeta.IsStatusConditionPresentAndEqual(own.Status.Conditions, kueue.WorkloadPodsReady, status)
	}
}

// setReady makes the first pod ready, or not.
func setReady(status metav1.ConditionStatus) func(*world) {
	return func(w *world) {
		w.edit(node, w.running()[0], func(o map[string]any) {
			set(o, []any{map[string]any{"type": "Ready", "status": string(status)}}, "status", "conditions")
		})
	}
}

// reportingPods has Muster begin again with other settings.
func (w *world) reportingPods() *world {
	w.podsReady = true
	w.begin()
	return w
}

// double doubles the requests of all containers below a value, and returns the requests before.
func double(value any) (cpus int64) {
	switch x := value.(type) {
	case map[string]any:
		if cpu, ok := x["cpu"].(int64); ok {
			x["cpu"] = 2 * cpu
			cpus = cpu
		}
		for _, inner := range x {
			cpus += double(inner)
		}
	case []any:
		for _, inner := range x {
			cpus += double(inner)
		}
	}
	return cpus
}

func op(w *world) *operator { return w.actor.(*operator) }

func (s step) with(do func(*world), until func(*world) bool) step { return step{s.what, do, until} }

// pass reports whether a step has lasted so many seconds.
func pass(w *world, seconds int) bool {
	return w.now.Sub(w.began) >= time.Duration(seconds)*time.Second
}

// play plays a story, up to its end or to the first promise that is broken.
func (w *world) play(s story) {
	for _, x := range s.steps {
		w.began = w.now
		if x.do != nil {
			x.do(w)
		}
		for seconds := 0; !x.until(w); seconds++ {
			if w.tick(); len(w.wrong) > 0 {
				return
			}
			if seconds > patience {
				w.fail("it hangs: %q does not come", x.what)
				if job := w.actor.job(w); job != nil {
					w.fail("of its job differs (-submitted +now):\n%s", w.actor.held(w))
				}
				return
			}
		}
	}
	w.rest()
}

// rest fails unless Muster has nothing more to do.
func (w *world) rest() {
	before := w.changes
	for range leisure {
		w.tick()
	}
	if w.changes != before {
		w.fail("Muster does not rest: %d changes in %d seconds", w.changes-before, leisure)
	}
}

// report fails the test if a promise is broken.
func (w *world) report(t *testing.T, format string, args ...any) {
	t.Helper()
	if len(w.wrong) > 0 {
		t.Errorf("%s: %s\nThe last that was told:\n  %s", fmt.Sprintf(format, args...), strings.Join(w.wrong, "\n  "),
			strings.Join(w.events[max(0, len(w.events)-5):], "\n  "))
	}
}

// lags are how late the cache of Muster may be. In the last two, it has the admission of a job
// before an edit of it, and the end of a job's stop before that is seen in the objects of its
// operator.
var lags = []lag{{}, evenly(2 * time.Second), {jobs: 4 * time.Second, workloads: 2 * time.Second}, {others: 4 * time.Second}}

// deaths are how late the cache may be before Muster dies and after. A first list may be of any
// age, of each kind.
var deaths = []struct{ before, after lag }{
	{}, {evenly(2 * time.Second), evenly(2 * time.Second)},
	{after: lag{jobs: 12 * time.Second}}, {after: lag{workloads: 12 * time.Second}},
}

// Run tests the reconciler of each kind that is built in, and of Own.
func Run(t *testing.T, subject func(schema.GroupVersionKind) Subject) {
	for i, op := range operators() {
		t.Run(op.kind+op.what, func(t *testing.T) {
			all := slices.Concat(stories(op.endless), withOperator(op.endless), kept())
			toInterrupt := []story{longest(all)}
			if op.scale != nil {
				first, others := ofElastic(op.endless)
				toInterrupt = append(toInterrupt, first...)
				all = slices.Concat(all, first, others)
			}
			begin := func() *world { return newWorld(subject(op.key().GroupVersionKind), op) }
			playAll(t, all, i, begin)
			playAll(t, []story{readiness}, i, func() *world { return begin().reportingPods() })
			count(t, all, op.writes, begin)
			if !t.Failed() && (!op.alike || !testing.Short()) {
				for _, s := range toInterrupt {
					interrupt(t, s, i, begin)
				}
			}
		})
	}
}

// isTurn reports whether the case is played of so many that differ in one thing. With -short, one of them is: the next one in the next
// turn, so that all are played over all kinds and stories.
func isTurn(n, of, turn int) bool { return !testing.Short() || n == turn%of }

// playAll plays each story with each lag of the cache, or with one in turn.
func playAll(t *testing.T, all []story, kind int, begin func() *world) {
	for i, s := range all {
		for n, lag := range lags {
			if !isTurn(n, len(lags), kind+i) {
				continue
			}
			w := begin()
			w.lag = lag
			w.play(s)
			w.report(t, "%s, with a cache %+v behind", s.name, lag)
		}
	}
}

// count fails the test if Muster needs other than the wanted writes for the first story, and for
// the one that it interrupts.
func count(t *testing.T, all []story, want [2]int, begin func() *world) {
	for i, s := range []story{all[0], longest(all)} {
		w := begin()
		w.play(s)
		if w.changes != want[i] {
			t.Errorf("%s: %d writes, want %d", s.name, w.changes, want[i])
		}
	}
}

func longest(all []story) story {
	return slices.MaxFunc(all, func(a, b story) int { return cmp.Compare(len(a.steps), len(b.steps)) })
}

// interrupt plays a story with a death of Muster at each of its writes, and with a
// deletion of the job at each moment. With -short, one death is played at each write.
func interrupt(t *testing.T, long story, kind int, begin func() *world) {
	for i, lag := range deaths {
		whole := begin()
		whole.lag = lag.before
		whole.play(long)
		for n := 1; n <= whole.writes; n++ {
			for j, answered := range []bool{false, true} {
				if !isTurn(2*i+j, 2*len(deaths), 3*(kind+n)) {
					continue
				}
				w := begin()
				w.lag, w.later, w.dieAt, w.answered = lag.before, lag.after, n, answered
				w.play(long)
				w.report(t, "Muster dies at write %d of %d, which takes effect: %v, with a cache %+v behind", n, whole.writes, answered, lag)
			}
		}
	}
	deleteAtEachMoment(t, long, begin)
}

// deleteAtEachMoment has the last step of a story, in which the job is deleted, come a second later
// in each run.
func deleteAtEachMoment(t *testing.T, s story, begin func() *world) {
	for at := 1; ; at++ {
		w := begin()
		seconds := 0
		cut := story{name: s.name}
		for _, x := range s.steps[:len(s.steps)-1] {
			cut.steps = append(cut.steps, step{x.what, x.do, func(w *world) bool { seconds++; return seconds > at || x.until(w) }})
		}
		w.play(story{s.name, append(cut.steps, s.steps[len(s.steps)-1])})
		w.report(t, "its user deletes it after %d seconds", at)
		if seconds <= at || t.Failed() {
			return
		}
	}
}
