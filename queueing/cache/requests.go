package cache

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/queueing/workload"
)

// Requests are ProvisioningRequests by the UID of the Workload that controls them, unordered.
type Requests map[types.UID][]*autoscaling.ProvisioningRequest

// Of returns the requests of a Workload.
func (r Requests) Of(w *Workload) []*autoscaling.ProvisioningRequest {
	if len(r) == 0 {
		return nil // without reading the object
	}
	return r[w.Object.UID]
}

// ProvisionFirst returns the requests that a Workload created before it had quota.
func (r Requests) ProvisionFirst(w *Workload) []*autoscaling.ProvisioningRequest {
	return slices.DeleteFunc(slices.Clone(r.Of(w)), func(r *autoscaling.ProvisioningRequest) bool {
		return r.Annotations[workload.ProvisionFirstAnnotation] == ""
	})
}

// ownerOf returns the Workload that controls a request; empty if queueing did not create it.
func ownerOf(r *autoscaling.ProvisioningRequest) types.UID {
	owner := metav1.GetControllerOf(r)
	if owner == nil || owner.Kind != "Workload" || r.Labels[workload.ManagedLabel] != "true" {
		return ""
	}
	return owner.UID
}

// Existing returns the requests that are not being deleted.
func Existing(requests []*autoscaling.ProvisioningRequest) []*autoscaling.ProvisioningRequest {
	var out []*autoscaling.ProvisioningRequest
	for _, r := range requests {
		if r.DeletionTimestamp.IsZero() {
			out = append(out, r)
		}
	}
	return out
}
