package jobs_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/workload"
)

// wide is a Job of eight pods that may start with three.
func wide(change ...func(*batchv1.Job)) *batchv1.Job {
	return suspendedJob(append([]func(*batchv1.Job){func(j *batchv1.Job) {
		j.Spec.Parallelism, j.Spec.Completions = new(int32(8)), new(int32(8))
		j.Annotations = map[string]string{batch.MinParallelismAnnotation: "3"}
	}}, change...)...)
}

// admitWith admits a Workload with so many of its pods.
func admitWith(count int32) func(*kueue.WorkloadStatus) {
	return func(s *kueue.WorkloadStatus) {
		admit(s)
		s.Admission.PodSetAssignments[0].Count = &count
	}
}

func TestAJobStartsWithAsManyPodsAsHaveQuota(t *testing.T) {
	tied := func(j *batchv1.Job) {
		j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		j.Annotations[batch.EqualCompletionsAnnotation] = "true"
	}
	for name, c := range map[string]struct {
		job             *batchv1.Job
		assigned        int32
		wantParallelism int32
		wantCompletions int32
	}{
		"fewer":                           {job: wide(), assigned: 5, wantParallelism: 5, wantCompletions: 8},
		"all":                             {job: wide(), assigned: 8, wantParallelism: 8, wantCompletions: 8},
		"fewer, and completions are tied": {job: wide(tied), assigned: 5, wantParallelism: 5, wantCompletions: 5},
		"all that is left, in the last round": {job: wide(func(j *batchv1.Job) { j.Status.Succeeded = 2 }), assigned: 6, wantParallelism: 8,
			wantCompletions: 8},
		"fewer than is left in the last round": {job: wide(func(j *batchv1.Job) { j.Status.Succeeded = 2 }), assigned: 4, wantParallelism: 4,
			wantCompletions: 8},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.job.Spec.DeepCopy()
			g := newRig(t, c.job)
			g.settle()
			if least := g.workload().Spec.PodSets[0].MinCount; least == nil || *least != 3 {
				t.Fatalf("minCount %v, want 3", least)
			}
			g.status(admitWith(c.assigned))
			g.settle()
			if spec := g.job().Spec; *spec.Suspend || *spec.Parallelism != c.wantParallelism || *spec.Completions != c.wantCompletions {
				t.Errorf("suspended %v, parallelism %d, completions %d; want %d, %d", *spec.Suspend, *spec.Parallelism, *spec.Completions,
					c.wantParallelism, c.wantCompletions)
			}
			g.status(evict)
			g.settle()
			if diff := cmp.Diff(*before, g.job().Spec); diff != "" {
				t.Errorf("not restored (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAJobThatKueueStartedWithFewerPods has no record. Its Workload has the number of pods.
func TestAJobThatKueueStartedWithFewerPods(t *testing.T) {
	g := newRig(t, wide())
	g.settle()
	g.status(admitWith(5))
	g.updateJob(func(j *batchv1.Job) {
		j.Spec.Suspend, j.Spec.Parallelism = new(false), new(int32(5))
		j.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "spot"}
	})
	g.status(evict)
	g.settle()
	if diff := cmp.Diff(wide().Spec, g.job().Spec); diff != "" {
		t.Errorf("not restored (-want +got):\n%s", diff)
	}
}

// TestMinCountOfWhatIsLeft: a Job that has fewer pods left than it may start with needs them
// all.
func TestMinCountOfWhatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		value     string
		succeeded int32
		want      int32 // 0 is none
		wantWhy   string
	}{
		"no fewer are left of the Job":      {value: "4", succeeded: 4},
		"just one more is left of the Job":  {value: "4", succeeded: 3, want: 4},
		"wrong whatever is left of the Job": {value: "9", succeeded: 7, wantWhy: "from 1 to 7"},
	} {
		g := newRig(t, wide(func(j *batchv1.Job) {
			j.Annotations[batch.MinParallelismAnnotation], j.Status.Succeeded = c.value, c.succeeded
		}))
		g.settle()
		w := g.workload()
		got, why := ptr.Deref(w.Spec.PodSets[0].MinCount, 0), w.Annotations[workload.RefusedAnnotation]
		if got != c.want || (why == "") != (c.wantWhy == "") || !strings.Contains(why, c.wantWhy) {
			t.Errorf("%s: %d because %q, want %d because %q", name, got, why, c.want, c.wantWhy)
		}
	}
}

// TestErrorsOfAJobAreReported, once, in an Event on the Job.
func TestErrorsOfAJobAreReported(t *testing.T) {
	g := newRig(t, wide(func(j *batchv1.Job) { j.Annotations[batch.MinParallelismAnnotation] = "9" }))
	g.settle()
	for _, want := range []string{"Warning Refused", batch.MinParallelismAnnotation, `"9"`, "correct or remove it"} {
		if events := g.newEvents(); strings.Count(events, want) != 1 {
			t.Errorf("%q is told %d times, want once: %s", want, strings.Count(events, want), events)
		} else {
			g.events.Events <- events
		}
	}
	g.newEvents()
	g.updateJob(func(j *batchv1.Job) { j.Annotations[batch.MinParallelismAnnotation] = "ten" })
	g.settle()
	if events := g.newEvents(); strings.Count(events, `"ten"`) != 1 {
		t.Errorf("another mistake is told as %q", events)
	}
	g.updateJob(func(j *batchv1.Job) { j.Annotations[batch.MinParallelismAnnotation] = "2" })
	g.settle()
	if events := g.newEvents(); strings.Contains(events, "Refused") || *g.workload().Spec.PodSets[0].MinCount != 2 {
		t.Errorf("once it is right: %q, %v", events, g.workload().Spec.PodSets[0].MinCount)
	}
}
