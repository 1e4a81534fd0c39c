package lifecycle

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
)

// StartByPassed returns the verdict on a Workload whose latest start has passed on every flavor. Otherwise the Workload
// is evaluated again at that time.
func (s Rules) StartByPassed(w *cache.Workload, q *cache.ClusterQueue) (*Verdict, bool) {
	var last checks.Terms
	for _, flavor := range cache.FlavorsOf(q.Object) {
		checks := s.cache.CapacityChecks(cache.ChecksFor(q.Object, []kueue.ResourceFlavorReference{flavor}))
		if len(checks) == 0 {
			return nil, false
		}
		t := s.checks.TermsOf(w, checks[0])
		if t.StartBy.IsZero() {
			return nil, false
		}
		if t.StartBy.After(last.StartBy) {
			last = t
		}
	}
	switch {
	case last.StartBy.IsZero():
		return nil, false
	case s.now.Before(last.StartBy):
		s.cache.Wake(w, last.StartBy)
		return nil, false
	case last.Policy.OnLateStart == v1alpha1.LateDeactivate:
		return &Verdict{Workload: w, Action: Deactivate, Reason: checks.ReasonStartByPassed, Message: checks.TooLate(last.StartBy)}, true
	}
	return s.Wait(w, checks.ReasonStartByPassed, checks.TooLate(last.StartBy)), true
}
