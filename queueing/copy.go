package queueing

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// Bare returns a State of the same objects but for the Workloads, which Join adds: for
// cycles that are to change nothing. The two share the objects and may be used by
// two goroutines from then on. Verdicts that are not settled yet count as not made.
// Watch is told each answer of the planner; nil if nobody wants to know.
func (s *State) Bare(watch func(provisioning.Gang, provisioning.Verdict)) *State {
	plan := s.plan
	if plan != nil && watch != nil {
		plan = func(on *provisioning.Snapshot, gang provisioning.Gang, policy provisioning.Policy) provisioning.Verdict {
			v := s.plan(on, gang, policy)
			watch(gang, v)
			return v
		}
	}
	out := New(s.config, plan)
	out.advice = s.advice
	out.withoutProvisioner, out.sampleAt = s.withoutProvisioner, s.sampleAt
	out.clusterQueues, out.cohorts, out.flavors = maps.Clone(s.clusterQueues), maps.Clone(s.cohorts), maps.Clone(s.flavors)
	out.checks, out.policies, out.requestConfig = maps.Clone(s.checks), maps.Clone(s.policies), maps.Clone(s.requestConfig)
	out.runtimes = maps.Clone(s.runtimes)
	for name, ns := range s.namespaces {
		out.namespaces[name] = &namespace{labels: ns.labels, quotas: maps.Clone(ns.quotas), ranges: maps.Clone(ns.ranges), rules: ns.rules}
	}
	for key, lq := range s.localQueues {
		c := lq.consumption
		c.record.Consumed, c.entries, c.penalty = maps.Clone(c.record.Consumed), maps.Clone(c.entries), maps.Clone(c.penalty)
		out.localQueues[key] = &localQueue{object: lq.object, counts: newCounts(), consumption: c}
	}
	for owner, requests := range s.requests {
		out.requests[owner] = slices.Clone(requests)
	}
	for _, f := range out.flavors {
		out.selects(flavorKeys(f), +1)
	}
	return out
}

// Join adds a Workload as another State knows it. What was worked out of its spec is
// shared, so that this costs a fraction of Set.
func (s *Cache) Join(w *Workload) *Workload {
	joined := &Workload{Object: w.Object, Pod: w.Pod, Keys: w.Keys, shape: w.shape, unobtained: w.unobtained}
	s.read(joined, w.Object)
	s.workloads[w.Object.UID] = joined
	s.selects(joined.Keys, +1)
	s.enter(joined)
	s.due[w.Object.UID] = joined
	return joined
}

// Workloads are all that the State knows, by namespace and name.
func (s *Cache) Workloads() []*Workload { return sorted(s.workloads) }

// RequestsOf are the ProvisioningRequests that a Workload has made, in the order of
// their names.
func (s *Cache) RequestsOf(w *Workload) []*autoscaling.ProvisioningRequest {
	return slices.SortedFunc(slices.Values(s.requests[w.Object.UID]), func(a, b *autoscaling.ProvisioningRequest) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
}

// Books says that a check is one for which queueing makes ProvisioningRequests.
func (s *Cache) Books(check kueue.AdmissionCheckReference) bool { return s.books(check) }
