package queueing

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/status"
)

// State is the Cache with everything else that a cycle needs.
type State struct {
	*cache.Cache
	plan scheduler.Planner
	// capacity is the snapshot of the provisioner; nil if there is none.
	capacity *planner.Snapshot
	// answering is since when the control plane answers; zero if it was never silent.
	answering time.Time
	// budget bounds what one cycle evaluates; zero is unlimited.
	budget int
}

// New returns a State without objects. Plan may be nil; then cycles do not consider machines.
func New(c config.Config, plan scheduler.Planner) *State {
	return &State{Cache: cache.New(c), plan: plan, budget: scheduler.DefaultBudget}
}

// SetCapacity sets the capacity snapshot of the provisioner, which prevents useless attempts; nil means that there is
// none. Workloads that wait for machines are evaluated again in the next cycle.
func (s *State) SetCapacity(advice *planner.Snapshot) {
	s.capacity = advice
	s.RequeueForCapacity()
}

// SetAnswering sets since when the control plane answers; zero means that it was never silent. Timeouts of pods count
// from then.
func (s *State) SetAnswering(since time.Time) { s.answering = since }

// Capacity returns the last capacity snapshot; nil if there is none.
func (s *State) Capacity() *planner.Snapshot { return s.capacity }

// Cycle decides all that can be decided now. It moves every Workload with quota and a new event one step forward, and
// then assigns free quota until nothing more fits. Workloads without a change get no verdict.
//
// Quota that a verdict releases is not assigned before the verdict is settled: watchers must see it free before another
// Workload gets it.
func (s *State) Cycle(now time.Time) []lifecycle.Verdict { return s.at(now).Run() }

// RejectRequest returns the verdict on a Workload whose ProvisioningRequest the API server always rejects: the Workload
// releases its quota and tries again after a backoff. It is nil if the Workload no longer needs the request.
func (s *State) RejectRequest(uid types.UID, why string, now time.Time) *lifecycle.Verdict {
	if w := s.Workloads[uid]; w != nil {
		return lifecycle.NewRules(s.Cache, now, s.answering).RefusedRequest(w, why)
	}
	return nil
}

// at returns a cycle at the time now.
func (s *State) at(now time.Time) *scheduler.Cycle {
	return scheduler.New(s.Cache, s.plan, s.capacity, now, s.answering, s.budget)
}

// WithoutWorkloads returns a State of the same objects without the Workloads, which Join adds: for cycles that must not
// change anything. The two share the objects and may then be used by two goroutines. Verdicts that are not settled are
// ignored. Watch is called with each verdict of the planner; it may be nil.
func (s *State) WithoutWorkloads(watch func(state.Gang, planner.Verdict)) *State {
	plan := s.plan
	if plan != nil && watch != nil {
		plan = func(on *planner.Snapshot, gang state.Gang, policy state.Policy) planner.Verdict {
			v := s.plan(on, gang, policy)
			watch(gang, v)
			return v
		}
	}
	return &State{Cache: s.Cache.WithoutWorkloads(), plan: plan, capacity: s.capacity}
}

// Explain explains the state of a Workload; ok is false if no Workload has the UID. Call it after Cycle; it changes
// nothing.
func (s *State) Explain(uid types.UID, now time.Time) (out scheduler.Explanation, ok bool) {
	return s.at(now).Explain(uid)
}

// EquivalenceClass returns the ClusterQueue that a Workload waits in and its class there; ok is false if it
// waits in none. It changes nothing.
func (s *State) EquivalenceClass(uid types.UID, now time.Time) (kueue.ClusterQueueReference, cache.EquivalenceClass, bool) {
	return s.at(now).EquivalenceClass(uid)
}

// Report returns the statuses that may have changed since the last report.
func (s *State) Report(now time.Time) status.Report { return status.Changed(s.Cache, now) }

// Figures returns the metrics of a ClusterQueue.
func (s *State) Figures(name kueue.ClusterQueueReference) status.Figures {
	return status.OfClusterQueue(s.Cache, name)
}

// CohortShare returns the weighted share of a cohort.
func (s *State) CohortShare(name kueue.CohortReference) float64 { return status.ShareOf(s.Cache, name) }

// LocalFigures returns the metrics of a LocalQueue.
func (s *State) LocalFigures(key types.NamespacedName) status.Figures {
	return status.OfLocalQueue(s.Cache, key)
}
