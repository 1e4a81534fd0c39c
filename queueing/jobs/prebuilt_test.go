package jobs_test

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/workload"
)

const prebuiltKey = "kueue.x-k8s.io/prebuilt-workload-name"

func naming(workload string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Labels[prebuiltKey] = workload }
}

// prebuilt is a Workload for the pods of suspendedJob that something else has made.
func prebuilt(name string, change ...func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"mine": "kept"},
	}}
	w.Spec.QueueName = "main"
	w.Spec.PodSets = []kueue.PodSet{{Name: "workers", Count: 2, Template: suspendedJob().Spec.Template}}
	for _, f := range change {
		f(w)
	}
	return w
}

// admittedAs admits a Workload before its Job has taken it.
func admittedAs(count int32) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		admit(&w.Status)
		w.Status.Admission.PodSetAssignments[0].Name, w.Status.Admission.PodSetAssignments[0].Count = "workers", &count
		w.Status.AdmissionChecks[0].PodSetUpdates[0].Name = "workers"
	}
}

func controlledBy(kind, name string, uid types.UID) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, Name: name, UID: uid, Controller: new(true)}}
	}
}

func (g *rig) named(name string) *kueue.Workload {
	g.t.Helper()
	w := &kueue.Workload{}
	if err := g.c.Get(g.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, w); err != nil {
		g.t.Fatal(err)
	}
	return w
}

// names are those of all Workloads.
func (g *rig) names() (names []string) {
	g.t.Helper()
	var list kueue.WorkloadList
	if err := g.c.List(g.t.Context(), &list); err != nil {
		g.t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// finishedAs is the reason and message with which a Workload is finished; "" if it is not.
func finishedAs(w *kueue.Workload) string {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); c != nil && c.Status == metav1.ConditionTrue {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// TestAJobRunsByThePrebuiltWorkloadThatItNames, which comes after the Job.
func TestAJobRunsByThePrebuiltWorkloadThatItNames(t *testing.T) {
	for name, named := range map[string]func(*batchv1.Job){
		"by a label":       naming("mine"),
		"by an annotation": func(j *batchv1.Job) { j.Annotations = map[string]string{prebuiltKey: "mine"} },
		"by an annotation before a label": func(j *batchv1.Job) {
			naming("other")(j)
			j.Annotations = map[string]string{prebuiltKey: "mine"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob(named))
			g.settle()
			if !isSuspended(g.job()) || len(g.names()) > 0 || g.writes > 0 {
				t.Fatalf("suspended: %v, Workloads %v, %d writes while there is no such Workload", isSuspended(g.job()), g.names(), g.writes)
			}
			if told := g.newEvents(); strings.Count(told, "WaitingForWorkload") != 1 || !strings.Contains(told, "mine") {
				t.Errorf("its user is told %q", told)
			}
			w := prebuilt("mine", admittedAs(2))
			if err := g.c.Create(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			if got := JobsOfPrebuilt(g.r, t.Context(), w); len(got) != 1 || got[0].Name != "train" {
				t.Errorf("woken by the Workload: %v", got)
			}
			g.settle()
			w = g.named("mine")
			if !metav1.IsControlledBy(w, g.job()) || w.Labels[JobUIDLabel] != "1234" || w.Labels["mine"] != "kept" {
				t.Errorf("owners %v, labels %v", w.OwnerReferences, w.Labels)
			}
			job := g.job()
			if isSuspended(job) || job.Spec.Template.Annotations["booking"] != "b1" || job.Spec.Template.Labels[PodSetLabel] != "workers" {
				t.Errorf("suspended: %v, template %+v", isSuspended(job), job.Spec.Template.ObjectMeta)
			}
			if len(g.names()) != 1 || g.writes != 2 {
				t.Errorf("%d writes, want 2: take the Workload, start the Job; Workloads %v", g.writes, g.names())
			}
			if got := JobsOfPrebuilt(g.r, t.Context(), w); got != nil {
				t.Errorf("woken twice by a Workload with an owner: %v", got)
			}
			g.updateJob(func(j *batchv1.Job) { j.Status.Conditions = condition(batchv1.JobComplete) })
			g.settle()
			if got := finishedAs(g.named("mine")); !strings.HasPrefix(got, "Succeeded") {
				t.Errorf("finished as %q", got)
			}
		})
	}
}

// TestAPrebuiltWorkloadIsForItsJobsPods, else it is finished and the Job never starts.
func TestAPrebuiltWorkloadIsForItsJobsPods(t *testing.T) {
	cpu := func(spec *corev1.PodSpec, amount string) {
		spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(amount)}
	}
	for name, c := range map[string]struct {
		job      func(*batchv1.Job)
		workload func(*kueue.Workload)
		around   []client.Object
		inSync   bool
	}{
		"the same pods": {inSync: true},
		"fewer pods":    {workload: func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }},
		"more pods":     {workload: func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 3 }},
		"smaller pods":  {workload: func(w *kueue.Workload) { cpu(&w.Spec.PodSets[0].Template.Spec, "1m") }},
		"no containers": {workload: func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Spec.Containers = nil }},
		"one more podSet": {workload: func(w *kueue.Workload) {
			w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: "more", Count: 1})
		}},
		"a least count that the Job has not": {workload: func(w *kueue.Workload) { w.Spec.PodSets[0].MinCount = new(int32(1)) }},
		"the least count of the Job": {
			job:      func(j *batchv1.Job) { j.Annotations = map[string]string{batch.MinParallelismAnnotation: "1"} },
			workload: func(w *kueue.Workload) { w.Spec.PodSets[0].MinCount = new(int32(1)) },
			inSync:   true,
		},
		"a time limit that the Job has not": {workload: func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = new(int32(60)) }},
		"other machines":                    {workload: func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Spec.NodeSelector = nil }},
		"pods without the Job's overhead": {
			job: func(j *batchv1.Job) { j.Spec.Template.Spec.RuntimeClassName = new("vm") },
			around: []client.Object{&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Handler: "vm",
				Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("8")}}}},
		},
		"what a LimitRange adds to the Job's pods is in the Workload": {
			workload: func(w *kueue.Workload) {
				w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("1Gi")
			},
			around: []client.Object{&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}, Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{
					Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{"memory": resource.MustParse("1Gi")},
				}},
			}}},
			inSync: true,
		},
		"pods without the Job's requests of whole pods": {
			job: func(j *batchv1.Job) {
				j.Spec.Template.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("8")}}
			},
		},
		"another topology": {workload: func(w *kueue.Workload) {
			w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("rack")}
		}},
		"without the Job's topology": {job: func(j *batchv1.Job) {
			j.Spec.Template.Annotations = map[string]string{kueue.PodSetRequiredTopologyAnnotation: "rack"}
		}},
		"fields that no machine depends on": {
			job:    func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever },
			inSync: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			change := []func(*kueue.Workload){admittedAs(2)}
			if c.workload != nil {
				change = append(change, c.workload)
			}
			job := suspendedJob(naming("mine"))
			if c.job != nil {
				c.job(job)
			}
			g := newRig(t, append(c.around, job, prebuilt("mine", change...))...)
			g.settle()
			got := finishedAs(g.named("mine"))
			if isSuspended(g.job()) == c.inSync || strings.HasPrefix(got, kueue.WorkloadFinishedReasonOutOfSync+": ") == c.inSync {
				t.Errorf("suspended: %v, finished as %q; in sync: %v", isSuspended(g.job()), got, c.inSync)
			}
			told := g.newEvents()
			if strings.Contains(told, kueue.WorkloadFinishedReasonOutOfSync) == c.inSync || strings.Contains(told, "FinishedWorkload") {
				t.Errorf("its user is told %q", told)
			}
			if len(g.names()) != 1 {
				t.Errorf("Workloads %v", g.names())
			}
		})
	}
}

// TestAJobTakesNoWorkloadOfAnother.
func TestAJobTakesNoWorkloadOfAnother(t *testing.T) {
	for name, change := range map[string]func(*kueue.Workload){
		"of another Job":               controlledBy("Job", "other", "5678"),
		"of a Job of the same name":    controlledBy("Job", "train", "5678"),
		"of an object of another kind": controlledBy("JobSet", "train", "1234-"),
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob(naming("mine")), prebuilt("mine", admittedAs(2), change))
			before := g.named("mine")
			g.settle()
			after := g.named("mine")
			if !isSuspended(g.job()) || g.writes > 0 || after.ResourceVersion != before.ResourceVersion {
				t.Errorf("suspended: %v, %d writes", isSuspended(g.job()), g.writes)
			}
			if told := g.newEvents(); strings.Count(told, "Warning ForeignWorkload") != 1 || !strings.Contains(told, "mine") {
				t.Errorf("its user is told %q", told)
			}
		})
	}
}

// TestAJobTakesAWorkloadThatHasLostItsJob, as a deletion with --cascade=orphan leaves it.
func TestAJobTakesAWorkloadThatHasLostItsJob(t *testing.T) {
	lost := func(w *kueue.Workload) { w.Labels[JobUIDLabel] = "5678" }
	finish := func(w *kueue.Workload) {
		w.Status = *workload.Finished(w, kueue.WorkloadFinishedReasonOwnerNotFound, "The workload's owner no longer exists", now)
	}
	for name, tc := range map[string]struct {
		stands func(*kueue.Workload)
		runs   bool
		told   string
	}{
		"that is admitted":      {stands: admittedAs(2), runs: true, told: "Started"},
		"that waits":            {stands: func(*kueue.Workload) {}},
		"that is finished":      {stands: finish, told: "FinishedWorkload"},
		"that is for less pods": {stands: func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }, told: kueue.WorkloadFinishedReasonOutOfSync},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob(naming("mine")), prebuilt("mine", tc.stands, lost))
			g.settle()
			w := g.named("mine")
			if !metav1.IsControlledBy(w, g.job()) || w.Labels[JobUIDLabel] != "1234" {
				t.Errorf("owners %v, labels %v", w.OwnerReferences, w.Labels)
			}
			if isSuspended(g.job()) == tc.runs {
				t.Errorf("suspended: %v, want %v", isSuspended(g.job()), !tc.runs)
			}
			if told := g.newEvents(); !strings.Contains(told, tc.told) || strings.Contains(told, "ForeignWorkload") {
				t.Errorf("its user is told %q, want %q", told, tc.told)
			}
		})
	}
}

// TestAPrebuiltWorkloadThatEnds.
func TestAPrebuiltWorkloadThatEnds(t *testing.T) {
	start := func(t *testing.T, change ...func(*batchv1.Job)) *rig {
		g := newRig(t, suspendedJob(append(change, naming("mine"))...), prebuilt("mine", admittedAs(2)))
		g.settle()
		if isSuspended(g.job()) {
			t.Fatal("it does not run")
		}
		g.newEvents()
		return g
	}
	t.Run("it was finished before", func(t *testing.T) {
		finish := func(w *kueue.Workload) { w.Status = *workload.Finished(w, "Succeeded", "done", now) }
		g := newRig(t, suspendedJob(naming("mine")), prebuilt("mine", finish))
		g.settle()
		if told := g.newEvents(); !isSuspended(g.job()) || strings.Count(told, "FinishedWorkload") != 1 {
			t.Errorf("suspended: %v, told %q", isSuspended(g.job()), told)
		}
	})
	t.Run("it is deleted while the Job runs", func(t *testing.T) {
		g := start(t)
		g.delete(g.named("mine"))
		g.settle()
		if isSuspended(g.job()) || len(g.names()) > 0 {
			t.Fatalf("suspended: %v, Workloads %v", isSuspended(g.job()), g.names())
		}
		if told := g.newEvents(); strings.Count(told, "WorkloadVanished") != 1 {
			t.Errorf("its user is told %q", told)
		}
	})
	t.Run("it is evicted, and what is left of the Job queues", func(t *testing.T) {
		g := start(t, of(2, 3))
		g.updateJob(func(j *batchv1.Job) { j.Status.Active, j.Status.Succeeded = 1, 2 })
		g.status(evict)
		g.settle()
		g.podsStop()
		g.settle()
		w := g.named("mine")
		if workload.HasQuota(w) || finishedAs(w) != "" || !isSuspended(g.job()) || WasStarted(g.job()) {
			t.Fatalf("has quota: %v, finished as %q, suspended: %v", workload.HasQuota(w), finishedAs(w), isSuspended(g.job()))
		}
		if p := w.Status.ReclaimablePods; len(p) != 1 || p[0].Name != "workers" || p[0].Count != 1 {
			t.Errorf("reclaimable: %v, want 1, since 1 of 2 pods is left to run", p)
		}
		g.status(func(s *kueue.WorkloadStatus) {
			set(s, kueue.WorkloadEvicted, "False")
			w := &kueue.Workload{Status: *s}
			admittedAs(1)(w)
			*s = w.Status
		})
		g.settle()
		if isSuspended(g.job()) {
			t.Error("it does not run again")
		}
	})
}

// TestAJobThatNamesAnotherWorkload gives up the one that it had.
func TestAJobThatNamesAnotherWorkload(t *testing.T) {
	reserved := func(w *kueue.Workload) { admittedAs(2)(w); set(&w.Status, kueue.WorkloadAdmitted, "False") }
	own := WorkloadName(batch.Kind{}.GroupVersionKind(), suspendedJob())
	for name, c := range map[string]struct {
		before, after func(*batchv1.Job)
		// has are the Workloads of the Job afterwards, and over those that are finished.
		has, over string
	}{
		"another prebuilt one": {before: naming("mine"), after: naming("other"), has: "mine other", over: "mine"},
		"none, so that Muster makes one": {
			before: naming("mine"), after: func(j *batchv1.Job) { delete(j.Labels, prebuiltKey) }, has: own + " mine other", over: "mine",
		},
		"one in place of what Muster made": {before: func(*batchv1.Job) {}, after: naming("mine"), has: "mine other"},
		"no queue any more": {
			before: naming("mine"), after: func(j *batchv1.Job) { delete(j.Labels, QueueLabel) }, has: "mine other", over: "mine",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob(c.before), prebuilt("mine", reserved), prebuilt("other", reserved))
			g.settle()
			g.updateJob(c.after)
			g.settle()
			var over []string
			for _, name := range g.names() {
				if finishedAs(g.named(name)) != "" {
					over = append(over, name)
				}
			}
			if has := strings.Join(g.names(), " "); has != c.has || strings.Join(over, " ") != c.over {
				t.Errorf("Workloads %s, finished %v; want %s, finished %s", has, over, c.has, c.over)
			}
			if !isSuspended(g.job()) {
				t.Error("it runs")
			}
		})
	}
}

// TestAPrebuiltWorkloadFollowsItsJob to another queue, and to what is not supported.
func TestAPrebuiltWorkloadFollowsItsJob(t *testing.T) {
	g := newRig(t, suspendedJob(naming("mine")), prebuilt("mine", func(w *kueue.Workload) { w.Spec.Priority = new(int32(7)) }))
	g.settle()
	g.updateJob(func(j *batchv1.Job) {
		j.Labels[QueueLabel], j.Labels[PriorityClassLabel] = "other", "none"
		j.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	})
	g.settle()
	w := g.named("mine")
	refused := w.Annotations[workload.RefusedAnnotation]
	if w.Spec.QueueName != "other" || *w.Spec.Priority != 7 || !strings.Contains(refused, workload.ElasticAnnotation) {
		t.Errorf("queue %s, priority %d, annotations %v", w.Spec.QueueName, *w.Spec.Priority, w.Annotations)
	}
	g.updateJob(func(j *batchv1.Job) { j.Annotations = nil })
	g.writes = 0
	g.settle()
	if w = g.named("mine"); w.Annotations[workload.RefusedAnnotation] != "" || g.writes != 1 {
		t.Errorf("annotations %v, %d writes", w.Annotations, g.writes)
	}
}

// TestARunningJobTakesNoWorkload: a job that was started without Muster is stopped first, so that it runs on the flavors of the Workload.
// A job that ran before Muster was installed is not changed.
func TestARunningJobTakesNoWorkload(t *testing.T) {
	running := func(j *batchv1.Job) {
		j.Spec.Suspend, j.Status.Active, j.CreationTimestamp = new(false), 2, metav1.NewTime(now)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: batch.Kind{}.StartPolicy(),
		CreationTimestamp: metav1.NewTime(now)}}
	g := newRig(t, suspendedJob(naming("mine"), running), prebuilt("mine", admittedAs(2)))
	g.settle()
	if isSuspended(g.job()) || g.writes > 0 {
		t.Errorf("one that ran before Muster came: suspended %v, %d writes", isSuspended(g.job()), g.writes)
	}
	g = newRig(t, suspendedJob(naming("mine"), running), prebuilt("mine", admittedAs(2)), policy)
	g.settle()
	g.updateJob(func(j *batchv1.Job) { j.Status.Active = 0 })
	g.settle()
	if told := g.newEvents(); !strings.Contains(told, "Stopped") || !WasStarted(g.job()) {
		t.Errorf("one that slipped through: told %q, started by Muster: %v", told, WasStarted(g.job()))
	}
}

// TestAWorkloadThatAppearsBetweenTwoReads is the job's: the cache may show it to the second
// read, and not to the first.
func TestAWorkloadThatAppearsBetweenTwoReads(t *testing.T) {
	own := WorkloadName(batchv1.SchemeGroupVersion.WithKind("Job"), suspendedJob())
	for name, tc := range map[string]struct {
		job      *batchv1.Job
		workload string
	}{
		"named by the job": {suspendedJob(naming("mine")), "mine"},
		"the job's own":    {suspendedJob(), own},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, tc.job, prebuilt(tc.workload, admittedAs(2), controlledBy("Job", "train", "1234")))
			newest := *g.r.Client()
			*g.r.Client() = interceptor.NewClient(newest.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, is := o.(*kueue.Workload); is {
						return apierrors.NewNotFound(kueue.Resource("workloads"), key.Name)
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			g.settle()
			if g.writes > 0 {
				t.Errorf("%d writes: Workloads %v, finished as %q", g.writes, g.names(), finishedAs(g.named(tc.workload)))
			}
		})
	}
}

// TestJobsOfAWorkloadAreNotListedInVain until a job is indexed that names one.
func TestJobsOfAWorkloadAreNotListedInVain(t *testing.T) {
	g := newRig(t, suspendedJob(naming("mine")))
	g.r.SomeNamePrebuilt().Store(false)
	w := prebuilt("mine")
	if g.r.PrebuiltOf(suspendedJob()); JobsOfPrebuilt(g.r, t.Context(), w) != nil {
		t.Error("it looks for jobs where none names a Workload")
	}
	g.r.PrebuiltOf(suspendedJob(naming("other")))
	if got := JobsOfPrebuilt(g.r, t.Context(), w); len(got) != 1 || got[0].Name != "train" {
		t.Errorf("woken by the Workload: %v", got)
	}
}
