package workload

import (
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// MayRun reports whether pods of the Workload may exist: it is admitted and belongs to a job, which may have been
// deleted without its pods.
func MayRun(w *kueue.Workload) bool {
	return IsAdmitted(w) && (metav1.GetControllerOf(w) != nil || IsGroup(w) || w.Labels[JobUIDLabel] != "")
}

// MayHold reports whether the Workload may still need its quota: for its pods, or for a copy in another cluster, which
// may have machines.
func MayHold(w *kueue.Workload) bool {
	return MayRun(w) || slices.Contains(w.Finalizers, CopiesFinalizer)
}

// IsOrphan reports whether the job of a Workload was deleted without the Workload. The owners of a group of pods do not
// control its Workload; if one is a StatefulSet or LeaderWorkerSet, Kueue sets it as the job.
func IsOrphan(w *kueue.Workload) bool {
	isOwned := metav1.GetControllerOf(w) != nil || IsGroup(w) && len(w.OwnerReferences) > 0
	return w.Labels[JobUIDLabel] != "" && !isOwned
}

// IsGroup reports whether the Workload belongs to a group of pods. All of them own it, and none controls it.
func IsGroup(w *kueue.Workload) bool { return w.Annotations[GroupAnnotation] == "true" }

// IsOfOnePod reports whether the Workload belongs to a single pod without a group. It ends with the pod, which cannot
// move.
func IsOfOnePod(w *kueue.Workload) bool {
	return len(w.OwnerReferences) == 1 && w.OwnerReferences[0].APIVersion == "v1" && w.OwnerReferences[0].Kind == "Pod" && !IsGroup(w)
}

func ReservedSince(w *kueue.Workload) time.Time {
	for _, c := range w.Status.Conditions {
		if c.Type == kueue.WorkloadQuotaReserved {
			return c.LastTransitionTime.Time
		}
	}
	return w.CreationTimestamp.Time
}

// WaitsSince returns when the job of a Workload began to wait, if nothing has moved it to the back of its queue since.
// For a copy in a worker cluster, this is when it began to wait in the manager.
func WaitsSince(w *kueue.Workload) time.Time {
	made := w.CreationTimestamp.Time
	if IsCopy(w) {
		if since, err := time.Parse(time.RFC3339, w.Annotations[QueuedSinceAnnotation]); err == nil && since.Before(made) {
			return since
		}
	}
	return made
}

// IsCopy reports whether the manager of another cluster created the Workload.
func IsCopy(w *kueue.Workload) bool { return w.Labels[kueue.MultiKueueOriginLabel] != "" }

// AdmittedSince returns when an admitted Workload was admitted.
func AdmittedSince(w *kueue.Workload) time.Time {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
}

// DeactivatedByUs reports whether Muster, and not a user, deactivated the Workload.
func DeactivatedByUs(w *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	return c != nil && c.Status == metav1.ConditionTrue && strings.HasPrefix(c.Reason, kueue.WorkloadDeactivated+DueTo)
}

// HasQuota reports whether the Workload has reserved quota.
func HasQuota(w *kueue.Workload) bool {
	return w.Status.Admission != nil && IsTrue(w, kueue.WorkloadQuotaReserved) && !IsFinished(w)
}

// IsAdmitted reports whether the Workload may run.
func IsAdmitted(w *kueue.Workload) bool { return IsTrue(w, kueue.WorkloadAdmitted) }

// IsFinished reports whether the Workload is finished and uses no quota.
func IsFinished(w *kueue.Workload) bool { return IsTrue(w, kueue.WorkloadFinished) }

// IsEvicted reports whether the Workload is evicted.
func IsEvicted(w *kueue.Workload) bool { return IsTrue(w, kueue.WorkloadEvicted) }

// IsActive reports whether the Workload has not been deactivated.
func IsActive(w *kueue.Workload) bool { return w.Spec.Active == nil || *w.Spec.Active }

func IsTrue(w *kueue.Workload, condition string) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

func Priority(w *kueue.Workload) int32 {
	if w.Spec.Priority == nil {
		return 0
	}
	return *w.Spec.Priority
}
