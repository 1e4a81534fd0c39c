package workload

const (
	// FillsNodesAnnotation is prepared by a check for pods that fill the nodes booked for them.
	FillsNodesAnnotation = "muster.dev/fills-nodes"
	// RefusedAnnotation on a Workload says why it cannot be queued as it is. The
	// job controllers write it, since only they see the job.
	RefusedAnnotation = "muster.dev/refused"
	// DelegatedAnnotation, "true" on a Workload, says that the controller of its job has it run in
	// another cluster.
	DelegatedAnnotation = "muster.dev/delegated"
	// QueuedSinceAnnotation on the copy of a Workload in a worker is when its job began to wait, in the manager.
	QueuedSinceAnnotation = "muster.dev/queued-since"
	// PriorityClassLabel on a job names its WorkloadPriorityClass.
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"

	// ConditionDelegated of a LocalQueue is True where its jobs run in other clusters. Admission
	// policies read it.
	ConditionDelegated = "muster.dev/Delegated"
	// OrderAnnotation on a Workload says which of its pod sets start after others.
	OrderAnnotation = "muster.dev/order"
	// CopiesFinalizer of a Workload keeps it, with its quota, while another cluster may have a copy of it.
	CopiesFinalizer = "muster.dev/copies"
	// GatedByAnnotation on a Workload names the controllers that hold it back.
	GatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"
	// GroupAnnotation, "true" on a Workload, says that it is of a group of pods.
	GroupAnnotation = "kueue.x-k8s.io/is-group-workload"
	// GroupName is an annotation or a label of a pod of a group, and GroupCountAnnotation says of how many.
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
	// PrebuiltLabel on a job, or the annotation of that key, names a Workload that something else has
	// created for it.
	PrebuiltLabel = "kueue.x-k8s.io/prebuilt-workload-name"
	// PodSetLabel, LocalQueueLabel and ClusterQueueLabel on a pod say as what and in
	// which queues it was admitted.
	PodSetLabel       = "kueue.x-k8s.io/podset"
	LocalQueueLabel   = "kueue.x-k8s.io/local-queue-name"
	ClusterQueueLabel = "kueue.x-k8s.io/cluster-queue-name"
	// AheadAnnotation on a ProvisioningRequest says that it was made before its
	// Workload had quota, and for which pods and flavors.
	AheadAnnotation = "muster.dev/ahead-of-quota"
	// ManagedLabel marks the objects that queueing makes, as Kueue does.
	ManagedLabel = "kueue.x-k8s.io/managed"
	// ParameterPrefix begins the annotations of a job whose rest is the name of a
	// parameter of its ProvisioningRequest.
	ParameterPrefix = "provreq.kueue.x-k8s.io/"
)

// ReasonWaitingForCapacity is the reason of QuotaReserved=False where quota is
// free but the machines are not to be had now. Kueue reserves quota blindly and
// so has no word for it.
const ReasonWaitingForCapacity = "WaitingForCapacity"
