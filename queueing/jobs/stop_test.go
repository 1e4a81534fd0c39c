package jobs_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// runs makes a rig whose Job has been admitted and started.
func runs(t *testing.T, job *batchv1.Job) *rig {
	g := newRig(t, job)
	g.settle()
	g.status(admit)
	g.settle()
	if isSuspended(g.job()) {
		t.Fatal("the Job was not started")
	}
	return g
}

var suspendedCondition = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}

// podsStop is the Job controller that has stopped the pods.
func (g *rig) podsStop() {
	g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.Conditions = 0, suspendedCondition })
}

// pod of the Job, as the API server has it.
func (g *rig) pod(name string, phase corev1.PodPhase) *corev1.Pod {
	g.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", Labels: map[string]string{batchv1.ControllerUidLabel: string(g.job().UID)},
	}}
	pod.Status.Phase = phase
	if err := g.c.Create(context.Background(), pod); err != nil {
		g.t.Fatal(err)
	}
	return pod
}

// TestAJobThatAPersonSuspendsQueuesAgain: its booking is used up, so it cannot just be started again. It keeps its position, and has a
// new attempt.
func TestAJobThatAPersonSuspendsQueuesAgain(t *testing.T) {
	for _, after := range []bool{false, true} {
		for dieAt := range 9 {
			job := suspendedJob(func(j *batchv1.Job) { j.Spec.Completions = new(int32(5)) })
			before := job.Spec.DeepCopy()
			g := newRig(t, job)
			g.dieAt, g.after = dieAt, after
			g.settle()
			g.status(admit)
			g.settle()
			g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.StartTime = 2, new(metav1.NewTime(now)) })
			g.updateJob(func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
			g.settle()
			if w := g.workload(); !workload.IsEvicted(w) || !workload.HasQuota(w) {
				t.Fatalf("die at %d: with pods left it is evicted: %v, has quota: %v", dieAt, workload.IsEvicted(w), workload.HasQuota(w))
			}
			g.updateJob(func(j *batchv1.Job) { j.Status.Succeeded = 4 })
			g.podsStop()
			g.settle()
			w := g.workload()
			if !isSuspended(g.job()) || workload.HasQuota(w) || w.Status.AdmissionChecks[0].State != kueue.CheckStatePending {
				t.Errorf("die at %d: suspended %v, has quota: %v, checks: %+v", dieAt, isSuspended(g.job()), workload.HasQuota(w),
					w.Status.AdmissionChecks)
			}
			if diff := cmp.Diff(*before, g.job().Spec); diff != "" {
				t.Errorf("die at %d: not restored (-want +got):\n%s", dieAt, diff)
			}
			if n := w.Spec.PodSets[0].Count; n != 1 {
				t.Errorf("die at %d: it queues for %d pods; one is left to run", dieAt, n)
			}
		}
	}
}

// TestQuotaIsNotReleasedOnAnOldStatus: the status says that the Job is suspended,
// as it was before the start, while the pods of the start are there.
func TestQuotaIsNotReleasedOnAnOldStatus(t *testing.T) {
	g := runs(t, suspendedJob(func(j *batchv1.Job) { j.Status.Conditions = suspendedCondition }))
	pod := g.pod("train-a", corev1.PodRunning)
	g.pod("train-b", corev1.PodSucceeded)
	g.status(evict)
	g.settle()
	if !workload.HasQuota(g.workload()) || !WasStarted(g.job()) {
		t.Errorf("with a pod running the quota is reserved: %v, the template as started: %v", workload.HasQuota(g.workload()),
			WasStarted(g.job()))
	}
	if err := g.c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	g.settle()
	if workload.HasQuota(g.workload()) || WasStarted(g.job()) {
		t.Error("the pods are gone, but not the quota")
	}
}

// TestAJobThatRanStartsInItsTurn: it was started without Muster, was stopped, and its status has a startTime that is in no record.
func TestAJobThatRanStartsInItsTurn(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.updateJob(func(j *batchv1.Job) { j.Status.StartTime = new(metav1.NewTime(now)) })
	g.settle()
	g.status(admit)
	g.settle()
	if j := g.job(); isSuspended(j) || !WasStarted(j) {
		t.Errorf("suspended: %t, with a record: %t", isSuspended(j), WasStarted(j))
	}
}

// TestAJobThatRanStartsOnceItsStatusHasNoPods: kube-apiserver refuses a change of the pod template before that, also of pods that are gone.
func TestAJobThatRanStartsOnceItsStatusHasNoPods(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.updateJob(func(j *batchv1.Job) { j.Status.Active = 1 })
	g.settle()
	g.status(admit)
	g.settle()
	if !isSuspended(g.job()) {
		t.Error("it starts while its status counts a pod")
	}
	g.updateJob(func(j *batchv1.Job) { j.Status.Active = 0 })
	g.settle()
	if isSuspended(g.job()) {
		t.Error("it does not start")
	}
}

// TestQuotaIsNotReleasedOnAnOldJob: the cache has the Job from before the start.
func TestQuotaIsNotReleasedOnAnOldJob(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.settle()
	old := g.job()
	g.status(admit)
	g.settle()
	g.status(evict)
	newest := *g.r.Client()
	*g.r.Client() = interceptor.NewClient(newest.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if job, ok := o.(*batchv1.Job); ok {
				old.DeepCopyInto(job)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	g.settle()
	if !workload.HasQuota(g.workload()) {
		t.Error("the quota of a running Job was given back")
	}
	*g.r.Client() = newest
	g.settle()
	if workload.HasQuota(g.workload()) || !isSuspended(g.job()) {
		t.Error("the Job is not stopped once the cache has caught up")
	}
}

// TestAJobThatLeavesItsQueueWhileItStops still gives its quota back.
func TestAJobThatLeavesItsQueueWhileItStops(t *testing.T) {
	g := runs(t, suspendedJob())
	g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.StartTime = 2, new(metav1.NewTime(now)) })
	g.status(evict)
	g.settle()
	g.updateJob(func(j *batchv1.Job) { delete(j.Labels, QueueLabel) })
	g.settle()
	before := g.job()
	g.podsStop()
	if !ConcernsQueues(g.r).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: g.job()}) {
		t.Error("the event that its pods are gone is dropped")
	}
	restored := g.job()
	delete(restored.Annotations, StartedAnnotation)
	if !ConcernsQueues(g.r).Create(event.CreateEvent{Object: restored}) {
		t.Error("after a restart a Job that has quota is passed over")
	}
	g.settle()
	if g.workload() != nil {
		t.Error("its Workload is left")
	}
	if ConcernsQueues(g.r).Create(event.CreateEvent{Object: restored}) {
		t.Error("a Job that has nothing to do with queues is looked at")
	}
}

// TestStrangeRecords: a record may be a user's own doing.
func TestStrangeRecords(t *testing.T) {
	g := newRig(t, suspendedJob(func(j *batchv1.Job) {
		j.Annotations = map[string]string{StartedAnnotation: `{"annotations":{"a":"b"},"labels":{"c":"d"}}`}
		j.Spec.Template.Annotations, j.Spec.Template.Labels = nil, nil
	}))
	g.settle()
	if got := g.job().Spec.Template; got.Annotations["a"] != "b" || got.Labels["c"] != "d" {
		t.Errorf("not put back: %v, %v", got.Annotations, got.Labels)
	}

	g = newRig(t, suspendedJob(func(j *batchv1.Job) { j.Annotations = map[string]string{StartedAnnotation: "no JSON"} }))
	g.settle()
	if events := g.newEvents(); g.workload() == nil || WasStarted(g.job()) || !strings.Contains(events, StartedAnnotation) {
		t.Errorf("with a record that is none it does not queue: record %v, Workload %v, events %q", WasStarted(g.job()), g.workload(), events)
	}

	g = newRig(t, suspendedJob(func(j *batchv1.Job) {
		j.Labels, j.Annotations = nil, map[string]string{StartedAnnotation: "no JSON"}
	}))
	g.settle()
	if g.writes > 0 || g.newEvents() != "" {
		t.Error("a Job of no queue is not left alone")
	}

	g = newRig(t, suspendedJob(func(j *batchv1.Job) {
		j.Labels, j.Spec.Suspend = nil, new(false)
		j.Annotations = map[string]string{StartedAnnotation: `{}`}
	}))
	g.settle()
	if isSuspended(g.job()) {
		t.Error("a running Job of no queue was stopped, because it was copied from one that had been in a queue")
	}
}
