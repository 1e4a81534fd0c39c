package transaction

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
)

func TemplatesOf(r *provreq.ProvisioningRequest) []types.NamespacedName {
	out := make([]types.NamespacedName, len(r.Spec.PodSets))
	for i, ps := range r.Spec.PodSets {
		out[i] = types.NamespacedName{Namespace: r.Namespace, Name: ps.PodTemplateRef.Name}
	}
	return out
}

// IsHeld reports whether the request belongs to a Workload, whose queue creates no pod before the capacity exists. An owner that only
// claims to be one lets its own gang start in part.
func IsHeld(r *provreq.ProvisioningRequest) bool {
	owner := metav1.GetControllerOf(r)
	return owner != nil && owner.Kind == "Workload"
}

// WorkloadOf returns the UID of the Workload of a request; empty for none.
func WorkloadOf(r *provreq.ProvisioningRequest) types.UID {
	if !IsHeld(r) {
		return ""
	}
	return metav1.GetControllerOf(r).UID
}

// IsConsumed reports whether all pods of a request have arrived, and have not been stopped since.
func IsConsumed(r *provreq.ProvisioningRequest) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, provreq.BookingExpired)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == ReasonBookingConsumed &&
		!meta.IsStatusConditionTrue(r.Status.Conditions, provreq.CapacityRevoked)
}

// LetsGo reports whether the request is being deleted and holds nothing that has to be accounted for. A finalizer may keep it for long. An
// unused booking ends at once. A launch is rolled back first, and a running gang keeps its booking until the request is gone.
func LetsGo(r *provreq.ProvisioningRequest) bool {
	if r.DeletionTimestamp.IsZero() || IsConsumed(r) {
		return false
	}
	a := AttemptOf(r)
	return StatusOf(r) == Over || !a.InFlight() || len(a.Launches) == 0
}

// ProvisionedAt returns since when the pods of a request may be created; zero if they may not.
func ProvisionedAt(r *provreq.ProvisioningRequest) time.Time {
	c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

func StatusOf(r *provreq.ProvisioningRequest) Status {
	is := func(t string) bool { return meta.IsStatusConditionTrue(r.Status.Conditions, t) }
	switch {
	case is(provreq.Failed), is(provreq.BookingExpired), is(provreq.CapacityRevoked):
		return Over
	case is(provreq.Provisioned):
		return Provisioned
	default:
		return Pending
	}
}

// AttemptOf reads the recorded attempt. A record that was edited and cannot be read counts as none: its machines become orphans and are
// terminated.
func AttemptOf(r *provreq.ProvisioningRequest) Attempt {
	a, err := DecodeAttempt(string(r.Status.ProvisioningClassDetails[AttemptDetail]))
	if err != nil {
		return Attempt{Phase: Done}
	}
	return a
}

// course is the order of conditions, the last one first.
var course = []string{provreq.Failed, provreq.CapacityRevoked, provreq.BookingExpired, provreq.Provisioned, provreq.Accepted}

// LastCondition returns the last condition of the request in that order that is true, or None.
func LastCondition(r *provreq.ProvisioningRequest) string {
	for _, c := range course {
		if meta.IsStatusConditionTrue(r.Status.Conditions, c) {
			return c
		}
	}
	return "None"
}
