package cache

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/queueing/workload"
)

// RequestsAheadOfQuota are the requests that a Workload has made ahead of its quota.
func (s *Cache) RequestsAheadOfQuota(w *Workload) []*autoscaling.ProvisioningRequest {
	return slices.DeleteFunc(slices.Clone(s.Requests[w.Object.UID]), func(r *autoscaling.ProvisioningRequest) bool {
		return r.Annotations[workload.AheadAnnotation] == ""
	})
}

// setRequest takes in a ProvisioningRequest that queueing made.
func (s *Cache) setRequest(r *autoscaling.ProvisioningRequest) {
	owner := ownerOf(r)
	if owner == "" {
		return
	}
	list := s.Requests[owner]
	if i := slices.IndexFunc(list, func(x *autoscaling.ProvisioningRequest) bool { return x.UID == r.UID }); i >= 0 {
		if !list[i].DeletionTimestamp.IsZero() && r.DeletionTimestamp.IsZero() {
			// Marked by Deleted; the caller's view is behind.
			return
		}
		list[i] = r
	} else {
		s.Requests[owner] = append(list, r)
	}
	s.MarkDue(owner)
}

func (s *Cache) deleteRequest(r *autoscaling.ProvisioningRequest) {
	owner := ownerOf(r)
	list := slices.DeleteFunc(s.Requests[owner], func(x *autoscaling.ProvisioningRequest) bool { return x.UID == r.UID })
	if len(list) == 0 {
		delete(s.Requests, owner)
	} else {
		s.Requests[owner] = list
	}
	s.MarkDue(owner)
}

// Deleted says that the caller has deleted a request, whatever later views of it
// show.
func (s *Cache) Deleted(r *autoscaling.ProvisioningRequest, at time.Time) {
	marked := r.DeepCopy()
	marked.DeletionTimestamp = new(metav1.NewTime(at))
	s.setRequest(marked)
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

// Existing are the requests that nobody has deleted yet.
func Existing(requests []*autoscaling.ProvisioningRequest) []*autoscaling.ProvisioningRequest {
	var out []*autoscaling.ProvisioningRequest
	for _, r := range requests {
		if r.DeletionTimestamp.IsZero() {
			out = append(out, r)
		}
	}
	return out
}
