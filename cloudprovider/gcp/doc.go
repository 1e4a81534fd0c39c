// Package gcp is the adapter of Google Cloud. It launches machines, all or nothing,
// for managed instance groups (MIGs) that say in the metadata or the labels of their
// instance template that they are Muster's:
//
//	muster-dev-enabled        any value
//	muster-dev-cluster        the cluster that its machines join; node pools of GKE say it
//	                          themselves, with its location
//	muster-dev-max-nodes      how many machines there may be, unless an autoscaler of
//	                          mode OFF says so
//	muster-dev-min-nodes      how many stay when idle ones are terminated
//	muster-dev-startup-taints the taints that another component removes while a node starts,
//	                          as key=value:Effect,…, beside those with cluster-autoscaler's
//	                          prefixes
//	muster-dev-queue-timeout  how long a launch may wait in the cloud's queue, such as 24h
//	muster-dev-launch-method  one of those below, unless the one that fits is right
//	muster-dev-price-per-hour what an hour of a machine costs in USD, in place of the list price
//
// What their nodes look like is read where cluster-autoscaler reads it: kube-labels
// and kube-env. A MIG is one NodeGroup for each of its zones and machine types.
//
// # Where things are
//
//	api          every call to Google
//	prices       what machines cost
//	inventory    which machines there are, and what identifies them
//	template     what instance templates say of their machines
//	placement    what keeps machines near each other: policies, and blocks of reservations
//	discover     which groups there are, and what their machines offer
//	launch       launches, a file for each method
//	terminate     the end of machines
//	advice       what Google says of the chance of getting machines
//	permissions  what the calls need, and what the caller lacks
//
// Each imports only what stands above it: discover, launch and terminate do not know each other. This package wires them.
//
// # Whose a machine is
//
// Groups of other clusters in the project are not used, even if a NodeGroup names them.
// What Muster makes is known by the UID of the cluster's namespace kube-system: a label of
// the machines that stand beside a MIG, and a hash in the names of all. So clusters of one
// name, such as the two of an upgrade or a restored copy, leave each other's machines alone;
// and a cluster that was created again does not own the machines of the former.
//
// # Launch methods
//
//	BulkInsert
//	  what it is       instances.bulkInsert with minCount = count, from the MIG's
//	                   template, into one zone
//	  all or nothing   by the cloud: it deletes what it has made of a launch that fails
//	  attribution      by instance names and labels, which name the cluster as well
//	  works on         zonal and regional MIGs; its machines stand beside the MIG and
//	                   count towards its limit. Not on node pools of GKE, which must
//	                   own their machines. Standard and Spot
//	  paid for while   what has been made of it, until the operation ends
//	  it waits
//	ResizeRequest
//	  what it is       a resize request for instances of given names
//	  all or nothing   by the cloud, which queues it; Muster cancels it when its time
//	                   (spec.queueTimeout, else spec.joinTimeout) is over
//	  attribution      by the name of the request, then by instance names
//	  works on         MIGs of one zone whose template is of provisioning model
//	                   FLEX_START or RESERVATION_BOUND, and that have no autoscaler.
//	                   Not on node pools of GKE, which has queued provisioning of its
//	                   own. Flex-start machines
//	                   live for seven days at most: the cloud deletes them
//	  paid for while   nothing
//	  it waits
//	CreateInstances
//	  what it is       the MIG creates instances of given names
//	  all or nothing   by Muster: the MIG never gives up, so after the first failure
//	                   all of the names are deleted, which lowers the target size by
//	                   exactly them, whether or not there is a VM yet
//	  attribution      by instance names
//	  works on         MIGs of one zone, node pools of GKE among them. Standard and Spot
//	  paid for while   what has come
//	  it waits
//
// Names follow from the launch's token, see inventory.Names, so that a call that is repeated
// makes nothing twice, however late: the cloud makes no two instances of a name in a
// zone. Within an hour it also recognizes the call by its requestId.
//
// The bound on the life of a machine of a launch that was given up is Bound for all
// of them, while the cloud answers and Muster runs. Without Muster such a machine stays,
// except flex-start ones.
//
// Machines that must be together, see LaunchRequest.Together, are put near each other so:
//
//	                     BulkInsert            ResizeRequest, CreateInstances
//	by                   a compact placement   the policies of the managed
//	                     policy of Muster's    instance group, which are its owner's
//	at most of them      1500                  -
//	joining what is      the policy of that    as the group does it
//	there
//	known to be near     once nodes have labels
//
// Muster makes a policy for the launches of a token in a zone, unless the template names a resource policy or a reservation, or
// machines of the type can be in none. Where it cannot be made, as without the permission, machines are launched without, and
// a warning of the group says why: the policy is a wish, and what comes is judged by the labels of nodes either way, so a launch
// may do without it, while a refusal would make its gang wait for a person. It is deleted five minutes after the last launch or
// machine that needed it, and one that another process has left within five minutes of the next look, which comes at the start
// and every hour. The cloud refuses to delete one that has machines, so what lists do not know is safe.
//
// A group that makes its machines by CreateInstances is warned of once a gang needed a domain there and it has no policy: what a
// workload policy says is not read, since a group that has one was made for machines that are together.
//
// Those of a bulk insert that consume a reservation with blocks go into one of its blocks or sub-blocks, which is known before
// machines exist: the one that has the fewest free healthy hosts of those that hold all, by the reservation affinity
// projects/…/reservations/…/reservationBlocks/…/reservationSubBlocks/… that Google documents for node pools of GKE on A3 Ultra, A4
// and A4X. It is remembered for the hour in which the cloud recognizes the call, so that a call that is repeated is the same.
//
// Machines of provisioning model RESERVATION_BOUND end with their reservation, as its deleteAtTime
// says, and so does their NodeGroup. Of others, such as those on flex-start, the cloud says by
// itself when it ends them.
//
// # What is left, and what is not seen
//
// Machines that a MIG owns carry no label of the cluster. Those of a NodeGroup that was
// deleted are known as long as the process lives; after a restart they are the MIG's
// own, like those that Muster did not launch. A NodeGroup that was discovered comes
// back under its name with them.
//
// A machine of a launch that has ended by itself, or that the cloud has stopped to maintain
// its host, stays with the cloud, stopped, with its disks. If it is not started again within
// ten minutes, and few others are stopped, Muster deletes it; so does the cloud at once with Spot machines of bulk inserts.
// A deletion whose operation fails, or that lists do not show in two minutes, is repeated.
package gcp
