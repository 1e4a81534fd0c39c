package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// startsWith returns a rig whose Job the Job controller has just started with as many pods. looks counts how often events are listed.
func startsWith(t *testing.T, pods int32, change ...func(*batchv1.Job)) (g *rig, looks *int) {
	g, looks = runs(t, suspendedJob(change...)), new(int)
	inner := g.c
	*g.r.Live() = interceptor.NewClient(inner, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.EventList); ok {
				*looks++
			}
			return c.List(ctx, list, opts...)
		},
	})
	g.jobStarts(pods)
	g.settle()
	return g, looks
}

// jobStarts is the Job controller that has made so many pods of a Job at its start.
func (g *rig) jobStarts(pods int32) {
	g.t.Helper()
	g.updateJob(func(j *batchv1.Job) {
		j.Status.StartTime, j.Status.Active = new(metav1.NewTime(g.now)), pods
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}}
	})
}

// refuses simulates the Job controller reporting, at a time from the start of the test, that a pod could not be created.
func (g *rig) refuses(at time.Duration, change ...func(*corev1.Event)) {
	g.t.Helper()
	g.made++
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("event-", g.made)}}
	e.InvolvedObject = corev1.ObjectReference{Kind: "Job", Name: "train", Namespace: "default", UID: g.job().UID}
	e.Reason, e.Source.Component = "FailedCreate", "job-controller"
	e.Message = fmt.Sprintf(`Error creating: pods "train-%d" is forbidden: exceeded quota: none`, g.made)
	e.FirstTimestamp, e.LastTimestamp = metav1.NewTime(now.Add(at)), metav1.NewTime(now.Add(at))
	for _, f := range change {
		f(e)
	}
	if err := g.c.Create(context.Background(), e); err != nil {
		g.t.Fatal(err)
	}
}

// podOf the Job that was created at a time from the start of the test.
func (g *rig) podOf(at time.Duration, phase corev1.PodPhase) {
	g.t.Helper()
	g.made++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("train-", g.made), Namespace: "default", CreationTimestamp: metav1.NewTime(now.Add(at)),
		Labels: map[string]string{batchv1.ControllerUidLabel: string(g.job().UID)},
	}}
	pod.Status.Phase = phase
	if err := g.c.Create(context.Background(), pod); err != nil {
		g.t.Fatal(err)
	}
}

// refusal is what the Workload says of refused pods; empty is nothing.
func refusal(w *kueue.Workload) string {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady); c != nil && c.Reason == workload.ReasonPodsRefused {
		return c.Message
	}
	return ""
}

// TestPodsThatTheAPIServerRefuses are reported on the Workload if no pod exists and none was created after the refusal.
func TestPodsThatTheAPIServerRefuses(t *testing.T) {
	fails := func(n int32) func(*rig) {
		return func(g *rig) { g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.Failed = 0, n }) }
	}
	waits := func(g *rig) { *g.r.PodsReady() = true }
	for name, tt := range map[string]struct {
		pods    int32
		job     func(*batchv1.Job)
		happens []func(*rig)
		// after is when the Job is reconciled, counted from its start; 0 is 5 s.
		after time.Duration
		// want is the reported message. looks is how often events are listed.
		want  string
		looks int
	}{
		"at its start": {happens: []func(*rig){func(g *rig) { g.refuses(0) }}, want: `pods "train-`, looks: 1},
		"again and again": {happens: []func(*rig){
			func(g *rig) { g.refuses(time.Second) },
			func(g *rig) {
				g.refuses(3*time.Second, func(e *corev1.Event) { e.Message = "Error creating: the last" })
			},
			func(g *rig) { g.refuses(2 * time.Second) },
		}, want: "the last", looks: 1},
		"counted in one event": {happens: []func(*rig){func(g *rig) {
			g.refuses(-time.Minute, func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(now.Add(time.Second)) })
		}}, want: "exceeded quota", looks: 1},
		"in an event of the new kind": {happens: []func(*rig){func(g *rig) {
			g.refuses(0, func(e *corev1.Event) {
				e.FirstTimestamp, e.LastTimestamp, e.EventTime = metav1.Time{}, metav1.Time{}, metav1.NewMicroTime(now.Add(time.Second))
			})
		}}, want: "exceeded quota", looks: 1},
		"in a series of events": {happens: []func(*rig){func(g *rig) {
			g.refuses(-time.Minute, func(e *corev1.Event) {
				e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(now.Add(time.Second))}
			})
		}}, want: "exceeded quota", looks: 1},
		"at the last start, which is over": {happens: []func(*rig){func(g *rig) { g.refuses(-time.Second) }}, looks: 1},
		"those of another Job": {happens: []func(*rig){func(g *rig) {
			g.refuses(0, func(e *corev1.Event) { e.InvolvedObject.UID = "another" })
		}}, looks: 1},
		"a Workload, by an event of Muster's own": {happens: []func(*rig){func(g *rig) {
			g.refuses(0, func(e *corev1.Event) { e.Source.Component = "muster-job" })
		}}, looks: 1},
		"none":               {looks: 1},
		"it is early":        {happens: []func(*rig){func(g *rig) { g.refuses(0) }}, after: 4 * time.Second},
		"all pods are there": {pods: 2, happens: []func(*rig){func(g *rig) { g.refuses(0) }}},
		"it has nothing left": {
			job:     func(j *batchv1.Job) { j.Status.Succeeded, j.Spec.Completions = 2, new(int32(2)) },
			happens: []func(*rig){func(g *rig) { g.refuses(0) }},
		},
		"they came a moment after": {happens: []func(*rig){
			func(g *rig) { g.refuses(time.Second) },
			func(g *rig) { g.podOf(2*time.Second, corev1.PodFailed) },
			fails(1),
		}, looks: 1},
		"the first one ended, the second is refused": {happens: []func(*rig){
			func(g *rig) { g.podOf(time.Second, corev1.PodFailed) },
			func(g *rig) { g.refuses(2 * time.Second) },
			fails(1),
		}, want: "exceeded quota", looks: 1},
		"the last one of a Job whose quota no other Workload wants": {
			job: func(j *batchv1.Job) { j.Spec.Completions = new(int32(3)) },
			happens: []func(*rig){
				func(g *rig) { g.podOf(0, corev1.PodSucceeded) },
				func(g *rig) { g.podOf(0, corev1.PodSucceeded) },
				func(g *rig) { g.updateJob(func(j *batchv1.Job) { j.Status.Succeeded = 2 }) },
				func(g *rig) { g.refuses(time.Second) },
			}, want: "exceeded quota", looks: 1,
		},
		"a pod is there that the status does not show": {happens: []func(*rig){
			func(g *rig) { g.refuses(2 * time.Second) },
			func(g *rig) { g.podOf(time.Second, corev1.PodPending) },
		}, looks: 1},
		"its outcome is settled": {happens: []func(*rig){
			func(g *rig) { g.refuses(0) },
			func(g *rig) {
				g.updateJob(func(j *batchv1.Job) {
					j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue})
				})
			},
		}},
		"the Job controller has not seen the start": {happens: []func(*rig){
			func(g *rig) { g.refuses(0) },
			func(g *rig) { g.updateJob(func(j *batchv1.Job) { j.Status.Conditions = suspendedCondition }) },
		}},
		"half of a Job, which may run so": {pods: 1, happens: []func(*rig){
			func(g *rig) { g.podOf(0, corev1.PodRunning) },
			func(g *rig) { g.refuses(time.Second) },
		}},
		"half of a Job, where all are waited for": {pods: 1, happens: []func(*rig){
			waits,
			func(g *rig) { g.podOf(0, corev1.PodRunning) },
			func(g *rig) { g.refuses(0) },
		}, want: "exceeded quota", looks: 1},
		"the pod in place of one that is lost, where all are waited for": {pods: 1, happens: []func(*rig){
			waits,
			func(g *rig) {
				g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.Ready = 2, new(int32(2)) })
				g.settle()
				g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.Ready = 1, new(int32(1)) })
			},
			func(g *rig) { g.podOf(0, corev1.PodRunning) },
			func(g *rig) { g.refuses(time.Second) },
		}},
		"half of a Job whose other half has failed already": {pods: 1, happens: []func(*rig){
			waits,
			func(g *rig) { g.updateJob(func(j *batchv1.Job) { j.Status.Failed = 1 }) },
			func(g *rig) { g.refuses(time.Second) },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.job == nil {
				tt.job = func(*batchv1.Job) {}
			}
			g, looks := startsWith(t, tt.pods, tt.job)
			for _, f := range tt.happens {
				f(g)
			}
			g.settle()
			if tt.after == 0 {
				tt.after = Lag
			}
			g.now = g.now.Add(tt.after)
			g.settle()
			got := refusal(g.workload())
			if (got != "") != (tt.want != "") || !strings.Contains(got, tt.want) || strings.Contains(got, "Error creating") {
				t.Errorf("it tells %q, want %q", got, tt.want)
			}
			if *looks != tt.looks {
				t.Errorf("events are read %d times, want %d", *looks, tt.looks)
			}
		})
	}
}

// TestEventsAreReadLessAndLessOften where pods do not come for another reason.
func TestEventsAreReadLessAndLessOften(t *testing.T) {
	g, looks := startsWith(t, 0)
	var at []int
	train := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "train"}}
	for second := range 1000 {
		g.now = now.Add(time.Duration(second) * time.Second)
		before := *looks
		result, err := g.r.Reconcile(context.Background(), train)
		if err != nil || result.RequeueAfter != Lag {
			t.Fatalf("after %d s it is looked at again after %s, %v", second, result.RequeueAfter, err)
		}
		if *looks > before {
			at = append(at, second)
		}
	}
	if got, want := fmt.Sprint(at), "[5 10 20 40 80 160 320 620 920]"; got != want {
		t.Errorf("events are read after %s seconds, want %s", got, want)
	}
	g.refuses(990 * time.Second)
	g.now = now.Add(1300 * time.Second)
	g.settle()
	if refusal(g.workload()) == "" {
		t.Error("a refusal that comes later is not told")
	}
}

// TestTheSecondStartIsAnother: what refused the pods of the first one is over.
func TestTheSecondStartIsAnother(t *testing.T) {
	g, _ := startsWith(t, 0)
	g.refuses(0)
	g.now = g.now.Add(Lag)
	g.settle()
	w := g.workload()
	if refusal(w) == "" {
		t.Fatal("the refusal is not told")
	}
	g.status(func(s *kueue.WorkloadStatus) {
		*s = *workload.Evicted(w, workload.ReasonPodsRefused, refusal(w), g.now)
	})
	g.settle()
	g.podsStop()
	g.settle()
	if w = g.workload(); workload.HasQuota(w) || refusal(w) != "" {
		t.Fatalf("with no pod left it has quota: %v, and tells %q", workload.HasQuota(w), refusal(w))
	}
	g.now = g.now.Add(time.Minute)
	g.status(func(s *kueue.WorkloadStatus) { set(s, kueue.WorkloadEvicted, "False"); admit(s) })
	g.settle()
	g.jobStarts(0)
	g.settle()
	g.now = g.now.Add(2 * Lag)
	g.settle()
	if got := refusal(g.workload()); got != "" || isSuspended(g.job()) {
		t.Errorf("started again: %v, it tells %q of the first start", !isSuspended(g.job()), got)
	}
	g.refuses(g.now.Sub(now))
	g.now = g.now.Add(4 * Lag)
	g.settle()
	if refusal(g.workload()) == "" {
		t.Error("that the second start is refused, too, is not told")
	}
}

// TestAdoptedJobsAreLeftAlone even if their pods are refused: they ran before Muster was installed.
func TestAdoptedJobsAreLeftAlone(t *testing.T) {
	g, looks := startsWith(t, 0)
	g.updateJob(func(j *batchv1.Job) { delete(j.Annotations, StartedAnnotation) })
	g.refuses(0)
	g.now = g.now.Add(Lag)
	g.settle()
	if got := refusal(g.workload()); got != "" || *looks != 0 {
		t.Errorf("it tells %q, after %d looks", got, *looks)
	}
}
