package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/dispatch"
	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/workload"
)

var now = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// rig is a Job with what is around it.
type rig struct {
	t      *testing.T
	c      client.WithWatch
	r      *Reconciler
	events *events.FakeRecorder
	now    time.Time
	writes int
	made   int
	// dieAt is the number of the write at which the process dies once; 0 is never.
	dieAt int
	after bool
	// refuse is the answer to what would be created.
	refuse error
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}}
	flavor.Spec.NodeLabels = map[string]string{"pool": "spot"}
	flavor.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	g := &rig{t: t, events: events.NewFakeRecorder(100), now: now}
	inner := fake.NewClientBuilder().WithScheme(s).WithObjects(append(objects, flavor)...).
		WithStatusSubresource(&kueue.Workload{}, &batchv1.Job{}).
		WithIndex(&batchv1.Job{}, PrebuiltIndex, new(Reconciler).PrebuiltOf).WithIndex(&batchv1.Job{}, ControllerIndex, ControllerOf).
		WithIndex(&kueue.Workload{}, ControllerIndex, ControllerOf).
		WithIndex(&corev1.Event{}, "involvedObject.uid", eventField(func(e *corev1.Event) string { return string(e.InvolvedObject.UID) })).
		WithIndex(&corev1.Event{}, "reason", eventField(func(e *corev1.Event) string { return e.Reason })).
		WithIndex(&corev1.Event{}, "source", eventField(func(e *corev1.Event) string { return e.Source.Component })).
		Build()
	g.c = inner
	counted := interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if g.refuse != nil {
				return g.refuse
			}
			return g.write(func() error {
				// What the API server adds, with a clock that never stands still.
				g.made++
				o.SetUID(types.UID(fmt.Sprint("made-", g.made)))
				o.SetCreationTimestamp(metav1.NewTime(now.Add(time.Duration(g.made) * time.Second)))
				return c.Create(ctx, o, opts...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return g.write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if j, ok := o.(*batchv1.Job); ok && !equality.Semantic.DeepEqual(g.job().Spec.Template, j.Spec.Template) &&
				g.job().Status.StartTime != nil {
				// As before Kubernetes 1.36.
				return apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), j.Name, field.ErrorList{
					field.Invalid(field.NewPath("spec", "template"), "", "field is immutable")})
			}
			return g.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return g.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	g.r = NewReconciler(batch.Kind{}, counted, inner, g.events, func() time.Time { return g.now })
	return g
}

// eventField has the fake API server select events by a field, as the real one does.
func eventField(get func(*corev1.Event) string) client.IndexerFunc {
	return func(o client.Object) []string { return []string{get(o.(*corev1.Event))} }
}

var errDied = errors.New("the process died")

func (g *rig) write(f func() error) error {
	g.writes++
	if g.writes != g.dieAt {
		return f()
	}
	if g.after {
		if err := f(); err != nil {
			return err
		}
	}
	return errDied
}

// settle reconciles until nothing is left to do, playing the Job controller that
// notes a suspension once it has stopped the pods.
func (g *rig) settle() {
	g.t.Helper()
	for range 8 {
		_, err := g.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "train"}})
		if err != nil && !errors.Is(err, errDied) {
			g.t.Fatal(err)
		}
	}
}

// newEvents returns the events since its last call.
func (g *rig) newEvents() (out string) {
	for {
		select {
		case e := <-g.events.Events:
			out += e + "\n"
		default:
			return out
		}
	}
}

func (g *rig) job() *batchv1.Job {
	g.t.Helper()
	job := &batchv1.Job{}
	if err := g.c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "train"}, job); err != nil {
		g.t.Fatal(err)
	}
	return job
}

// workload is nil if there is none.
func (g *rig) workload() *kueue.Workload {
	w, err := WorkloadOf(g.r, context.Background(), g.job())
	if err != nil {
		g.t.Fatal(err)
	}
	return w
}

func (g *rig) updateJob(change func(*batchv1.Job)) {
	g.t.Helper()
	job := g.job()
	change(job)
	if err := g.c.Update(context.Background(), job); err != nil {
		g.t.Fatal(err)
	}
	change(job)
	if err := g.c.Status().Update(context.Background(), job); err != nil {
		g.t.Fatal(err)
	}
}

// status changes the Workload's status as the queue controller would.
func (g *rig) status(change func(*kueue.WorkloadStatus)) {
	g.t.Helper()
	w := g.workload()
	status := w.Status.DeepCopy()
	change(status)
	if _, err := writes.ApplyStatus(context.Background(), g.c, w, status); err != nil {
		g.t.Fatal(err)
	}
}

func set(status *kueue.WorkloadStatus, condition, value string) {
	for i := range status.Conditions {
		if status.Conditions[i].Type == condition {
			status.Conditions[i].Status = metav1.ConditionStatus(value)
			return
		}
	}
	status.Conditions = append(status.Conditions, metav1.Condition{
		Type: condition, Status: metav1.ConditionStatus(value), Reason: "Test", Message: "test", LastTransitionTime: metav1.NewTime(now),
	})
}

func admit(status *kueue.WorkloadStatus) {
	set(status, kueue.WorkloadQuotaReserved, "True")
	set(status, kueue.WorkloadAdmitted, "True")
	status.Admission = &kueue.Admission{ClusterQueue: "team", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(2)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
	}}}
	status.AdmissionChecks = []kueue.AdmissionCheckState{{
		Name: "capacity", State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(now),
		PodSetUpdates: []kueue.PodSetUpdate{{
			Name: "main", Annotations: map[string]string{"booking": "b1"}, NodeSelector: map[string]string{"booked.muster.dev/b1": "default"},
		}},
	}}
}

func evict(status *kueue.WorkloadStatus) { set(status, kueue.WorkloadEvicted, "True") }

func suspendedJob(change ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "train", Namespace: "default", UID: "1234", Labels: map[string]string{QueueLabel: "main"},
	}}
	job.Spec.Suspend = new(true)
	job.Spec.Parallelism = new(int32(2))
	job.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "train"}, Annotations: map[string]string{"mine": "kept"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"disk": "ssd"},
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
			}}},
		},
	}
	for _, f := range change {
		f(job)
	}
	return job
}

func TestWorkloadName(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "foo", UID: "1234"}}
	// The first digits of: printf 'Job\nbatch\nfoo\n1234' | sha1sum
	if got, want := WorkloadName(batch.Kind{}.GroupVersionKind(), job), "job-foo-d0be8"; got != want {
		t.Errorf("WorkloadName = %q, want %q, which is Kueue's", got, want)
	}
	job.Name = strings.Repeat("x", 253)
	if got := WorkloadName(batch.Kind{}.GroupVersionKind(), job); len(got) != 253 {
		t.Errorf("a long name has %d characters, want 253: %s", len(got), got)
	}
}

func TestLifeOfAJob(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.settle()
	w := g.workload()
	if w == nil || w.Spec.PodSets[0].Count != 2 || w.Spec.QueueName != "main" || *w.Spec.Priority != 0 {
		t.Fatalf("Workload: %+v", w)
	}
	g.status(admit)
	g.settle()
	job := g.job()
	want := suspendedJob().Spec.Template
	want.Spec.NodeSelector = map[string]string{"disk": "ssd", "pool": "spot", "booked.muster.dev/b1": "default"}
	want.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	want.Annotations = map[string]string{"mine": "kept", "booking": "b1"}
	want.Labels = map[string]string{"app": "train", PodSetLabel: "main", LocalQueueLabel: "main", ClusterQueueLabel: "team"}
	if diff := cmp.Diff(want, job.Spec.Template); diff != "" || isSuspended(job) {
		t.Errorf("suspended: %v, template (-want +got):\n%s", isSuspended(job), diff)
	}
	g.updateJob(func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: "pods failed"}}
	})
	g.settle()
	for _, c := range g.workload().Status.Conditions {
		if c.Type == kueue.WorkloadFinished && (c.Reason != kueue.WorkloadFinishedReasonFailed || c.Message != "pods failed") {
			t.Errorf("finished: %+v", c)
		}
	}
	if !workload.IsFinished(g.workload()) {
		t.Error("the Workload is not finished")
	}
	// With the admission that makes four, of five that a Job may cost.
	if g.writes != 3 {
		t.Errorf("%d writes, want 3: create the Workload, start the Job, finish the Workload", g.writes)
	}
}

// TestLabelsThatAWorkloadHasOfItsJob: the Workload gets the configured labels that the Job has.
func TestLabelsThatAWorkloadHasOfItsJob(t *testing.T) {
	g := newRig(t, suspendedJob(func(j *batchv1.Job) { j.Labels["team"], j.Labels["mine"], j.Labels[JobUIDLabel] = "a", "b", "forged" }))
	*g.r.LabelsToCopy() = []string{"team", "absent", JobUIDLabel}
	g.settle()
	if diff := cmp.Diff(map[string]string{JobUIDLabel: "1234", "team": "a"}, g.workload().Labels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAJobThatCannotStartAsAChecksWants is finished, as in Kueue, and its user's values
// stay.
func TestAJobThatCannotStartAsAChecksWants(t *testing.T) {
	for name, tt := range map[string]struct {
		update kueue.PodSetUpdate
		want   string
	}{
		"an annotation": {kueue.PodSetUpdate{Annotations: map[string]string{"mine": "other"}},
			"invalid admission check PodSetUpdate: conflict for annotations: conflict for key=mine, value1=kept, value2=other"},
		"a label": {kueue.PodSetUpdate{Labels: map[string]string{"app": "other"}},
			"conflict for labels: conflict for key=app"},
		"a node label": {kueue.PodSetUpdate{NodeSelector: map[string]string{"disk": "hdd"}},
			"conflict for nodeSelector: conflict for key=disk"},
		"a node label of its flavor": {kueue.PodSetUpdate{NodeSelector: map[string]string{"pool": "other"}},
			"conflict for nodeSelector: conflict for key=pool"},
		"another check": {kueue.PodSetUpdate{Annotations: map[string]string{"booking": "b2"}},
			"conflict for annotations: conflict for key=booking, value1=b1, value2=b2"},
		"the same values": {kueue.PodSetUpdate{Annotations: map[string]string{"mine": "kept"},
			Labels: map[string]string{"app": "train"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob())
			g.settle()
			g.status(func(s *kueue.WorkloadStatus) {
				admit(s)
				tt.update.Name = "main"
				s.AdmissionChecks = append(s.AdmissionChecks, kueue.AdmissionCheckState{
					Name: "second", State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(now), PodSetUpdates: []kueue.PodSetUpdate{tt.update},
				})
			})
			g.settle()
			c := apimeta.FindStatusCondition(g.workload().Status.Conditions, kueue.WorkloadFinished)
			if tt.want == "" {
				if c != nil || isSuspended(g.job()) {
					t.Errorf("it does not start: %+v", c)
				}
				return
			}
			if c == nil || c.Reason != "FailedToStart" || !strings.Contains(c.Message, tt.want) {
				t.Errorf("finished: %+v, want %s", c, tt.want)
			}
			if diff := cmp.Diff(suspendedJob().Spec, g.job().Spec); diff != "" {
				t.Errorf("the Job is changed (-want +got):\n%s", diff)
			}
			if told := g.newEvents(); !strings.Contains(told, "FailedToStart") {
				t.Errorf("its user is told %q", told)
			}
		})
	}
}

// TestStopAndRestore evicts a running Job, and does so again with the process
// dying at each of its writes.
func TestStopAndRestore(t *testing.T) {
	for _, after := range []bool{false, true} {
		for dieAt := range 9 {
			g := newRig(t, suspendedJob())
			g.dieAt, g.after = dieAt, after
			g.settle()
			g.status(admit)
			g.settle()
			g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.StartTime = 2, new(metav1.NewTime(now)) })
			g.status(evict)
			g.settle()
			if !isSuspended(g.job()) || !workload.HasQuota(g.workload()) {
				t.Fatalf("die at %d: with pods left the Job is suspended: %v, its quota reserved: %v", dieAt, isSuspended(g.job()),
					workload.HasQuota(g.workload()))
			}
			g.updateJob(func(j *batchv1.Job) {
				j.Status.Active = 0
				j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
			})
			g.settle()
			if diff := cmp.Diff(suspendedJob().Spec, g.job().Spec); diff != "" || WasStarted(g.job()) {
				t.Errorf("die at %d: not restored (-want +got):\n%s", dieAt, diff)
			}
			if w := g.workload(); workload.HasQuota(w) || w.Status.Admission != nil {
				t.Errorf("die at %d: the quota is still reserved", dieAt)
			}
		}
	}
}

func TestUnusualJobs(t *testing.T) {
	running := func(j *batchv1.Job) { j.Spec.Suspend = new(false) }
	started := func(j *batchv1.Job) {
		j.Annotations = map[string]string{StartedAnnotation: `{"nodeSelector":{"disk":"ssd"}}`}
	}
	for name, c := range map[string]struct {
		job *batchv1.Job
		// act happens after the first time that all is settled.
		act           func(*rig)
		wantSuspended bool
		wantWorkload  bool
		// wantRefused is a part of the Workload's refusal.
		wantRefused string
	}{
		"a job whose workload a user deletes runs on": {
			job:          suspendedJob(running, started),
			wantWorkload: true,
		},
		"a job that a user unsuspends while it waits is suspended again": {
			job:           suspendedJob(),
			act:           func(g *rig) { g.updateJob(running) },
			wantSuspended: true, wantWorkload: true,
		},
		"a job that an admin lets run is forgotten": {
			job: suspendedJob(),
			act: func(g *rig) {
				g.updateJob(func(j *batchv1.Job) {
					running(j)
					j.Annotations = map[string]string{BreakGlassAnnotation: "demo in five minutes"}
				})
			},
		},
		"a job whose workload loses its owner runs on": {
			job: suspendedJob(),
			act: func(g *rig) {
				g.status(admit)
				g.settle()
				w := g.workload()
				w.OwnerReferences = nil
				if err := g.c.Update(g.t.Context(), w); err != nil {
					g.t.Fatal(err)
				}
			},
			wantWorkload: true,
		},
		"a job that leaves its queue is forgotten": {
			job:           suspendedJob(),
			act:           func(g *rig) { g.updateJob(func(j *batchv1.Job) { delete(j.Labels, QueueLabel) }) },
			wantSuspended: true,
		},
		"a job edited while its quota is reserved queues again": {
			job: suspendedJob(),
			act: func(g *rig) {
				g.status(func(s *kueue.WorkloadStatus) { admit(s); set(s, kueue.WorkloadAdmitted, "False") })
				g.updateJob(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(9)) })
			},
			wantSuspended: true, wantWorkload: true,
		},
		"a missing priority class is told": {
			job:           suspendedJob(func(j *batchv1.Job) { j.Labels[PriorityClassLabel] = "gold" }),
			wantSuspended: true, wantWorkload: true, wantRefused: `WorkloadPriorityClass "gold"`,
		},
		"what is in no place where it is read is told": {
			job:           suspendedJob(func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/podset-group-name"] = "mine" }),
			wantSuspended: true, wantWorkload: true, wantRefused: "podset-group-name",
		},
		"a malformed execution time is told": {
			job:           suspendedJob(func(j *batchv1.Job) { j.Labels[MaxExecTimeLabel] = "1h" }),
			wantSuspended: true, wantWorkload: true, wantRefused: "not a number of seconds",
		},
		"a malformed number of clusters is told": {
			job:           suspendedJob(func(j *batchv1.Job) { j.Annotations = map[string]string{dispatch.HedgeAnnotation: "all"} }),
			wantSuspended: true, wantWorkload: true, wantRefused: "give a number of clusters from 1 to 5",
		},
		"an execution time of nothing is told": {
			job:           suspendedJob(func(j *batchv1.Job) { j.Labels[MaxExecTimeLabel] = "0" }),
			wantSuspended: true, wantWorkload: true, wantRefused: "not a number of seconds",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, c.job)
			g.settle()
			if c.act != nil {
				c.act(g)
				g.settle()
			}
			w := g.workload()
			if isSuspended(g.job()) != c.wantSuspended || (w != nil) != c.wantWorkload {
				t.Fatalf("suspended: %v, want %v; Workload: %v, want %v", isSuspended(g.job()), c.wantSuspended, w != nil, c.wantWorkload)
			}
			if w == nil {
				return
			}
			if workload.HasQuota(w) {
				t.Error("it has quota")
			}
			if seconds := w.Spec.MaximumExecutionTimeSeconds; seconds != nil && *seconds < 1 {
				t.Errorf("the API takes no execution time of %d", *seconds)
			}
			if n := w.Spec.PodSets[0].Count; n != *g.job().Spec.Parallelism {
				t.Errorf("the Workload has %d pods", n)
			}
			if got := w.Annotations[workload.RefusedAnnotation]; (got == "") != (c.wantRefused == "") || !strings.Contains(got, c.wantRefused) {
				t.Errorf("refused because of %q, want %q", got, c.wantRefused)
			}
			if WasStarted(g.job()) && c.wantSuspended {
				t.Error("the record of the start is left")
			}
		})
	}
}

// TestNothingToDo reconciles Jobs that wait and run, and counts writes.
func TestNothingToDo(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.settle()
	g.writes = 0
	g.settle()
	if g.writes != 0 {
		t.Errorf("%d writes for a Job that waits", g.writes)
	}
}

func isSuspended(job *batchv1.Job) bool { return batch.Kind{}.IsSuspended(job) }

// granted is how many pods of a Job's Workload have quota now, and reclaimed how many have
// released it.
func granted(w *kueue.Workload) int32 { return Granted(w)[0] }

func reclaimed(w *kueue.Workload) int32 {
	if w.Status.Admission == nil {
		return int32(len(w.Status.ReclaimablePods))
	}
	return Reclaimed(w)[0]
}
