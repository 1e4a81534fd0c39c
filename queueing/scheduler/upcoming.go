package scheduler

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// requestsToDelete returns the requests of Workloads that no longer have quota. They are about to be deleted, which
// frees their machines. The next Workload may use these; otherwise another one would get the quota meanwhile.
func (s *Cycle) requestsToDelete() []types.UID {
	if s.toDelete != nil {
		return s.toDelete
	}
	s.toDelete = []types.UID{}
	for uid, requests := range s.cache.Requests {
		w := s.cache.Workloads[uid]
		if w == nil || workload.HasQuota(w.Object) && !workload.IsFinished(w.Object) {
			continue
		}
		for _, r := range requests {
			if r.Annotations[workload.ProvisionFirstAnnotation] == "" {
				s.toDelete = append(s.toDelete, r.UID)
			}
		}
	}
	slices.Sort(s.toDelete)
	return s.toDelete
}

// assumeUpcoming adds to the capacity snapshot, once a cycle, the machines of Workloads with quota whose request the
// provisioner has not observed yet.
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
		if q == nil || !q.Status.Active {
			continue
		}
		checks := s.cache.CapacityChecks(cache.ChecksFor(q.Object, workload.AssignedFlavors(admission)))
		if len(checks) != 1 || workload.Unready(w.Object.Status.AdmissionChecks, checks[0]) != "" {
			// It requests no machines yet.
			continue
		}
		plan := s.plan(s.capacity, s.checks.GangOf(w, admission), s.checks.PolicyOf(w, checks[0]))
		s.assumeMachines(w, &plan)
	}
}

// isObserved reports whether the provisioner has observed a request of the Workload, so that its snapshot includes it.
func (s *Cycle) isObserved(w *cache.Workload) bool {
	return slices.ContainsFunc(s.cache.Requests[w.Object.UID], func(r *autoscaling.ProvisioningRequest) bool {
		return len(r.Status.Conditions) > 0
	})
}

// assumeMachines adds the machines of a plan to a copy of the capacity snapshot, so that no other Workload of the cycle
// gets them.
func (s *Cycle) assumeMachines(w *cache.Workload, plan *planner.Verdict) {
	s.capacity = s.capacity.Taking(w.Object.UID, w.Tenant(), plan)
}
