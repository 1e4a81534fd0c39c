package jobs

import (
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// QueueLabel on a Job names its LocalQueue.
	QueueLabel = "kueue.x-k8s.io/queue-name"
	// PriorityClassLabel on a Job names its WorkloadPriorityClass.
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"
	// JobUIDLabel on a Workload is the UID of its Job.
	JobUIDLabel = "kueue.x-k8s.io/job-uid"
	// MaxExecTimeLabel on a Job bounds how long it may run, in seconds.
	MaxExecTimeLabel = "kueue.x-k8s.io/max-exec-time-seconds"
	// BreakGlassAnnotation on a Job says that an admin lets it run outside its
	// queue, and why.
	BreakGlassAnnotation = "muster.dev/break-glass"
	// StartedAnnotation on a Job holds what starting it changed of its pod
	// template; only Jobs that Muster has started have it.
	StartedAnnotation = "muster.dev/started"
)

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func isQueued(job *batchv1.Job) bool { return job.Labels[QueueLabel] != "" }

func wasStarted(job *batchv1.Job) bool { return job.Annotations[StartedAnnotation] != "" }

// isStopped says that no pod of a suspended Job is left, as the Job controller
// sees it: one that still terminates holds its node.
func isStopped(job *batchv1.Job) bool {
	if job.Status.Active > 0 || job.Status.Terminating != nil && *job.Status.Terminating > 0 {
		return false
	}
	return job.Status.StartTime == nil || hasCondition(job, batchv1.JobSuspended)
}

// finished says whether the Job is over, and how.
func finished(job *batchv1.Job) (reason, message string, over bool) {
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return kueue.WorkloadFinishedReasonSucceeded, orElse(c.Message, "Job finished successfully"), true
		case batchv1.JobFailed:
			return kueue.WorkloadFinishedReasonFailed, orElse(c.Message, "Job failed"), true
		}
	}
	return "", "", false
}

func hasCondition(job *batchv1.Job, t batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// podCount is how many pods of the Job will run at once at most. A Job that is
// started over runs only what is left of it; machines for more would wait for
// pods that never come.
func podCount(job *batchv1.Job) int32 {
	n := int32(1)
	if job.Spec.Parallelism != nil {
		n = *job.Spec.Parallelism
	}
	if job.Spec.Completions != nil {
		n = min(n, *job.Spec.Completions-job.Status.Succeeded-failedIndexes(job))
	}
	return max(0, n)
}

// failedIndexes is how many indexes of an Indexed Job have failed for good. The
// API lists them like "1,3-5".
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
