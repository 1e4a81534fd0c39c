package queueing

import (
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// overtime ends a Workload that has been admitted for longer than it may be, all
// its admissions together. Else it is looked at again when that would be.
func (s Rules) overtime(w *Workload) *Verdict {
	limit := w.Object.Spec.MaximumExecutionTimeSeconds
	if limit == nil || !IsAdmitted(w.Object) {
		return nil
	}
	left := time.Duration(int64(*limit)-int64(accumulated(&w.Object.Status))) * time.Second
	over := admittedSince(w.Object).Add(left)
	if s.now.Before(over) {
		s.wake(w, over)
		return nil
	}
	return s.condemn(w, kueue.WorkloadMaximumExecutionTimeExceeded, fmt.Sprintf(
		"exceeding the maximum execution time: it has run for %ds, spec.maximumExecutionTimeSeconds", *limit))
}

// admittedSince is when an admitted Workload was admitted.
func admittedSince(w *kueue.Workload) time.Time {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
}
