package jobs

import (
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

const (
	// QueueLabel on a Job names its LocalQueue.
	QueueLabel = "kueue.x-k8s.io/queue-name"
	// PriorityClassLabel on a Job names its WorkloadPriorityClass.
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"
	// JobUIDLabel on a Workload is the UID of its Job.
	JobUIDLabel = queueing.JobUIDLabel
	// MaxExecTimeLabel on a Job bounds how long it may run, in seconds.
	MaxExecTimeLabel = "kueue.x-k8s.io/max-exec-time-seconds"
	// PodSetLabel, LocalQueueLabel and ClusterQueueLabel on a pod say what it was
	// started as and in which queues.
	PodSetLabel       = "kueue.x-k8s.io/podset"
	LocalQueueLabel   = "kueue.x-k8s.io/local-queue-name"
	ClusterQueueLabel = "kueue.x-k8s.io/cluster-queue-name"
	// MinParallelismAnnotation on a Job says with how many pods at once it may start
	// if there is no quota for all.
	MinParallelismAnnotation = "kueue.x-k8s.io/job-min-parallelism"
	// EqualCompletionsAnnotation on an Indexed Job says that its completions follow
	// its parallelism where it starts with fewer pods.
	EqualCompletionsAnnotation = "kueue.x-k8s.io/job-completions-equal-parallelism"
	// BreakGlassAnnotation on a Job says that an admin lets it run outside its
	// queue, and why.
	BreakGlassAnnotation = "muster.dev/break-glass"
	// StartedAnnotation on a Job holds what starting it changed of its pod
	// template; only Jobs that Muster has started have it.
	StartedAnnotation = "muster.dev/started"
)

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func wasStarted(job *batchv1.Job) bool { return job.Annotations[StartedAnnotation] != "" }

// isStopped says that no pod of a suspended Job is left, as the Job controller
// sees it: one that still terminates holds its node.
func isStopped(job *batchv1.Job) bool {
	return podsLeft(job) == 0 && (job.Status.StartTime == nil || hasCondition(job, batchv1.JobSuspended))
}

// isEnding says that the outcome of a Job is settled and its last pods only have
// to go: its success policy is met, or it has failed.
func isEnding(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobSuccessCriteriaMet) || hasCondition(job, batchv1.JobFailureTarget)
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
// pods that never come. One without completions makes no new pod once one has
// succeeded.
func podCount(job *batchv1.Job) int32 {
	parallelism := valueOr(job.Spec.Parallelism, 1)
	completions := valueOr(job.Spec.Completions, parallelism)
	return max(0, min(parallelism, completions-job.Status.Succeeded-failedIndexes(job)))
}

// wholeCount is podCount as it is before any pod has ended.
func wholeCount(job *batchv1.Job) int32 {
	parallelism := valueOr(job.Spec.Parallelism, 1)
	return min(parallelism, valueOr(job.Spec.Completions, parallelism))
}

// podsLeft is how many pods of the Job the Job controller knows to be there:
// those that still terminate hold their nodes.
func podsLeft(job *batchv1.Job) int32 {
	return job.Status.Active + valueOr(job.Status.Terminating, 0)
}

func valueOr[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
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
