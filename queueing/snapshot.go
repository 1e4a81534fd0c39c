package queueing

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// Snapshot is all that a cycle sees. It is read-only; the order of its lists
// does not matter.
type Snapshot struct {
	Now time.Time

	ClusterQueues []*kueue.ClusterQueue
	LocalQueues   []*kueue.LocalQueue
	Flavors       []*kueue.ResourceFlavor
	Checks        []*kueue.AdmissionCheck
	Policies      []*v1alpha1.CapacityPolicy
	// Namespaces are the labels of the namespaces, for namespaceSelectors.
	Namespaces map[string]labels.Set

	Workloads []*Workload
	// Requests are the ProvisioningRequests by the UID of the Workload that
	// controls them.
	Requests map[types.UID][]*autoscaling.ProvisioningRequest

	// Capacity is the provisioner's picture of the machines. It is advice that
	// spares useless attempts; nil means that there is none.
	Capacity *provisioning.Snapshot
	// Plan answers what Capacity means for a gang. It must be pure. Nil means
	// that there is no advice.
	Plan Planner
}

// Planner is the signature of provisioning.Plan.
type Planner func(*provisioning.Snapshot, provisioning.Gang, provisioning.Policy) provisioning.Verdict

// Names of the controllers of admission checks that this package knows.
const (
	// CapacityController is the controllerName of checks that Muster serves: the
	// machines of the whole gang are there and booked.
	CapacityController = "muster.dev/capacity"
	// ProvisioningRequestController is Kueue's own check, not served yet.
	ProvisioningRequestController = "kueue.x-k8s.io/provisioning-request"
	// MultiKueueController is Kueue's dispatcher to other clusters, not served.
	MultiKueueController = "kueue.x-k8s.io/multikueue"
)

const (
	// RefusedAnnotation on a Workload says why it cannot be queued as it is. The
	// job controllers write it, since only they see the job.
	RefusedAnnotation = "muster.dev/refused"
	// GatedByAnnotation on a Workload names those who hold it back.
	GatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"
)
