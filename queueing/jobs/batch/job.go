// Package batch is the kind batch/v1 Job.
package batch

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
)

// Kind is that of batch/v1 Jobs. Each has one pod set.
type Kind struct{}

var (
	_ jobs.Delegable = Kind{}
	_ jobs.Elastic   = Kind{}
	_ jobs.Refusable = Kind{}
	_ jobs.Unlocker  = Kind{}
)

// GroupVersionKind implements jobs.Kind.
func (Kind) GroupVersionKind() schema.GroupVersionKind {
	return batchv1.SchemeGroupVersion.WithKind("Job")
}

// StartPolicy implements jobs.Kind.
func (Kind) StartPolicy() string { return "muster-jobs-start" }

// managedLabels are added to the template by the Job controller.
var managedLabels = []string{"controller-uid", batchv1.ControllerUidLabel}

// PodSets implements jobs.Kind.
func (Kind) PodSets(o client.Object) ([]kueue.PodSet, []string) {
	job := o.(*batchv1.Job)
	template := job.Spec.Template
	template.Labels = maps.Clone(template.Labels)
	for _, label := range managedLabels {
		delete(template.Labels, label)
	}
	least, why := minCount(job)
	podSet := kueue.PodSet{Name: kueue.DefaultPodSetName, Count: maxParallel(job), MinCount: least, Template: template}
	podSet.TopologyRequest = &kueue.PodSetTopologyRequest{PodIndexLabel: new(batchv1.JobCompletionIndexAnnotation)}
	return []kueue.PodSet{podSet}, append(jobs.ManagedByOther("spec.managedBy", ptr.Deref(job.Spec.ManagedBy, ""), batchv1.JobControllerName),
		why, equalCompletions(job))
}

// IsSuspended implements jobs.Kind.
func (Kind) IsSuspended(o client.Object) bool {
	return ptr.Deref(o.(*batchv1.Job).Spec.Suspend, false)
}

// Suspend implements jobs.Kind.
func (Kind) Suspend(o client.Object) { o.(*batchv1.Job).Spec.Suspend = new(true) }

// Resume implements jobs.Kind.
func (Kind) Resume(o client.Object) { o.(*batchv1.Job).Spec.Suspend = new(false) }

// CanDelegate implements jobs.Delegable.
func (Kind) CanDelegate() bool { return true }

// ManagedBy implements jobs.Delegable.
func (Kind) ManagedBy(o client.Object) string { return ptr.Deref(o.(*batchv1.Job).Spec.ManagedBy, "") }

// Delegate implements jobs.Delegable: what the API server has added at the job's creation is its own. The copy has no TTL: it would be
// gone before its end was seen here.
func (Kind) Delegate(o client.Object) {
	job := o.(*batchv1.Job)
	job.Spec.ManagedBy, job.Spec.TTLSecondsAfterFinished = nil, nil
	if ptr.Deref(job.Spec.ManualSelector, false) {
		return
	}
	job.Spec.Selector = nil
	for _, label := range append(managedLabels, "job-name", batchv1.JobNameLabel) {
		delete(job.Spec.Template.Labels, label)
	}
}

// IsStopped implements jobs.Kind.
func (Kind) IsStopped(o client.Object) bool {
	job := o.(*batchv1.Job)
	return podsLeft(job) == 0 && (job.Status.StartTime == nil || hasCondition(job, batchv1.JobSuspended))
}

// PodLabels implements jobs.Kind.
func (Kind) PodLabels(o client.Object) []client.MatchingLabels {
	return []client.MatchingLabels{{batchv1.ControllerUidLabel: string(o.GetUID())}}
}

// IsReady implements jobs.Tracker. Pods that have succeeded, counted by the Job controller or
// not yet, are not missing.
func (Kind) IsReady(o client.Object, granted []int32) bool {
	job := o.(*batchv1.Job)
	ready := ptr.Deref(job.Status.Ready, 0)
	if uncounted := job.Status.UncountedTerminatedPods; uncounted != nil {
		ready += int32(len(uncounted.Succeeded))
	}
	return ready >= min(needed(job), granted[0])
}

// Outcome implements jobs.Kind. A Job is ending once its success policy is met, or it has
// failed.
func (Kind) Outcome(o client.Object) (jobs.Outcome, string) {
	job := o.(*batchv1.Job)
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return jobs.Succeeded, cmp.Or(c.Message, "Job finished successfully")
		case c.Type == batchv1.JobFailed:
			return jobs.Failed, cmp.Or(c.Message, "Job failed")
		}
	}
	if hasCondition(job, batchv1.JobSuccessCriteriaMet) || hasCondition(job, batchv1.JobFailureTarget) {
		return jobs.Ending, ""
	}
	return jobs.Unfinished, ""
}

// Counts implements jobs.Counted.
func (Kind) Counts(o client.Object) []jobs.Counts {
	job := o.(*batchv1.Job)
	created := podsLeft(job) + job.Status.Succeeded + job.Status.Failed
	if uncounted := job.Status.UncountedTerminatedPods; uncounted != nil {
		created += int32(len(uncounted.Succeeded) + len(uncounted.Failed))
	}
	return []jobs.Counts{{Requested: maxParallel(job), Needed: needed(job), Left: podsLeft(job), Created: created}}
}

// CanScale implements jobs.Elastic.
func (Kind) CanScale() bool { return true }

// MayHaveGated implements jobs.Elastic: a ready pod has no gate.
func (Kind) MayHaveGated(o client.Object) bool {
	job := o.(*batchv1.Job)
	return job.Status.Active != ptr.Deref(job.Status.Ready, 0)
}

// Compare implements jobs.Elastic: the Job controller deletes the highest indexes first
// when the Job shrinks.
func (Kind) Compare(a, b *corev1.Pod) int { return cmp.Compare(completionIndex(a), completionIndex(b)) }

// completionIndex of a pod; 0 for those of a Job that is not Indexed.
func completionIndex(pod *corev1.Pod) int {
	index, _ := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return index
}

// CreatesPodsSince implements jobs.Refusable.
func (Kind) CreatesPodsSince(o client.Object) time.Time {
	job := o.(*batchv1.Job)
	if job.Status.StartTime == nil || hasCondition(job, batchv1.JobSuspended) {
		return time.Time{}
	}
	return job.Status.StartTime.Time
}

// RefusalEvents implements jobs.Refusable.
func (Kind) RefusalEvents() client.MatchingFields {
	return client.MatchingFields{"reason": "FailedCreate", "source": "job-controller"}
}

// Unlock implements jobs.Unlocker: before Kubernetes 1.36 the template of a Job that has
// once started is immutable until its start time is removed.
func (Kind) Unlock(o client.Object) bool {
	job := o.(*batchv1.Job)
	if job.Status.StartTime == nil {
		return false
	}
	job.Status.StartTime = nil
	return true
}

func hasCondition(job *batchv1.Job, t batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// maxParallel returns how many pods of the Job can run at once, no matter how many have ended. A Job without completions creates no new pod
// once one has succeeded.
func maxParallel(job *batchv1.Job) int32 {
	parallelism := ptr.Deref(job.Spec.Parallelism, 1)
	return min(parallelism, ptr.Deref(job.Spec.Completions, parallelism))
}

// needed is how many pods of the Job run at once at most from now on. A Job that is started
// again runs only what is left of it; machines for more would wait for pods that never
// come.
func needed(job *batchv1.Job) int32 {
	parallelism := ptr.Deref(job.Spec.Parallelism, 1)
	completions := ptr.Deref(job.Spec.Completions, parallelism)
	return max(0, min(parallelism, completions-job.Status.Succeeded-failedIndexes(job)))
}

// podsLeft returns how many pods of the Job exist according to its status. Terminating pods count, since they still use their nodes.
func podsLeft(job *batchv1.Job) int32 {
	return job.Status.Active + ptr.Deref(job.Status.Terminating, 0)
}

// failedIndexes is how many indexes of an Indexed Job have failed for good. The API lists
// them like "1,3-5".
func failedIndexes(job *batchv1.Job) (n int32) {
	if job.Status.FailedIndexes == nil {
		return 0
	}
	for part := range strings.SplitSeq(*job.Status.FailedIndexes, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseInt(first, 10, 32)
		if err != nil {
			continue
		}
		n++
		if to, err := strconv.ParseInt(last, 10, 32); isRange && err == nil {
			n += int32(to - from)
		}
	}
	return n
}
