package checks

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Evaluator evaluates the checks of Workloads at the time now.
type Evaluator struct {
	cache *cache.Cache
	now   time.Time
}

// NewEvaluator returns an Evaluator at the time now.
func NewEvaluator(c *cache.Cache, now time.Time) Evaluator { return Evaluator{c, now} }

// Serve evaluates a check; ours is false if another controller serves it.
func (s Evaluator) Serve(w *cache.Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) (out step, ours bool) {
	switch {
	case s.cache.IsCapacity(state.Name):
		return s.capacityStep(w, checks, state), true
	case s.cache.IsRequest(state.Name):
		return s.RequestStep(w, checks, state), true
	}
	return out, false
}

// RetryCount returns the retry count of a check at the start of an attempt. Muster's checks count all attempts,
// whatever ended them, so that the objects of two attempts never have the same name on any flavor. As in Kueue, other
// checks count how often they were Retry.
func (s Evaluator) RetryCount(w *cache.Workload, name kueue.AdmissionCheckReference) *int32 {
	states := w.Object.Status.AdmissionChecks
	if !s.cache.IsCapacity(name) {
		if have := workload.FindCheck(states, name); have != nil {
			return have.RetryCount
		}
		return nil
	}
	var tried int32
	for i := range states {
		if s.cache.IsCapacity(states[i].Name) {
			tried = max(tried, workload.SaturatingAdd(workload.Retries(&states[i]), 1))
		}
	}
	if tried == 0 {
		return nil
	}
	return &tried
}

// Recount resets the retry counts of checks that were Ready or Rejected when the Workload was evicted, as in Kueue.
// Muster's own checks keep counting.
func (s Evaluator) Recount(before *kueue.Workload, after *kueue.WorkloadStatus) {
	for i := range before.Status.AdmissionChecks {
		c := &before.Status.AdmissionChecks[i]
		if answered := c.State == kueue.CheckStateReady || c.State == kueue.CheckStateRejected; answered && !s.cache.IsCapacity(c.Name) {
			if now := workload.FindCheck(after.AdmissionChecks, c.Name); now != nil {
				now.RetryCount = nil
			}
		}
	}
}
