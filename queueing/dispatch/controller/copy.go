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

// self is the identity of a manager in its workers.
type self struct {
	// origin is the value of the origin label on the manager's copies.
	origin string
	// id distinguishes managers with the same origin. It is empty where Kueue makes the copies, because Kueue has no such id.
	id string
	// groups are the kinds of jobs whose pods start together.
	groups map[schema.GroupKind]bool
}

// owns reports whether the object in a worker is marked as the manager's, under any MultiKueueCluster. A user there may have changed the
// label that caches select by, so the annotation is enough. Kueue's copies have only the label.
func (s self) owns(o client.Object) bool {
	if by := o.GetAnnotations()[dispatch.ManagerAnnotation]; s.id != "" && by != "" {
		return by == s.id
	}
	return o.GetLabels()[kueue.MultiKueueOriginLabel] == s.origin
}

// copyOf describes a Workload of a worker, with its ProvisioningRequests there, as the copy of the manager's Workload.
func (s self) copyOf(theirs, ours *kueue.Workload, requests []*provreq.ProvisioningRequest) *dispatch.Copy {
	of := theirs.Annotations[dispatch.OriginAnnotation]
	c := &dispatch.Copy{
		UID: theirs.UID, Foreign: !s.owns(theirs), Leaving: !theirs.DeletionTimestamp.IsZero(), Stale: of != "" && of != string(ours.UID),
		Gated:    slices.Contains(strings.Split(theirs.Annotations[workload.GatedByAnnotation], ","), dispatch.Gate),
		Reserved: workload.HasQuota(theirs), Admitted: workload.IsAdmitted(theirs) && workload.HasQuota(theirs),
		Finished: workload.IsFinished(theirs), Priority: workload.Priority(theirs),
	}
	c.Fence, _ = dispatch.ParseFence(theirs.Annotations[dispatch.FenceAnnotation]) // an edited fence counts as none
	if s.id != "" {                                                                // Kueue repairs its own copies
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

// changed returns the field of a copy that a user or a webhook of the worker has edited. podSets are immutable once the copy has quota.
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

// notByItself are the reasons of a copy that has finished although its job has not. Such a copy belongs to another job, or its job was
// deleted by hand.
var notByItself = []string{kueue.WorkloadFinishedReasonOutOfSync, kueue.WorkloadFinishedReasonOwnerNotFound}

// difference returns the path of the first field in which two values differ, and both values of that field.
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

// isWhole reports whether a value is an object, a list or unset, which a message leaves out.
func isWhole(value any) bool {
	switch value.(type) {
	case nil, map[string]any, []any:
		return true
	default:
		return false
	}
}

// refusalOf returns why the worker does not admit the Workload, as far as its status shows it.
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

// undecided are the reasons of a Workload that is pending without a refusal: it has not been evaluated since its grant, or other
// Workloads are being preempted for it.
var (
	unjudged  = []string{kueue.WorkloadAdmissionGated, kueue.WorkloadQuotaReservedReasonPendingEvaluation}
	undecided = append(slices.Clone(unjudged), kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads)
)

// anyReason is a stock Kueue's reason for every pending Workload unless its gate UnadmittedWorkloadsObservability is on.
const anyReason = "Pending"
