package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// executionTime deactivates a Workload that exceeds its maximum execution time, summed over all admissions. Otherwise
// the Workload is evaluated again when it would.
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
