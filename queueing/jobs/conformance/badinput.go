package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// BadInput tests what a user is told of a job that cannot be queued as it is, or that is changed
// as it should not be.
func BadInput(t *testing.T, subject func(schema.GroupVersionKind) Subject) {
	const jobSet = `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {suspend: SUSPEND, replicatedJobs: [JOBS]}}`
	const one = `{name: workers, template: {spec: {template: ` + container + `}}}`
	// label writes the label of the queue; empty takes it off.
	label := func(value string) func(*world) {
		return func(w *world) {
			w.edit(user, op(w).job(w), func(o map[string]any) {
				set(o, value, "metadata", "labels", jobs.QueueLabel)
				if value == "" {
					delete(get[map[string]any](o, "metadata", "labels"), jobs.QueueLabel)
				}
			})
		}
	}
	told := func(what string) func(*world) bool {
		return func(w *world) bool {
			return slices.ContainsFunc(w.told, func(e string) bool { return strings.Contains(e, what) })
		}
	}
	// refused jobs say so to their user and to their queue.
	refused := func(why string) []step {
		return []step{{"it is refused", nil, func(w *world) bool {
			own := w.workload()
			return told("Refused: The job cannot be queued as specified: "+why)(w) && own != nil && strings.Contains(own.Annotations[workload.RefusedAnnotation], why)
		}}}
	}
	unlabelled := step{"it has no queue", func(w *world) { w.pool = ""; label("")(w) }, func(w *world) bool { return w.workload() == nil && len(w.life.due) == 0 }}
	for _, c := range []struct {
		name, jobs string
		// running jobs are created so, without a queue.
		running bool
		steps   []step
	}{
		{name: "without pods", jobs: "", steps: refused("the JobSet has no pods; give it pod templates")},
		{name: "of 300 kinds of pods", jobs: func() (out string) {
			for i := range 300 {
				out += strings.Replace(one, "workers", fmt.Sprint("workers-", i), 1) + ","
			}
			return out
		}(), steps: refused("the JobSet has 300 kinds of pods, and a Workload has room for 18; join those that are alike, or split the JobSet")},
		{name: "whose pods have a bad name", jobs: strings.Replace(one, "workers", "my_workers", 1),
			steps: refused(`the pods "my_workers" of the JobSet have a name that cannot be that of a pod set`)},
		{name: "whose pods have a name twice", jobs: one + "," + one, steps: refused(`the JobSet has pods of the name "workers" twice; rename one`)},
		{name: "of no replicas", jobs: strings.Replace(one, "workers,", "workers, replicas: 0,", 1), steps: []step{{"it is started", nil, told("Started")}}},
		{name: "that gets a queue while it runs", jobs: one, running: true, steps: []step{
			{"it runs", nil, func(w *world) bool { return pass(w, 10) && len(w.running()) == 2 && w.workload() == nil }},
			{"it is stopped, and told so", label("main"), func(w *world) bool { return told("Stopped: Suspended: ")(w) && w.workload() != nil }},
			{"it runs by its queue", nil, allRun("a")}}},
		{name: "that leaves its queue while it waits", jobs: one, steps: []step{
			{"it waits", func(w *world) { w.pool = "" }, waits}, unlabelled, {"it is told", nil, told("LeftQueue: ")},
			{"it waits again", label("other"), func(w *world) bool { return w.workload() != nil }}}},
		{name: "that goes to another queue while it waits", jobs: one, steps: []step{
			{"it waits", func(w *world) { w.pool = "" }, waits},
			{"its Workload follows", label("other"), func(w *world) bool { return w.workload().Spec.QueueName == "other" }}}},
		{name: "whose start its operator refuses", jobs: one, steps: []step{
			{"it is told, and makes room", func(w *world) {
				w.refuses = func(o *unstructured.Unstructured) error {
					if o.GetKind() != "JobSet" {
						return nil
					}
					return apierrors.NewForbidden(schema.GroupResource{Resource: "jobsets"}, o.GetName(), fmt.Errorf("spec.network: no such network"))
				}
			}, func(w *world) bool {
				return told("StartRefused: ")(w) && told("spec.network: no such network")(w) && pass(w, 30) && !workload.HasQuota(w.workload())
			}},
			{"it runs once it is corrected", func(w *world) { w.refuses, w.pool = nil, "b" }, allRun("b")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := *operators()[2]
			bad.object = strings.NewReplacer("JOBS", c.jobs, "SUSPEND", fmt.Sprint(!c.running)).Replace(jobSet)
			bad.unqueued, bad.many = c.running, 2
			w := newWorld(subject(bad.key().GroupVersionKind), &bad)
			w.play(story{c.name, c.steps})
			w.report(t, "a JobSet %s", c.name)
		})
	}
}
