package v1alpha1

// Labels and annotations that Muster puts on nodes.
const (
	// NodeGroupLabel names the NodeGroup that a node belongs to. It is part of
	// the machine's template, so that the node is born with it.
	NodeGroupLabel = "muster.dev/node-group"

	// CloudGroupLabel is for templates of a cloud's own groups: nodes that register
	// with it are born cordoned while a launch into the group of that value is in
	// flight. Any value that a label may have will do, if it is the group's alone.
	CloudGroupLabel = "muster.dev/cloud-group"

	// DiscoveredLabel names, on a NodeGroup, the cloud that it was found in. Muster
	// keeps its spec as the cloud's own group says; all others are their owners'.
	DiscoveredLabel = "muster.dev/discovered"

	// LaunchAnnotation carries the token of the launch that made the node: the
	// UID of the request and the attempt. It attributes the machine.
	LaunchAnnotation = "muster.dev/launch"

	// CordonedAnnotation marks a cordon as Muster's own; its value says why. A
	// cordon without it is a human's and is never lifted.
	CordonedAnnotation = "muster.dev/cordoned"

	// HeldLabel stands on nodes with such a cordon, from the write that cordons them to the
	// one that lifts it: a policy keeps off pods that tolerate the cordon and have booked
	// nothing. Kubelets may not write labels of its prefix.
	HeldLabel = "muster.node-restriction.kubernetes.io/held"

	// ScaleDownDisabledAnnotation, with the value true, keeps a cluster-autoscaler
	// from removing the node while Muster holds it. KeptAnnotation says that it was
	// Muster who put it: an owner's own word stays.
	ScaleDownDisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	KeptAnnotation              = "muster.dev/kept-from-scale-down"

	// BookedLabelPrefix, followed by the key of a request, labels the nodes that
	// the request has booked, once its pods may come; the value is the request's
	// namespace. An annotation of the same name, which comes first, says how much.
	BookedLabelPrefix = "booked.muster.dev/"
)

// Values of CordonedAnnotation.
const (
	// CordonJoining: the machine belongs to a launch that is not complete yet.
	CordonJoining = "joining"
	// CordonBooked: the whole node waits for the pods of its booking.
	CordonBooked = "booked"
	// CordonGivingBack: the machine was idle for too long and is about to go.
	CordonGivingBack = "giving-back"
)
