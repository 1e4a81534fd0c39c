package batch

import (
	"encoding/json"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// MinParallelismAnnotation on a Job says with how many pods at once it may start if
	// there is no quota for all.
	MinParallelismAnnotation = "kueue.x-k8s.io/job-min-parallelism"
	// EqualCompletionsAnnotation on an Indexed Job says that its completions follow its
	// parallelism where it starts with fewer pods.
	EqualCompletionsAnnotation = "kueue.x-k8s.io/job-completions-equal-parallelism"
)

// record is what a start changes of a Job: parallelism and completions only where the Job
// starts with fewer pods.
type record struct {
	templates.Original
	Parallelism *int32 `json:"parallelism,omitempty"`
	Completions *int32 `json:"completions,omitempty"`
}

// Start implements jobs.Kind.
func (Kind) Start(o client.Object, placements []templates.Placement) (any, error) {
	job, p := o.(*batchv1.Job), &placements[0]
	var before record
	if p.Count < needed(job) {
		before.Parallelism = job.Spec.Parallelism
		job.Spec.Parallelism = new(p.Count)
		// Checked when the Workload was created.
		if tied, _ := strconv.ParseBool(job.Annotations[EqualCompletionsAnnotation]); tied {
			before.Completions = job.Spec.Completions
			job.Spec.Completions = new(p.Count)
		}
	}
	var err error
	if before.Original, err = p.Apply(&job.Spec.Template); err != nil {
		return nil, err
	}
	job.Spec.Suspend = new(false)
	return before, nil
}

// Restore implements jobs.Kind.
func (Kind) Restore(o client.Object, text []byte, podSets []kueue.PodSet) (bool, error) {
	job := o.(*batchv1.Job)
	if len(text) == 0 {
		return restoreFrom(job, podSets), nil
	}
	var before record
	if err := json.Unmarshal(text, &before); err != nil {
		return false, err
	}
	before.Restore(&job.Spec.Template)
	if before.Parallelism != nil {
		job.Spec.Parallelism = before.Parallelism
	}
	if before.Completions != nil {
		job.Spec.Completions = before.Completions
	}
	return true, nil
}

// restoreFrom makes a Job that Kueue has started what its Workload was created from. It
// reports whether it changed the Job.
func restoreFrom(job *batchv1.Job, podSets []kueue.PodSet) bool {
	if len(podSets) != 1 {
		return false
	}
	fewer := podSets[0].MinCount != nil && ptr.Deref(job.Spec.Parallelism, 1) < podSets[0].Count
	if !fewer && !templates.Differs(&job.Spec.Template, &podSets[0].Template) {
		return false
	}
	templates.PutBack(&job.Spec.Template, &podSets[0].Template)
	if fewer {
		job.Spec.Parallelism = new(podSets[0].Count)
	}
	return true
}

// minCount is with how many pods at once the Job may start at least, if it may start with
// fewer than all. It returns why the annotation cannot be followed, if so.
func minCount(job *batchv1.Job) (least *int32, why string) {
	value, ok := job.Annotations[MinParallelismAnnotation]
	if !ok {
		return nil, ""
	}
	if jobs.IsElastic(job) {
		return nil, fmt.Sprintf("the annotations %s and %s are both on the Job, but an elastic Job starts with its whole parallelism; remove one",
			MinParallelismAnnotation, workload.ElasticAnnotation)
	}
	all := maxParallel(job)
	n, err := strconv.ParseInt(value, 10, 32)
	switch {
	case err == nil && n >= 1 && int32(n) < all:
		if n := max(int32(n), ofGang(job)); n < all {
			return &n, ""
		}
		return nil, ""
	case all < 2:
		return nil, fmt.Sprintf("the annotation %s is %q, but the Job runs %d pods at once, so it cannot start with fewer; remove it",
			MinParallelismAnnotation, value, all)
	}
	return nil, fmt.Sprintf("the annotation %s is %q, which is not a number from 1 to %d, fewer than the Job's %d pods at once; "+
		"correct or remove it", MinParallelismAnnotation, value, all-1, all)
}

// ofGang is how many pods the Job's own scheduling policy wants together; 0 without one. kube-apiserver takes no parallelism below.
func ofGang(job *batchv1.Job) int32 {
	if s := job.Spec.Scheduling; s != nil && s.SchedulingPolicy != nil && s.SchedulingPolicy.Gang != nil {
		return ptr.Deref(s.SchedulingPolicy.Gang.MinCount, 0)
	}
	return 0
}

// equalCompletions is why the annotation that ties the Job's completions to its parallelism
// cannot be followed; empty if it can.
func equalCompletions(job *batchv1.Job) (why string) {
	value, ok := job.Annotations[EqualCompletionsAnnotation]
	if !ok {
		return ""
	}
	parallelism, completions := ptr.Deref(job.Spec.Parallelism, 1), ptr.Deref(job.Spec.Completions, 1)
	switch tied, err := strconv.ParseBool(value); {
	case err != nil:
		return fmt.Sprintf("the annotation %s is %q, which is neither true nor false; correct or remove it", EqualCompletionsAnnotation, value)
	case tied && ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) != batchv1.IndexedCompletion:
		return fmt.Sprintf("the annotation %s is %q, but only the completions of an Indexed Job can change; "+
			"set completionMode: Indexed or remove it", EqualCompletionsAnnotation, value)
	case tied && completions != parallelism:
		return fmt.Sprintf("the annotation %s is %q, but completions are %d and parallelism is %d; make them equal or remove it",
			EqualCompletionsAnnotation, value, completions, parallelism)
	}
	return ""
}
