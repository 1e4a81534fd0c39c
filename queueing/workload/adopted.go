package workload

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// AdoptedAnnotation, "true" on a Workload, requests its adoption: its job already runs, either since before Muster
	// was installed, or because its Workload was deleted. The annotation alone grants nothing, because other clients
	// may write it; the Workload waits for ConditionAdopted.
	AdoptedAnnotation = "muster.dev/adopted"
	// ConditionAdopted of a Workload is True if Muster has observed that its job was running before the Workload was
	// created. It is in the status, like the admission itself, so that forging it requires the same permissions.
	ConditionAdopted = "muster.dev/Adopted"
)

// IsAdopted reports whether the pods of a Workload may run without quota. Once evicted, the Workload queues like any
// other.
func IsAdopted(w *kueue.Workload) bool { return IsTrue(w, ConditionAdopted) && !WasEvicted(w) }

// AsksAdoption reports whether a Workload waits for ConditionAdopted.
func AsksAdoption(w *kueue.Workload) bool {
	return w.Annotations[AdoptedAnnotation] == "true" && !HasQuota(w) && !IsAdopted(w) && !WasEvicted(w)
}

// WasEvicted reports whether a Workload has ever been evicted.
func WasEvicted(w *kueue.Workload) bool {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted) != nil
}

// Reasons of ConditionAdopted.
const (
	// RanBefore: the job ran before Muster was installed. Its user may have changed its requests since.
	RanBefore = "RanBefore"
	// StartedBefore: Muster started the job, whose Workload was deleted since.
	StartedBefore = "StartedBefore"
)

// Adopted returns the status of a Workload whose job was running before the Workload was created, for one of the
// reasons above.
func Adopted(w *kueue.Workload, reason string, now time.Time) *kueue.WorkloadStatus {
	e := Edit(w, now)
	e.Set(ConditionAdopted, metav1.ConditionTrue, reason,
		"The job was running without a Workload; it keeps running, and its usage counts")
	return e.Status
}

// WasStartedBefore reports whether Muster started the job of an adopted Workload.
func WasStartedBefore(w *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(w.Status.Conditions, ConditionAdopted)
	return c != nil && c.Reason == StartedBefore
}
