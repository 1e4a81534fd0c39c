package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// executionTime ends a Workload that has been admitted for longer than it may be, all
// its admissions together. Else it is looked at again when that would be.
func (s Rules) executionTime(w *cache.Workload) *Verdict {
	limit := w.Object.Spec.MaximumExecutionTimeSeconds
	if limit == nil || !workload.IsAdmitted(w.Object) {
		return nil
	}
	left := time.Duration(int64(*limit)-int64(workload.Accumulated(&w.Object.Status))) * time.Second
	over := workload.AdmittedSince(w.Object).Add(left)
	if s.now.Before(over) {
		s.cache.Wake(w, over)
		return nil
	}
	return s.requestDeactivation(w, kueue.WorkloadMaximumExecutionTimeExceeded, fmt.Sprintf(
		"exceeding the maximum execution time: it has run for %ds, spec.maximumExecutionTimeSeconds", *limit))
}
