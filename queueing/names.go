package queueing

import (
	"github.com/muster-dev/muster/provisioning"
)

// Planner is the signature of provisioning.Plan.
type Planner func(*provisioning.Snapshot, provisioning.Gang, provisioning.Policy) provisioning.Verdict

// Names of the controllers of admission checks that this package knows.
const (
	// CapacityController is the controllerName of checks that Muster serves: the
	// machines of the whole gang are there and booked.
	CapacityController = "muster.dev/capacity"
	// ProvisioningRequestController is that of Kueue's own checks, which Muster
	// serves as Kueue does: whoever provisions answers their requests.
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
