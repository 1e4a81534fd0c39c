package controller

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// copyOf reads a Workload of a worker, and the ProvisioningRequests that it has made there.
func copyOf(w *kueue.Workload, origin string, requests []*provreq.ProvisioningRequest) *dispatch.Copy {
	c := &dispatch.Copy{
		UID: w.UID, Foreign: w.Labels[kueue.MultiKueueOriginLabel] != origin, Leaving: !w.DeletionTimestamp.IsZero(),
		Reserved: workload.HasQuota(w), Admitted: workload.IsAdmitted(w) && workload.HasQuota(w), Finished: workload.IsFinished(w),
	}
	if c.Admitted || c.Finished {
		return c
	}
	c.Refused, c.Message = refusalOf(w, requests)
	return c
}

// refusalOf is why the worker gives the Workload nothing, as far as it says so.
func refusalOf(w *kueue.Workload, requests []*provreq.ProvisioningRequest) (dispatch.Reason, string) {
	for _, state := range []kueue.CheckState{kueue.CheckStateRejected, kueue.CheckStateRetry} {
		if checks := workload.ChecksIn(w, state); len(checks) > 0 {
			reason := dispatch.NoCapacity
			if state == kueue.CheckStateRejected {
				reason = dispatch.Rejected
			}
			return reason, workload.DescribeChecks(checks)
		}
	}
	evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	isEvicted := evicted != nil && evicted.Status == metav1.ConditionTrue
	switch {
	case !workload.IsActive(w):
		return dispatch.Rejected, "it was deactivated there"
	case isEvicted && evicted.Reason == kueue.WorkloadEvictedByAdmissionCheck:
		return dispatch.NoCapacity, evicted.Message
	case isEvicted:
		return dispatch.Evicted, evicted.Message
	}
	for _, r := range requests {
		for _, kind := range []string{provreq.Failed, provreq.BookingExpired, provreq.CapacityRevoked} {
			if c := apimeta.FindStatusCondition(r.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
				return dispatch.NoCapacity, c.Message
			}
		}
		if c := apimeta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); c != nil && c.Status == metav1.ConditionFalse &&
			c.Reason == transaction.ReasonCapacityIsNotFound {
			return dispatch.NoCapacity, c.Message
		}
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse {
		return dispatch.NoQuota, c.Message
	}
	return "", ""
}
