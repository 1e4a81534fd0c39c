package batch

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		parallelism, completions, succeeded int32
		failed                              string
		want                                int32
	}{
		"all at once":                   {parallelism: 4, completions: 4, want: 4},
		"in rounds":                     {parallelism: 4, completions: 10, want: 4},
		"the last round":                {parallelism: 4, completions: 10, succeeded: 8, want: 2},
		"parallelism above completions": {parallelism: 5, completions: 3, succeeded: 1, want: 2},
		"all done":                      {parallelism: 4, completions: 4, succeeded: 4, want: 0},
		"more than needed":              {parallelism: 4, completions: 4, succeeded: 5, want: 0},
		"indexes failed for good":       {parallelism: 8, completions: 8, succeeded: 2, failed: "1,3-5", want: 2},
	} {
		job := &batchv1.Job{}
		job.Spec.Parallelism, job.Spec.Completions, job.Status.Succeeded = &c.parallelism, &c.completions, c.succeeded
		job.Status.FailedIndexes = &c.failed
		if got := needed(job); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMinCount(t *testing.T) {
	for name, c := range map[string]struct {
		value       string
		parallelism int32
		gang        int32 // 0 is none
		want        int32 // 0 is none
		wantWhy     string
	}{
		"a gang of more":           {value: "4", parallelism: 8, gang: 6, want: 6},
		"a gang of fewer":          {value: "4", parallelism: 8, gang: 2, want: 4},
		"a gang of all":            {value: "4", parallelism: 8, gang: 8},
		"at least half":            {value: "4", parallelism: 8, want: 4},
		"all but one":              {value: "7", parallelism: 8, want: 7},
		"all":                      {value: "8", parallelism: 8, wantWhy: "from 1 to 7"},
		"none":                     {value: "0", parallelism: 8, wantWhy: "from 1 to 7"},
		"less than none":           {value: "-1", parallelism: 8, wantWhy: "from 1 to 7"},
		"no number":                {value: "half", parallelism: 8, wantWhy: `is "half"`},
		"more than an int32 holds": {value: "4294967297", parallelism: 8, wantWhy: "from 1 to 7"},
		"nothing":                  {value: "", parallelism: 8, wantWhy: `is ""`},
		"of one pod":               {value: "1", parallelism: 1, wantWhy: "remove it"},
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{MinParallelismAnnotation: c.value}}}
		job.Spec.Parallelism, job.Spec.Completions = &c.parallelism, &c.parallelism
		if c.gang > 0 {
			job.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{
				Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{MinCount: &c.gang},
			}}
		}
		got, why := minCount(job)
		if ptr.Deref(got, 0) != c.want || (why == "") != (c.wantWhy == "") || !strings.Contains(why, c.wantWhy) {
			t.Errorf("%s: %d because %q, want %d because %q", name, ptr.Deref(got, 0), why, c.want, c.wantWhy)
		}
	}
}

func TestEqualCompletions(t *testing.T) {
	indexed := func(j *batchv1.Job) { j.Spec.CompletionMode = new(batchv1.IndexedCompletion) }
	for name, c := range map[string]struct {
		value  string
		change func(*batchv1.Job)
		want   string
	}{
		"of an Indexed Job":    {value: "true", change: indexed},
		"not asked for":        {value: "false", change: func(*batchv1.Job) {}},
		"neither":              {value: "maybe", change: indexed, want: "neither true nor false"},
		"of a Job not Indexed": {value: "true", change: func(*batchv1.Job) {}, want: "Indexed"},
		"of a Job of more rounds": {value: "true", change: func(j *batchv1.Job) { indexed(j); j.Spec.Completions = new(int32(16)) },
			want: "completions are 16"},
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{EqualCompletionsAnnotation: c.value}}}
		job.Spec.Parallelism, job.Spec.Completions = new(int32(8)), new(int32(8))
		c.change(job)
		why := equalCompletions(job)
		if (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
	}
}
