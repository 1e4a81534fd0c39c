package scheduler

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// releasing are the requests of Workloads that have no quota any more. They are about to
// be deleted, and their machines are free once they are: the next Workload may count
// on these, and has to, or another one would have the quota meanwhile.
func (s *Cycle) releasing() []types.UID {
	if s.released != nil {
		return s.released
	}
	s.released = []types.UID{}
	for uid, requests := range s.cache.Requests {
		w := s.cache.Workloads[uid]
		if w == nil || workload.HasQuota(w.Object) && !workload.IsFinished(w.Object) {
			continue
		}
		for _, r := range requests {
			if r.Annotations[workload.AheadAnnotation] == "" {
				s.released = append(s.released, r.UID)
			}
		}
	}
	slices.Sort(s.released)
	return s.released
}

// assumeUpcoming marks in the advice, once a cycle, what Workloads will use that have quota and whose
// request the provisioner has not seen yet.
func (s *Cycle) assumeUpcoming() {
	if s.upcomingAssumed || s.capacity == nil || s.plan == nil {
		return
	}
	s.upcomingAssumed = true
	for _, w := range cache.ByName(s.cache.Unadmitted) {
		if workload.IsEvicted(w.Object) || s.isObserved(w) {
			continue
		}
		admission := w.Object.Status.Admission
		q := s.cache.Queues[admission.ClusterQueue]
		if q == nil || !q.Standing.Active {
			continue
		}
		checks := s.cache.CapacityChecks(cache.ChecksFor(q.Object, workload.AssignedFlavors(admission)))
		if len(checks) != 1 || workload.Unready(w.Object.Status.AdmissionChecks, checks[0]) != "" {
			// It asks for no machines yet.
			continue
		}
		plan := s.plan(s.capacity, s.checks.GangOf(w, admission), s.checks.PolicyOf(w, checks[0]))
		s.assumeMachines(w, &plan)
	}
}

// isObserved says that the provisioner has begun to work on a request of the Workload,
// so that its picture has what the request will use.
func (s *Cycle) isObserved(w *cache.Workload) bool {
	return slices.ContainsFunc(s.cache.Requests[w.Object.UID], func(r *autoscaling.ProvisioningRequest) bool {
		return len(r.Status.Conditions) > 0
	})
}

// assumeMachines marks what a plan uses in a copy of the advice, so that the next
// Workload of the cycle is not promised the same machines.
func (s *Cycle) assumeMachines(w *cache.Workload, plan *planner.Verdict) {
	s.capacity = s.capacity.Taking(w.Object.UID, w.Tenant(), plan)
}
