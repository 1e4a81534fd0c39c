package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// self is how a manager is known in its workers.
type self struct {
	// origin is the value of the label on its copies.
	origin string
	// id tells it from others of that origin; empty where Kueue makes the copies, which does not.
	id string
	// groups are the kinds of jobs that make pods which start together.
	groups map[schema.GroupKind]bool
}

// owns reports whether the object in a worker bears the marks of the manager, through whichever MultiKueueCluster it was made. A user there
// may have changed the label by which objects are watched. Only Kueue's copies have nothing but that label.
func (s self) owns(o client.Object) bool {
	if by := o.GetAnnotations()[dispatch.ManagerAnnotation]; s.id != "" && by != "" {
		return by == s.id
	}
	return o.GetLabels()[kueue.MultiKueueOriginLabel] == s.origin
}

// copyOf reads a Workload of a worker, and the ProvisioningRequests that it has made there, as the copy of the manager's.
func (s self) copyOf(theirs, ours *kueue.Workload, requests []*provreq.ProvisioningRequest) *dispatch.Copy {
	of := theirs.Annotations[dispatch.OriginAnnotation]
	c := &dispatch.Copy{
		UID: theirs.UID, Foreign: !s.owns(theirs), Leaving: !theirs.DeletionTimestamp.IsZero(), Stale: of != "" && of != string(ours.UID),
		Gated:    slices.Contains(strings.Split(theirs.Annotations[workload.GatedByAnnotation], ","), dispatch.Gate),
		Reserved: workload.HasQuota(theirs), Admitted: workload.IsAdmitted(theirs) && workload.HasQuota(theirs),
		Finished: workload.IsFinished(theirs), Priority: workload.Priority(theirs),
	}
	c.Fence, _ = dispatch.ParseFence(theirs.Annotations[dispatch.FenceAnnotation]) // one that was edited counts as none
	if s.id != "" {                                                                // Kueue looks after the copies that it makes
		c.Changed = changed(theirs, ours)
	}
	if c.Finished {
		c.Message = apimeta.FindStatusCondition(theirs.Status.Conditions, kueue.WorkloadFinished).Message
	}
	if c.Admitted || c.Finished || c.Gated {
		return c
	}
	c.Refused, c.Message = refusalOf(theirs, requests)
	said := apimeta.FindStatusCondition(theirs.Status.Conditions, kueue.WorkloadQuotaReserved)
	c.Unjudged = c.Refused == "" && (said == nil || said.Status == metav1.ConditionFalse && slices.Contains(unjudged, said.Reason))
	c.Unclear = c.Refused == dispatch.NoQuota && said.Reason == anyReason
	return c
}

// changed says what of a copy is not as it was made: a user of the worker, or a webhook there, has edited it. What pods it is for cannot
// be edited once it has quota.
func changed(theirs, ours *kueue.Workload) string {
	end := apimeta.FindStatusCondition(theirs.Status.Conditions, kueue.WorkloadFinished)
	switch {
	case end != nil && slices.Contains(notByItself, end.Reason):
		return end.Message
	case theirs.Spec.QueueName != ours.Spec.QueueName:
		return fmt.Sprintf("spec.queueName of its copy is %q there, and %q here", theirs.Spec.QueueName, ours.Spec.QueueName)
	case equality.Semantic.DeepEqual(theirs.Spec.PodSets, ours.Spec.PodSets):
		return ""
	}
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ours.Spec)
	is, wrong := runtime.DefaultUnstructuredConverter.ToUnstructured(&theirs.Spec)
	if err != nil || wrong != nil {
		return "spec.podSets of its copy are not those that it has here"
	}
	at, here, there := difference("spec.podSets", was["podSets"], is["podSets"])
	if isWhole(here) || isWhole(there) {
		return at + " of its copy is not what it is here"
	}
	return fmt.Sprintf("%s of its copy is %v there, and %v here", at, there, here)
}

// notByItself are the reasons of a copy that has ended though its job has not: that is another one, or was deleted by hand.
var notByItself = []string{kueue.WorkloadFinishedReasonOutOfSync, kueue.WorkloadFinishedReasonOwnerNotFound}

// difference finds the first field in which two values differ, and what it is in each.
func difference(at string, a, b any) (path string, inA, inB any) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			both := maps.Clone(a)
			maps.Copy(both, b)
			for _, key := range slices.Sorted(maps.Keys(both)) {
				if !equality.Semantic.DeepEqual(a[key], b[key]) {
					return difference(at+"."+key, a[key], b[key])
				}
			}
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				if !equality.Semantic.DeepEqual(a[i], b[i]) {
					return difference(fmt.Sprintf("%s[%d]", at, i), a[i], b[i])
				}
			}
		}
	}
	return at, a, b
}

// isWhole reports whether a value is too long for a message, or unset.
func isWhole(value any) bool {
	switch value.(type) {
	case nil, map[string]any, []any:
		return true
	default:
		return false
	}
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
			(c.Reason == transaction.ReasonCapacityIsNotFound || c.Reason == transaction.ReasonPurchasesStopped) {
			return dispatch.NoCapacity, c.Message
		}
	}
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c == nil || c.Status != metav1.ConditionFalse || slices.Contains(undecided, c.Reason) {
		return "", ""
	}
	return dispatch.NoQuota, c.Message
}

// undecided are the reasons of a Workload without quota that its worker has not refused: one that has not been judged since it was
// awarded, and one for which others are being stopped.
var (
	unjudged  = []string{kueue.WorkloadAdmissionGated, kueue.WorkloadQuotaReservedReasonPendingEvaluation}
	undecided = append(slices.Clone(unjudged), kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads)
)

// anyReason is that of a stock Kueue for all Workloads without quota, unless its gate UnadmittedWorkloadsObservability is on.
const anyReason = "Pending"
