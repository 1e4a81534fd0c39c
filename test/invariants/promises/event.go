package promises

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Kind of an object that the Checker reads.
type Kind string

// All kinds. Others are ignored.
const (
	Nodes                Kind = "Node"
	Pods                 Kind = "Pod"
	PodTemplates         Kind = "PodTemplate"
	Jobs                 Kind = "Job"
	ProvisioningRequests Kind = "ProvisioningRequest"
	Workloads            Kind = "Workload"
	ClusterQueues        Kind = "ClusterQueue"
	LocalQueues          Kind = "LocalQueue"
	Cohorts              Kind = "Cohort"
	AdmissionChecks      Kind = "AdmissionCheck"
	CapacityPolicies     Kind = "CapacityPolicy"
	NodeGroups           Kind = "NodeGroup"
	Machines             Kind = "Machine"
)

// KindOf returns the kind of an object, or "" if it is ignored.
func KindOf(object metav1.Object) Kind {
	switch object.(type) {
	case *corev1.Node:
		return Nodes
	case *corev1.Pod:
		return Pods
	case *corev1.PodTemplate:
		return PodTemplates
	case *batchv1.Job:
		return Jobs
	case *provreq.ProvisioningRequest:
		return ProvisioningRequests
	case *kueue.Workload:
		return Workloads
	case *kueue.ClusterQueue:
		return ClusterQueues
	case *kueue.LocalQueue:
		return LocalQueues
	case *kueue.Cohort:
		return Cohorts
	case *kueue.AdmissionCheck:
		return AdmissionChecks
	case *v1alpha1.CapacityPolicy:
		return CapacityPolicies
	case *v1alpha1.NodeGroup:
		return NodeGroups
	case *kwokv1alpha1.Machine:
		return Machines
	default:
		return ""
	}
}

// Event is one version of an object, or its end.
type Event struct {
	// Object is not kept, and not changed.
	Object metav1.Object
	// Deleted: the object is gone; Object is its last version.
	Deleted bool
	// Listed: the version comes from a list. What was before it is unknown.
	Listed bool
	// Revision is the resourceVersion; for a deletion that of the deletion.
	Revision uint64
	// Time of the observation.
	Time time.Time
}

// span is a range of revisions, both ends included.
type span struct{ from, to uint64 }

// unsure says that versions of the kind may have been missed at the revision.
func (c *Checker) unsure(revision uint64, kinds ...Kind) bool {
	for _, k := range kinds {
		for _, s := range c.gaps[k] {
			if s.from <= revision && revision <= s.to {
				return true
			}
		}
	}
	return false
}
