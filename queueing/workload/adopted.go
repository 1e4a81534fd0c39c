package workload

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// AdoptedAnnotation, "true" on a Workload, asks that it be adopted: its job runs,
	// and ran before Muster came, or lost its Workload since. It gives nothing, since more than Muster may write
	// annotations; the Workload waits until ConditionAdopted says that it is so.
	AdoptedAnnotation = "muster.dev/adopted"
	// ConditionAdopted of a Workload is True where Muster has seen that its job ran
	// before the Workload was made. It stands in the status beside the admission itself, so
	// that the rights which forge the one forge the other.
	ConditionAdopted = "muster.dev/Adopted"
)

// IsAdopted reports whether the pods of a Workload run even without quota. Once it
// was evicted, it queues like any other.
func IsAdopted(w *kueue.Workload) bool { return IsTrue(w, ConditionAdopted) && !WasEvicted(w) }

// AsksAdoption reports whether a Workload waits for the word that its job ran before
// Muster came.
func AsksAdoption(w *kueue.Workload) bool {
	return w.Annotations[AdoptedAnnotation] == "true" && !HasQuota(w) && !IsAdopted(w) && !WasEvicted(w)
}

// WasEvicted reports whether a Workload has ever been told to stop.
func WasEvicted(w *kueue.Workload) bool {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted) != nil
}

// Reasons of ConditionAdopted.
const (
	// RanBefore: the job ran before Muster came. What it is counted as its user may have written since.
	RanBefore = "RanBefore"
	// StartedBefore: Muster had started the job, which has lost its Workload since.
	StartedBefore = "StartedBefore"
)

// Adopted is the status of a Workload whose job ran before the Workload was made, for one of the reasons above.
func Adopted(w *kueue.Workload, reason string, now time.Time) *kueue.WorkloadStatus {
	e := Edit(w, now)
	e.Set(ConditionAdopted, metav1.ConditionTrue, reason,
		"The job was running without a Workload; it keeps running, and its usage counts")
	return e.Status
}

// WasStartedBefore reports whether Muster had started the job of an adopted Workload.
func WasStartedBefore(w *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(w.Status.Conditions, ConditionAdopted)
	return c != nil && c.Reason == StartedBefore
}
