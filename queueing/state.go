package queueing

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/config"
)

// State is the Cache with what else a cycle needs.
type State struct {
	*Cache
	plan Planner
	// advice is the provisioner's picture of the machines; nil if there is none.
	advice *provisioning.Snapshot
}

// New returns a State without objects. Plan may be nil: then there is no advice on
// machines.
func New(c config.Config, plan Planner) *State { return &State{Cache: NewCache(c), plan: plan} }

// SetCapacity gives the provisioner's picture of the machines. It is advice that
// spares useless attempts; nil means that there is none. Workloads that wait for
// machines are judged again in the next cycle.
func (s *State) SetCapacity(advice *provisioning.Snapshot) {
	s.advice = advice
	s.requeueForCapacity()
}

// Capacity is the provisioner's picture of the machines as it was last given; nil if
// there is none.
func (s *State) Capacity() *provisioning.Snapshot { return s.advice }

// Cycle decides what can be decided now. It moves every Workload that holds quota
// and that something has happened to one step on, and then gives out the quota that
// is free until nothing more fits. Workloads for which there is nothing to do and
// nothing new to say get no verdict.
//
// Quota that a verdict gives back is not given out before the verdict is settled:
// those that watch must see it free before another Workload has it.
func (s *State) Cycle(now time.Time) []Verdict { return s.at(now).run() }

// Refused is the verdict on a Workload whose request the API server refuses to
// take however often it is asked: it makes room for others and tries again after a
// pause. It is nil if the Workload neither has quota nor asks ahead of it any more.
func (s *State) Refused(uid types.UID, why string, now time.Time) *Verdict {
	if w := s.workloads[uid]; w != nil {
		return s.at(now).refusedRequest(w, why)
	}
	return nil
}

// at is a cycle at a time. The advice is consumed as it goes on, so the caller's stays
// as it is.
func (s *State) at(now time.Time) *Cycle {
	return &Cycle{Rules: Rules{Evaluator{Cache: s.Cache, now: now}}, plan: s.plan, capacity: s.advice}
}
