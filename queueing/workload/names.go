package workload

const (
	// FillsNodesAnnotation in podSetUpdates marks pods that fill their booked nodes completely.
	FillsNodesAnnotation = "muster.dev/fills-nodes"
	// RefusedAnnotation on a Workload says why it cannot be queued. The job controllers write it, because only they
	// read the job.
	RefusedAnnotation = "muster.dev/refused"
	// SubmittedByAnnotation on a job, a pod in a queue and a Workload is the name of the user that created the job. A policy writes it
	// where users are recorded.
	SubmittedByAnnotation = "muster.dev/submitted-by"
	// DelegatedAnnotation, "true" on a Workload, means that the controller of its job runs it in another cluster.
	DelegatedAnnotation = "muster.dev/delegated"
	// QueuedSinceAnnotation on a copy of a Workload in a worker cluster is when its job began to wait in the manager.
	QueuedSinceAnnotation = "muster.dev/queued-since"
	// PriorityClassLabel on a job names its WorkloadPriorityClass.
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"

	// ConditionDelegated of a LocalQueue is True if its jobs run in other clusters. Admission policies read it.
	ConditionDelegated = "muster.dev/Delegated"
	// OrderAnnotation on a Workload lists the pod sets that start after others.
	OrderAnnotation = "muster.dev/order"
	// CopiesFinalizer keeps a Workload and its quota while another cluster may have a copy of it.
	CopiesFinalizer = "muster.dev/copies"
	// GatedByAnnotation on a Workload names the controllers that gate its admission.
	GatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"
	// GroupAnnotation, "true" on a Workload, means that it belongs to a group of pods.
	GroupAnnotation = "kueue.x-k8s.io/is-group-workload"
	// GroupName is an annotation or a label of a pod in a group, and GroupCountAnnotation is the size of the group.
	GroupName            = "kueue.x-k8s.io/pod-group-name"
	GroupCountAnnotation = "kueue.x-k8s.io/pod-group-total-count"
	// GroupIndexAnnotation numbers the Workloads of one object, such as those of the groups of a LeaderWorkerSet.
	GroupIndexAnnotation = "kueue.x-k8s.io/component-workload-index"
	// LeaderWorkerSetLabel on a pod names its LeaderWorkerSet, and GroupIndexLabel numbers its group.
	LeaderWorkerSetLabel = "leaderworkerset.sigs.k8s.io/name"
	GroupIndexLabel      = "leaderworkerset.sigs.k8s.io/group-index"
	// QueueLabel on a job or a pod names its LocalQueue.
	QueueLabel = "kueue.x-k8s.io/queue-name"
	// JobUIDLabel on a Workload is the UID of its job.
	JobUIDLabel = "kueue.x-k8s.io/job-uid"
	// PrebuiltLabel on a job, or the annotation of that key, names a Workload that another client has created for it.
	PrebuiltLabel = "kueue.x-k8s.io/prebuilt-workload-name"
	// PodSetLabel, LocalQueueLabel and ClusterQueueLabel on a pod are the pod set and the queues that it was admitted
	// with.
	PodSetLabel       = "kueue.x-k8s.io/podset"
	LocalQueueLabel   = "kueue.x-k8s.io/local-queue-name"
	ClusterQueueLabel = "kueue.x-k8s.io/cluster-queue-name"
	// ProvisionFirstAnnotation on a ProvisioningRequest means that it was created before its Workload had quota. Its
	// value is the assignment.
	ProvisionFirstAnnotation = "muster.dev/ahead-of-quota"
	// ManagedLabel marks the objects that queueing creates, as in Kueue.
	ManagedLabel = "kueue.x-k8s.io/managed"
	// ParameterPrefix is the prefix of job annotations that become parameters of its ProvisioningRequest.
	ParameterPrefix = "provreq.kueue.x-k8s.io/"
)

// ReasonWaitingForCapacity is the reason of QuotaReserved=False if quota is free but the machines cannot be obtained
// now. Kueue reserves quota without considering machines, so it has no such reason.
const ReasonWaitingForCapacity = "WaitingForCapacity"
