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

// State is the Cache with what else a cycle needs.
type State struct {
	*cache.Cache
	plan scheduler.Planner
	// capacity is the provisioner's picture of the machines; nil if there is none.
	capacity *planner.Snapshot
	// answering is since when the control plane answers; zero where it was never silent.
	answering time.Time
}

// New returns a State without objects. Plan may be nil: then there is no advice on
// machines.
func New(c config.Config, plan scheduler.Planner) *State {
	return &State{Cache: cache.New(c), plan: plan}
}

// SetCapacity gives the provisioner's picture of the machines. It is advice that
// spares useless attempts; nil means that there is none. Workloads that wait for
// machines are judged again in the next cycle.
func (s *State) SetCapacity(advice *planner.Snapshot) {
	s.capacity = advice
	s.RequeueForCapacity()
}

// SetAnswering says since when the control plane answers; the zero time says that it was
// never silent. Times in which pods have to become ready count from there.
func (s *State) SetAnswering(since time.Time) { s.answering = since }

// Capacity is the provisioner's picture of the machines as it was last given; nil if
// there is none.
func (s *State) Capacity() *planner.Snapshot { return s.capacity }

// Cycle decides what can be decided now. It moves every Workload that holds quota
// and that something has happened to one step on, and then gives out the quota that
// is free until nothing more fits. Workloads for which there is nothing to do and
// nothing new to say get no verdict.
//
// Quota that a verdict gives back is not given out before the verdict is settled:
// those that watch must see it free before another Workload has it.
func (s *State) Cycle(now time.Time) []lifecycle.Verdict { return s.at(now).Run() }

// RejectRequest is the verdict on a Workload whose request the API server refuses to
// take however often it is asked: it makes room for others and tries again after a
// pause. It is nil if the Workload neither has quota nor asks ahead of it any more.
func (s *State) RejectRequest(uid types.UID, why string, now time.Time) *lifecycle.Verdict {
	if w := s.Workloads[uid]; w != nil {
		return lifecycle.NewRules(s.Cache, now, s.answering).RefusedRequest(w, why)
	}
	return nil
}

// at is a cycle at a time.
func (s *State) at(now time.Time) *scheduler.Cycle {
	return scheduler.New(s.Cache, s.plan, s.capacity, now, s.answering)
}

// WithoutWorkloads returns a State of the same objects but for the Workloads, which Join adds: for
// cycles that are to change nothing. The two share the objects and may be used by
// two goroutines from then on. Verdicts that are not settled yet count as not made.
// Watch is told each answer of the planner; nil if it is not needed.
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

// Explain tells how things stand with a Workload; ok is false if there is none of that
// UID. It is to be called after a Cycle, and changes nothing.
func (s *State) Explain(uid types.UID, now time.Time) (out scheduler.Explanation, ok bool) {
	return s.at(now).Explain(uid)
}

// EquivalenceClass returns the ClusterQueue that a Workload waits in and its class there; ok is false if it
// waits in none. It changes nothing.
func (s *State) EquivalenceClass(uid types.UID, now time.Time) (kueue.ClusterQueueReference, cache.EquivalenceClass, bool) {
	return s.at(now).EquivalenceClass(uid)
}

// Report has the statuses that may have changed since the last report.
func (s *State) Report(now time.Time) status.Report { return status.Changed(s.Cache, now) }

// Figures are those of a ClusterQueue.
func (s *State) Figures(name kueue.ClusterQueueReference) status.Figures {
	return status.OfClusterQueue(s.Cache, name)
}

// CohortShare is the weighted share of a cohort.
func (s *State) CohortShare(name kueue.CohortReference) float64 { return status.ShareOf(s.Cache, name) }

// LocalFigures are those of a LocalQueue.
func (s *State) LocalFigures(key types.NamespacedName) status.Figures {
	return status.OfLocalQueue(s.Cache, key)
}
