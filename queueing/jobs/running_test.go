package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestPriorityFollowsTheJob, as far as the API lets a Workload with quota change.
func TestPriorityFollowsTheJob(t *testing.T) {
	label := func(class string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Labels[PriorityClassLabel] = class }
	}
	none := func(*batchv1.Job) {}
	reserve := func(s *kueue.WorkloadStatus) { admit(s); set(s, kueue.WorkloadAdmitted, "False") }
	for name, c := range map[string]struct {
		job    func(*batchv1.Job)
		status func(*kueue.WorkloadStatus)
		edit   func(*rig)
		// base: PriorityClass base is the default one.
		base  bool
		want  int32
		again bool
	}{
		"another class while it waits": {
			job: label("low"), edit: func(g *rig) { g.updateJob(label("high")) }, want: 9,
		},
		"another class while it runs": {
			job: label("low"), status: admit, edit: func(g *rig) { g.updateJob(label("high")) }, want: 9,
		},
		"another class while it waits for a check": {
			job: label("low"), status: reserve, edit: func(g *rig) { g.updateJob(label("high")) }, want: 9,
		},
		"another value of its class, which the queues follow": {
			job: label("low"), edit: func(g *rig) { g.updateClass("low", 5) }, want: 1,
		},
		"another value of its class while it runs, which the queues follow": {
			job: label("low"), status: admit, edit: func(g *rig) { g.updateClass("low", 5) }, want: 1,
		},
		"a class that does not exist, while it runs": {
			job: label("low"), status: admit, edit: func(g *rig) { g.updateJob(label("none")) }, want: 1,
		},
		"a first class, which does not exist, while it waits for a check": {
			job: none, status: reserve, edit: func(g *rig) { g.updateJob(label("none")) }, want: 0,
		},
		"its class is deleted while it waits for a check": {
			job: label("low"), status: reserve, want: 1,
			edit: func(g *rig) { g.delete(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}}) },
		},
		"a first class while it waits for a check": {
			job: none, status: reserve, edit: func(g *rig) { g.updateJob(label("high")) }, want: 9, again: true,
		},
		"another default class, while it runs": {
			job: none, status: admit, want: 3, base: true,
			edit: func(g *rig) { g.defaultClass("base", false); g.defaultClass("other", true) },
		},
		"a class instead of that of its pods, while it runs": {
			job:    func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = "pods" },
			status: admit, edit: func(g *rig) { g.updateJob(label("high")) }, want: 7,
		},
	} {
		t.Run(name, func(t *testing.T) {
			class := func(name string, value int32) *kueue.WorkloadPriorityClass {
				return &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
			}
			g := newRig(t, suspendedJob(c.job), class("low", 1), class("high", 9),
				&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Value: 7},
				&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "base"}, Value: 3, GlobalDefault: c.base},
				&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Value: 4})
			g.settle()
			if c.status != nil {
				g.status(c.status)
				g.settle()
			}
			g.writes = 0
			c.edit(g)
			g.settle()
			w := g.workload()
			if *w.Spec.Priority != c.want || workload.HasQuota(w) != (c.status != nil && !c.again) {
				t.Errorf("priority %d, has quota: %v; want %d", *w.Spec.Priority, workload.HasQuota(w), c.want)
			}
			if g.writes > 2 || g.writes > 1 && !c.again {
				t.Errorf("%d writes", g.writes)
			}
		})
	}
}

func (g *rig) updateClass(name string, value int32) {
	g.t.Helper()
	class := &kueue.WorkloadPriorityClass{}
	if err := g.c.Get(g.t.Context(), client.ObjectKey{Name: name}, class); err != nil {
		g.t.Fatal(err)
	}
	class.Value = value
	if err := g.c.Update(g.t.Context(), class); err != nil {
		g.t.Fatal(err)
	}
}

// defaultClass makes a PriorityClass the default one, or not.
func (g *rig) defaultClass(name string, is bool) {
	g.t.Helper()
	class := &schedulingv1.PriorityClass{}
	if err := g.c.Get(g.t.Context(), client.ObjectKey{Name: name}, class); err != nil {
		g.t.Fatal(err)
	}
	class.GlobalDefault = is
	if err := g.c.Update(g.t.Context(), class); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) delete(o client.Object) {
	g.t.Helper()
	if err := g.c.Delete(g.t.Context(), o); err != nil {
		g.t.Fatal(err)
	}
}

// TestAJobWithoutAClassGetsTheDefaultOne as its Workload is created, as in Kueue 0.20. What waits or runs by then keeps its priority.
func TestAJobWithoutAClassGetsTheDefaultOne(t *testing.T) {
	class := func(name string, value int32) *kueue.WorkloadPriorityClass {
		return &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	}
	label := func(j *batchv1.Job) { j.Labels[PriorityClassLabel] = "high" }
	ofPods := func(name string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = name }
	}
	none := func(*batchv1.Job) {}
	reserve := func(s *kueue.WorkloadStatus) { admit(s); set(s, kueue.WorkloadAdmitted, "False") }
	create := func(g *rig) {
		if err := g.c.Create(t.Context(), class("default", 5)); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(g *rig) { g.delete(class("default", 5)) }
	for name, c := range map[string]struct {
		job    func(*batchv1.Job)
		exists bool
		status func(*kueue.WorkloadStatus)
		edit   func(*rig)
		want   int32
	}{
		"a job that names none":                         {job: none, exists: true, want: 5},
		"where there is none":                           {job: none},
		"a job that names another":                      {job: label, exists: true, want: 9},
		"a job whose pods name a PriorityClass":         {job: ofPods("pods"), exists: true, want: 5},
		"a job whose pods name one of the system":       {job: ofPods("system-node-critical"), exists: true, want: 5},
		"it is created while the job waits":             {job: none, edit: create},
		"it is created while a check decides":           {job: none, status: reserve, edit: create},
		"it is created while the job runs":              {job: none, status: admit, edit: create},
		"it is deleted while the job waits":             {job: none, exists: true, edit: remove, want: 5},
		"it is deleted while a check decides":           {job: none, exists: true, status: reserve, edit: remove, want: 5},
		"it is deleted while the job runs":              {job: none, exists: true, status: admit, edit: remove, want: 5},
		"the job names another while it waits":          {job: none, exists: true, edit: func(g *rig) { g.updateJob(label) }, want: 9},
		"the job names another while it runs":           {job: none, exists: true, status: admit, edit: func(g *rig) { g.updateJob(label) }, want: 9},
		"the job names another while a check decides":   {job: none, exists: true, status: reserve, edit: func(g *rig) { g.updateJob(label) }, want: 9},
		"the class of a job's pods is made the default": {job: none, exists: true, edit: func(g *rig) { g.defaultClass("pods", true) }, want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{suspendedJob(c.job), class("high", 9),
				&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Value: 7},
				&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2_000_001_000}}
			if c.exists {
				objects = append(objects, class("default", 5))
			}
			g := newRig(t, objects...)
			g.settle()
			if c.status != nil {
				g.status(c.status)
				g.settle()
			}
			uid := g.workload().UID
			if c.edit != nil {
				c.edit(g)
				g.settle()
			}
			w := g.workload()
			if workload.Priority(w) != c.want || w.Annotations[workload.RefusedAnnotation] != "" || w.UID != uid {
				t.Errorf("priority %d of class %v, want %d; refused because of %q; the same Workload: %v", workload.Priority(w),
					w.Spec.PriorityClassRef, c.want, w.Annotations[workload.RefusedAnnotation], w.UID == uid)
			}
			if c.want == 5 && (w.Spec.PriorityClassRef == nil || w.Spec.PriorityClassRef.Name != "default") {
				t.Errorf("its class is %v", w.Spec.PriorityClassRef)
			}
		})
	}
}

// TestATimeLimitFollowsTheJobUntilItRuns.
func TestATimeLimitFollowsTheJobUntilItRuns(t *testing.T) {
	limit := func(seconds string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Labels[MaxExecTimeLabel] = seconds }
	}
	g := newRig(t, suspendedJob(limit("60")))
	g.settle()
	g.status(func(s *kueue.WorkloadStatus) { admit(s); set(s, kueue.WorkloadAdmitted, "False") })
	g.updateJob(limit("120"))
	g.settle()
	if got := *g.workload().Spec.MaximumExecutionTimeSeconds; got != 120 {
		t.Errorf("%d seconds before the start, want 120", got)
	}
	g.status(admit)
	g.updateJob(limit("180"))
	g.settle()
	if got := *g.workload().Spec.MaximumExecutionTimeSeconds; got != 120 || isSuspended(g.job()) {
		t.Errorf("%d seconds once it is admitted, which the API does not take; suspended: %v", got, isSuspended(g.job()))
	}
}

// TestJobsThatRunWithoutAWorkload: those from before Muster came are adopted,
// others are stopped and queue.
func TestJobsThatRunWithoutAWorkload(t *testing.T) {
	policy := func(at time.Time) client.Object {
		return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: batch.Kind{}.StartPolicy(),
			CreationTimestamp: metav1.NewTime(at)}}
	}
	running := func(change ...func(*batchv1.Job)) *batchv1.Job {
		return suspendedJob(append(change, func(j *batchv1.Job) {
			j.Spec.Suspend, j.CreationTimestamp = new(false), metav1.NewTime(now)
			j.Status.Active, j.Status.StartTime = 2, new(metav1.NewTime(now))
		})...)
	}
	for name, c := range map[string]struct {
		job    *batchv1.Job
		around []client.Object
		// unnamed: Jobs that name no queue queue too.
		unnamed                  bool
		wantAdopted, wantStopped bool
	}{
		"it ran before Muster came":      {job: running(), around: []client.Object{policy(now.Add(time.Hour))}, wantAdopted: true},
		"Muster's policies are not here": {job: running(), wantAdopted: true},
		"it slipped through":             {job: running(), around: []client.Object{policy(now.Add(-time.Hour))}, wantStopped: true},
		"in the very second of the policies": {
			job: running(), around: []client.Object{policy(now)}, wantStopped: true,
		},
		"Muster started it, and its Workload vanished": {
			job:         running(func(j *batchv1.Job) { j.Annotations = map[string]string{StartedAnnotation: `{}`} }),
			around:      []client.Object{policy(now.Add(-time.Hour))},
			wantAdopted: true,
		},
		"it names no queue":              {job: running(func(j *batchv1.Job) { j.Labels = nil })},
		"it names no queue and may not":  {job: running(func(j *batchv1.Job) { j.Labels = nil }), unnamed: true},
		"its success policy is met":      {job: running(func(j *batchv1.Job) { j.Status.Conditions = condition(batchv1.JobSuccessCriteriaMet) })},
		"it has failed and its pods end": {job: running(func(j *batchv1.Job) { j.Status.Conditions = condition(batchv1.JobFailureTarget) })},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, append(c.around, c.job, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})...)
			if c.unnamed {
				*g.r.Unqueued() = everywhere(t)
			}
			g.settle()
			w := g.workload()
			if isSuspended(g.job()) != c.wantStopped || adopted(w) != c.wantAdopted {
				t.Errorf("stopped: %v, want %v; adopted: %v, want %v", isSuspended(g.job()), c.wantStopped, adopted(w), c.wantAdopted)
			}
			if !c.wantAdopted && !c.wantStopped && g.writes > 0 {
				t.Errorf("%d writes for a Job to be left alone", g.writes)
			}
		})
	}
}

// TestPodsOfAnAdoptedJobAreMarked while they run: no start has labelled them, and the policies and the controller of orphans select by the
// labels.
func TestPodsOfAnAdoptedJobAreMarked(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Labels:          map[string]string{batchv1.ControllerUidLabel: "uid"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "uid", Controller: new(true)}}}}
		p.Status.Phase = corev1.PodRunning
		if change != nil {
			change(p)
		}
		return p
	}
	job := suspendedJob(func(j *batchv1.Job) {
		j.UID, j.Spec.Suspend, j.CreationTimestamp = "uid", new(false), metav1.NewTime(now)
		j.Status.Active, j.Status.StartTime = 2, new(metav1.NewTime(now))
	})
	g := newRig(t, job, pod("runs", nil), pod("has-ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("is-gated", func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		}),
		pod("nothing-controls", func(p *corev1.Pod) { p.OwnerReferences = nil }),
		pod("of-another", func(p *corev1.Pod) { p.Labels[batchv1.ControllerUidLabel] = "other" }))
	g.settle()
	g.status(admit)
	g.settle()
	if !adopted(g.workload()) || !workload.IsAdmitted(g.workload()) {
		t.Fatalf("it is not adopted: %+v", g.workload().Status)
	}
	if err := g.c.Create(t.Context(), pod("comes-later", nil)); err != nil {
		t.Fatal(err)
	}
	g.settle()
	var pods corev1.PodList
	if err := g.c.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	var marked []string
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Labels[JobUIDLabel] == "uid" && p.Labels[PodSetLabel] == "main" {
			marked = append(marked, p.Name)
		}
	}
	if got := strings.Join(marked, " "); got != "comes-later runs" {
		t.Errorf("marked: %s", got)
	}
}

// TestAWorkloadThatVanishesStopsNoJob: it is made again, and counts, once its kind is served again; one
// that a backup brought back without its status is replaced.
func TestAWorkloadThatVanishesStopsNoJob(t *testing.T) {
	vanish := func(g *rig) { g.delete(g.workload()) }
	kinds := schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"}
	for name, c := range map[string]struct {
		vanishes func(*rig)
		// refused is what the API server answers to a new Workload for a time.
		refused error
	}{
		"it was deleted":                          {vanishes: vanish},
		"its kind is being deleted":               {vanishes: vanish, refused: apierrors.NewMethodNotSupported(kinds, "create")},
		"its kind is not served":                  {vanishes: vanish, refused: &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}}},
		"a backup without statuses brought it":    {vanishes: func(g *rig) { g.again(nil) }},
		"that was admitted before the job saw it": {vanishes: func(g *rig) { g.again(admit) }},
		"quota was reserved for it meanwhile": {vanishes: func(g *rig) {
			g.again(func(s *kueue.WorkloadStatus) { admit(s); set(s, kueue.WorkloadAdmitted, "False") })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := runs(t, suspendedJob())
			started := g.job().Spec.DeepCopy()
			g.newEvents()
			c.vanishes(g)
			g.refuse = c.refused
			g.settle()
			if g.refuse != nil {
				if events := g.newEvents(); strings.Count(events, "WorkloadVanished") != 1 {
					t.Errorf("while its Workload cannot be made again: %q", events)
				}
				g.refuse = nil
				g.settle()
			}
			w := g.workload()
			if diff := cmp.Diff(*started, g.job().Spec); diff != "" || w == nil || !adopted(w) && !workload.IsAdmitted(w) {
				t.Errorf("the Job was changed (-want +got): %s\nits Workload: %+v", diff, w)
			}
			g.status(evict)
			g.settle()
			if !isSuspended(g.job()) {
				t.Error("an eviction does not stop it any more")
			}
		})
	}
}

// TestAJobThatWaitsIsQueuedOnceWorkloadsAreServed: no event reports that, so the job is retried.
func TestAJobThatWaitsIsQueuedOnceWorkloadsAreServed(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.refuse = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}}
	result, err := g.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "train"}})
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("it is not tried again: %+v (%v)", result, err)
	}
}

// again replaces the Workload by another of its name and of this status.
func (g *rig) again(status func(*kueue.WorkloadStatus)) {
	w := g.workload()
	g.delete(w)
	w.ResourceVersion, w.UID, w.Status = "", "another", kueue.WorkloadStatus{}
	if err := g.c.Create(g.t.Context(), w); err != nil {
		g.t.Fatal(err)
	}
	if status != nil {
		g.status(status)
	}
}

// adopted reports whether a Job's Workload, if there is one, is adopted.
func adopted(w *kueue.Workload) bool { return w != nil && workload.IsAdopted(w) }

func condition(t batchv1.JobConditionType) []batchv1.JobCondition {
	return []batchv1.JobCondition{{Type: t, Status: corev1.ConditionTrue}}
}

// TestAnAdoptedJobIsLikeAnyOther once it has been evicted: it waits for its turn.
func TestAnAdoptedJobIsLikeAnyOther(t *testing.T) {
	g := newRig(t, suspendedJob(of(4, 8), func(j *batchv1.Job) {
		j.Spec.Suspend, j.Status.Active, j.Status.Succeeded = new(false), 3, 5
	}))
	before := g.job().Spec.DeepCopy()
	g.settle()
	w := g.workload()
	if !adopted(w) || w.Spec.PodSets[0].Count != 3 || isSuspended(g.job()) {
		t.Fatalf("adopted: %v with %d pods, suspended: %v; want 3 pods, running", adopted(w), w.Spec.PodSets[0].Count, isSuspended(g.job()))
	}
	if events := g.newEvents(); !strings.Contains(events, "Adopted") {
		t.Errorf("no event says so: %s", events)
	}
	g.status(admitWith(3))
	g.settle()
	if isSuspended(g.job()) {
		t.Error("it was stopped although it was admitted")
	}
	g.status(evict)
	g.settle()
	if !isSuspended(g.job()) {
		t.Fatal("it was not stopped")
	}
	g.podsStop()
	g.settle()
	w = g.workload()
	if adopted(w) || workload.HasQuota(w) {
		t.Errorf("after its eviction it is adopted: %v, has quota: %v", adopted(w), workload.HasQuota(w))
	}
	before.Suspend = new(true)
	if diff := cmp.Diff(*before, g.job().Spec); diff != "" {
		t.Errorf("the Job was changed (-want +got):\n%s", diff)
	}
}

// TestPodsReady is reported where the configuration waits for it, in one write for a Job that
// goes well.
func TestPodsReady(t *testing.T) {
	type moment struct {
		ready, succeeded, uncounted int32
		want                        string
	}
	for name, c := range map[string]struct {
		moments    []moment
		wantWrites int
	}{
		"it goes well": {wantWrites: 1, moments: []moment{
			{want: ""}, {ready: 3, want: ""}, {ready: 4, want: "True Started"}, {ready: 3, succeeded: 1, want: "True Started"},
			{ready: 1, succeeded: 2, uncounted: 1, want: "True Started"}, {succeeded: 4, want: "True Started"},
		}},
		"pods are lost and come again": {wantWrites: 4, moments: []moment{
			{ready: 4, want: "True Started"}, {ready: 2, want: "False WaitForRecovery"}, {ready: 3, want: "False WaitForRecovery"},
			{ready: 4, want: "True Recovered"}, {ready: 3, want: "False WaitForRecovery"},
		}},
		"one ends before the others are ready": {wantWrites: 1, moments: []moment{
			{ready: 2, succeeded: 1, want: ""}, {ready: 3, succeeded: 1, want: "True Started"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob(of(4, 4)))
			*g.r.PodsReady() = true
			g.settle()
			g.status(admitWith(4))
			g.settle()
			g.writes = 0
			for i, m := range c.moments {
				g.updateJob(func(j *batchv1.Job) {
					j.Status.Ready, j.Status.Succeeded, j.Status.Active = &m.ready, m.succeeded, 4-m.succeeded
					j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: make([]types.UID, m.uncounted)}
				})
				g.settle()
				if got := readiness(g.workload()); got != m.want {
					t.Errorf("moment %d: %q, want %q", i, got, m.want)
				}
			}
			if g.writes != c.wantWrites {
				t.Errorf("%d writes, want %d", g.writes, c.wantWrites)
			}
			g.status(evict)
			g.updateJob(func(j *batchv1.Job) { j.Status.Active = 0 })
			g.settle()
			if got := readiness(g.workload()); got != "False WaitForStart" || workload.HasQuota(g.workload()) {
				t.Errorf("after its eviction %q, has quota: %v", got, workload.HasQuota(g.workload()))
			}
		})
	}
	g := runs(t, suspendedJob())
	g.updateJob(func(j *batchv1.Job) { j.Status.Ready = new(int32(2)) })
	g.settle()
	if got := readiness(g.workload()); got != "" {
		t.Errorf("%q is reported although nothing waits for it", got)
	}
}

func readiness(w *kueue.Workload) string {
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// TestNothingIsRememberedOfDeletedJobs.
func TestNothingIsRememberedOfDeletedJobs(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.settle()
	if g.r.Remembered() != 1 {
		t.Fatalf("%d Jobs are known", g.r.Remembered())
	}
	if ConcernsQueues(g.r).Delete(event.DeleteEvent{Object: g.job()}) || g.r.Remembered() != 0 {
		t.Errorf("%d Jobs are known after the deletion", g.r.Remembered())
	}
}
