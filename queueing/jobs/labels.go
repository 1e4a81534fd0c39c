package jobs

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// QueueLabel on a job names its LocalQueue.
	QueueLabel = workload.QueueLabel
	// PriorityClassLabel on a job names its WorkloadPriorityClass.
	PriorityClassLabel = workload.PriorityClassLabel
	// JobUIDLabel on a Workload is the UID of its job.
	JobUIDLabel = workload.JobUIDLabel
	// MaxExecTimeLabel on a job bounds how long it may run, in seconds.
	MaxExecTimeLabel = "kueue.x-k8s.io/max-exec-time-seconds"
	// PrebuiltLabel on a job names a Workload that something else has created for it, and
	// by which it is to run. It may be an annotation, too, for names that no label can
	// hold.
	PrebuiltLabel = workload.PrebuiltLabel
	// PodSetLabel, LocalQueueLabel and ClusterQueueLabel on a pod say as what and in
	// which queues it was admitted.
	PodSetLabel       = workload.PodSetLabel
	LocalQueueLabel   = workload.LocalQueueLabel
	ClusterQueueLabel = workload.ClusterQueueLabel
	// BreakGlassAnnotation on a job says that an administrator lets it run outside its
	// queue, and why.
	BreakGlassAnnotation = "muster.dev/break-glass"
	// StartedAnnotation on a job holds what starting it changed; only jobs that Muster
	// has started have it.
	StartedAnnotation = "muster.dev/started"
	// AloneAnnotation on a job is the UID of an object that controls it and is in no queue, so
	// that the job queues by itself.
	AloneAnnotation = "muster.dev/alone"
	// ScaledGenerationAnnotation on an elastic job is the generation of the object which is scaled in its place. Kueue
	// writes it on the job; here, it is part of what was read of that object.
	ScaledGenerationAnnotation = "kueue.x-k8s.io/raycluster-generation"
)

// PrebuiltName is the name of the Workload that a job does not leave to Muster to create;
// empty for most. As in Kueue, the annotation takes precedence over the label.
func PrebuiltName(job metav1.Object) string {
	return cmp.Or(job.GetAnnotations()[PrebuiltLabel], job.GetLabels()[PrebuiltLabel])
}

// IsElastic reports whether a job may change its number of pods while it runs. A job
// that names a prebuilt Workload has that one alone.
func IsElastic(job metav1.Object) bool { return requestsElastic(job) && PrebuiltName(job) == "" }

func requestsElastic(job metav1.Object) bool {
	return job.GetAnnotations()[workload.ElasticAnnotation] == "true"
}

// WasStarted reports whether a job bears the changes of a start.
func WasStarted(job metav1.Object) bool { return job.GetAnnotations()[StartedAnnotation] != "" }
