package jobs_test

import (
	"context"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/muster-dev/muster/queueing/jobs"
	ownerpredicates "github.com/muster-dev/muster/queueing/jobs/owners"
	"github.com/muster-dev/muster/queueing/workload"
)

// wakes reports whether a change enqueues the Job of the rig.
func (g *rig) wakes(before, after client.Object) bool {
	return slices.Contains(Asks(g.r, before, after), any(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(g.job())}))
}

// TestWhatThePodsAreGivenWakesTheJob: the requests of a LimitRange and the RuntimeClass stand in its Workload.
func TestWhatThePodsAreGivenWakesTheJob(t *testing.T) {
	g := newRig(t, suspendedJob(func(j *batchv1.Job) { j.Spec.Template.Spec.RuntimeClassName = new("kata") }))
	g.settle()
	if g.workload().Annotations[workload.RefusedAnnotation] == "" {
		t.Fatal("the RuntimeClass does not exist, and the Workload is not refused")
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata"}
	if err := g.c.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	if !g.wakes(nil, class) {
		t.Error("the RuntimeClass comes, and nobody asks for the Job")
	}
	if other := (&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}}); g.wakes(nil, other) {
		t.Error("another RuntimeClass comes, and the Job is asked for")
	}
	g.settle()
	if why := g.workload().Annotations[workload.RefusedAnnotation]; why != "" {
		t.Errorf("refused: %s", why)
	}
	ranges := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "defaults"}}
	if !g.wakes(nil, ranges) || !g.wakes(ranges, ranges) || !g.wakes(ranges, nil) {
		t.Error("a LimitRange comes, changes or goes, and nobody asks for the Job")
	}
	if ranges.Namespace = "other"; g.wakes(nil, ranges) {
		t.Error("a LimitRange of another namespace comes, and the Job is asked for")
	}
}

// TestAJobThatLeavesItsQueueWakesItsParts, and one that joins a queue: they queue by themselves, or with it.
func TestAJobThatLeavesItsQueueWakesItsParts(t *testing.T) {
	g := partOf(t, "batch/v1", "Job", "own", func(*batchv1.Job) {})
	named := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own", UID: "own"}}
	named.Labels = map[string]string{QueueLabel: "main"}
	named.Spec.Suspend = new(true)
	unnamed := named.DeepCopy()
	unnamed.Labels = nil
	for _, step := range []struct {
		before, after *batchv1.Job
		want          int
	}{{unnamed, named, 0}, {named, unnamed, 1}, {unnamed, named, 0}} {
		*g.r.Live() = &owners{Reader: g.c, queued: step.after == named, held: true}
		if !g.wakes(step.before, step.after) {
			t.Errorf("labels %v become %v, and nobody asks for the part", step.before.Labels, step.after.Labels)
		}
		if g.settle(); len(g.names()) != step.want {
			t.Errorf("labels %v: Workloads %v, want %d", step.after.Labels, g.names(), step.want)
		}
		if queued, err := IsQueued(g.r, t.Context(), g.job()); queued != (step.want == 1) || err != nil { // and is remembered
			t.Errorf("labels %v: queued: %v, error %v", step.after.Labels, queued, err)
		}
	}
}

// TestWhatLeavesItsQueueWakesWhatItMade, also what is made of that, and whatever its kind; so does what joins one.
func TestWhatLeavesItsQueueWakesWhatItMade(t *testing.T) {
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"})
	set.SetNamespace("default")
	set.SetUID("own")
	for _, above := range []string{"own", "between"} {
		version, kind := "jobset.x-k8s.io/v1alpha2", "JobSet"
		if above == "between" {
			version, kind = "batch/v1", "Job"
		}
		g := partOf(t, version, kind, above, func(*batchv1.Job) {})
		between := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "between", UID: "between"}}
		between.OwnerReferences = ownedBy("jobset.x-k8s.io/v1alpha2", "JobSet", "own", "own")
		if err := g.c.Create(t.Context(), between); err != nil {
			t.Fatal(err)
		}
		want := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(g.job())}
		if asked := JobsUnder(g.r, t.Context(), set); !slices.Contains(asked, want) {
			t.Errorf("below %s, asked for are %v", above, asked)
		}
	}
	queued := set.DeepCopy()
	queued.SetLabels(map[string]string{QueueLabel: "main"})
	passes := func(before, after client.Object) bool {
		return ownerpredicates.Requeued.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	if !passes(set, queued) || !passes(queued, set) || passes(queued, queued) ||
		ownerpredicates.Requeued.Create(event.CreateEvent{Object: queued}) {
		t.Error("it is asked for at other changes")
	}
}

// TestLabelsOfANamespaceWakeItsJobs, where they say that all of these queue.
func TestLabelsOfANamespaceWakeItsJobs(t *testing.T) {
	before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	after := before.DeepCopy()
	after.Labels = map[string]string{"managed": "true"}
	g := newRig(t, suspendedJob(func(j *batchv1.Job) { j.Labels = nil }))
	if g.wakes(before, after) {
		t.Error("only jobs that name a queue do, and all are asked for")
	}
	*g.r.Unqueued() = labels.SelectorFromSet(after.Labels)
	if !g.wakes(before, after) || !g.wakes(after, before) || !g.wakes(nil, after) {
		t.Error("nobody asks for the Job")
	}
	if g.wakes(after, after) {
		t.Error("the Job is asked for although no label has changed")
	}
}

// missing has the API server say that an object does not exist.
type missing struct{ client.Reader }

func (missing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "workloads"}, key.Name)
}

// TestAnOrphanThatIsJustGone had the name of the Job's Workload: its end is no event of the Job.
func TestAnOrphanThatIsJustGone(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.refuse = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "workloads"}, "job-train")
	*g.r.Live() = missing{g.c}
	result, err := g.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(g.job())})
	if err != nil || result.RequeueAfter <= 0 {
		t.Errorf("it comes back after %v, error %v", result.RequeueAfter, err)
	}
}
