package v1alpha1

// Labels and annotations that Muster puts on nodes.
const (
	// NodeGroupLabel names the NodeGroup of a node. It is part of the machine's template, so
	// that the node registers with it.
	NodeGroupLabel = "muster.dev/node-group"

	// CloudGroupLabel is for templates of cloud groups: nodes that register with it are
	// created cordoned while a launch in the group of that value is in flight. The value must
	// be unique to the group.
	CloudGroupLabel = "muster.dev/cloud-group"

	// DiscoveredLabel names, on a NodeGroup, the cloud in which it was discovered. Muster keeps
	// its spec in step with the cloud's group, and does not change other NodeGroups.
	DiscoveredLabel = "muster.dev/discovered"

	// LaunchAnnotation has the token of the launch that made the node: the UID of the request
	// and the attempt. It attributes the machine.
	LaunchAnnotation = "muster.dev/launch"

	// LeftByAnnotation on a node names the tenant whose gang was the last to leave it, as NAMESPACE/LOCALQUEUE: while the node is idle it
	// costs because of them. Nothing but the attribution of costs depends on it.
	LeftByAnnotation = "muster.dev/left-by"

	// CordonedAnnotation marks a cordon as Muster's own; its value is the reason. Muster never
	// lifts a cordon without it.
	CordonedAnnotation = "muster.dev/cordoned"

	// RebootAnnotation is on nodes that kured is about to reboot. It drains them, and cordons
	// those that are not cordoned already.
	RebootAnnotation = "weave.works/kured-reboot-in-progress"

	// HeldLabel is on nodes with such a cordon, from the write that cordons them to the one
	// that lifts it: a policy keeps off pods that tolerate the cordon without a booking.
	// Kubelets cannot write labels with its prefix.
	HeldLabel = "muster.node-restriction.kubernetes.io/held"

	// BookedTaint, with the effect NoSchedule, keeps pods off a node in place of the cordon, where the pods that it is booked for
	// tolerate it: a cordon hides nodes from a Kueue that places pods by topology.
	BookedTaint = "muster.dev/booked"

	// BookedByLabel names on a node with that taint, and in the provisioningClassDetails of the request, the request that has
	// booked it, by its UID. A Kueue selects the nodes of a Workload by it.
	BookedByLabel = "muster.dev/booked-by"

	// ScaleDownDisabledAnnotation, with the value true, keeps a cluster-autoscaler from
	// removing the node while Muster holds it. KeptAnnotation marks it as set by Muster; one
	// that was set by others stays.
	ScaleDownDisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	KeptAnnotation              = "muster.dev/kept-from-scale-down"

	// TerminateAtOnceAnnotation on a NodeGroup is how many machines may be terminated though
	// their node has gone or is not Ready, or though no request has launched them, where they are so many at once
	// that Muster waits for approval.
	TerminateAtOnceAnnotation = "muster.dev/terminate-at-once"

	// AcceptedPurchasesAnnotation on a ProvisioningRequest that buys nothing more, since it has bought too much, is up to how many
	// machines an administrator accepts what was bought: from there it may buy twice what it needs again.
	AcceptedPurchasesAnnotation = "muster.dev/accepted-purchases"

	// RepairedAnnotation on a NodeGroup lets the next launch try at once after an admin has repaired what the group refers to in the
	// cloud, such as its image or its network. Each new value counts once; the time is a good one.
	RepairedAnnotation = "muster.dev/repaired"

	// AutoscalerLaunchesAnnotation on a NodeGroup is the record of the launches that a
	// cluster-autoscaler has requested, from before the cloud is called.
	AutoscalerLaunchesAnnotation = "muster.dev/autoscaler-launches"

	// BookedLabelPrefix, followed by the key of a request, labels the nodes that the request
	// has booked, once its pods may be bound; the value is the request's namespace. An
	// annotation of the same name, which is written first, has the booked amount.
	BookedLabelPrefix = "booked.muster.dev/"
)

// Values of CordonedAnnotation.
const (
	// CordonJoining: the machine belongs to a launch that is not complete yet.
	CordonJoining = "joining"
	// CordonBooked: the whole node waits for the pods of its booking.
	CordonBooked = "booked"
	// CordonIdle: the machine is idle. A request may book it, and no pod without a booking may come to it.
	CordonIdle = "idle"
	// CordonScalingDown: the machine was idle for too long and is about to be terminated.
	CordonScalingDown = "scaling-down"
)
