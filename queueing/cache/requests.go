package cache

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/queueing/workload"
)

// Requests are ProvisioningRequests by the UID of the Workload that controls them, in no
// order.
type Requests map[types.UID][]*autoscaling.ProvisioningRequest

// Of are the requests of a Workload.
func (r Requests) Of(w *Workload) []*autoscaling.ProvisioningRequest {
	if len(r) == 0 {
		return nil // without a look at the object
	}
	return r[w.Object.UID]
}

// AheadOfQuota are the requests that a Workload has made ahead of its quota.
func (r Requests) AheadOfQuota(w *Workload) []*autoscaling.ProvisioningRequest {
	return slices.DeleteFunc(slices.Clone(r.Of(w)), func(r *autoscaling.ProvisioningRequest) bool {
		return r.Annotations[workload.AheadAnnotation] == ""
	})
}

// ownerOf is the Workload that controls a request; empty if queueing did not make
// it.
func ownerOf(r *autoscaling.ProvisioningRequest) types.UID {
	owner := metav1.GetControllerOf(r)
	if owner == nil || owner.Kind != "Workload" || r.Labels[workload.ManagedLabel] != "true" {
		return ""
	}
	return owner.UID
}

// Existing are the requests that have not been deleted yet.
func Existing(requests []*autoscaling.ProvisioningRequest) []*autoscaling.ProvisioningRequest {
	var out []*autoscaling.ProvisioningRequest
	for _, r := range requests {
		if r.DeletionTimestamp.IsZero() {
			out = append(out, r)
		}
	}
	return out
}
