package cache

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/queueing/workload"
)

// WithoutWorkloads returns a Cache of the same objects without the Workloads; Join adds them. The two share the objects
// and may then be used by two goroutines.
func (s *Cache) WithoutWorkloads() *Cache {
	out := New(s.Config)
	out.withoutProvisioner, out.sampleAt = s.withoutProvisioner, s.sampleAt
	out.ClusterQueues, out.Cohorts, out.Flavors = maps.Clone(s.ClusterQueues), maps.Clone(s.Cohorts), maps.Clone(s.Flavors)
	out.Topologies = maps.Clone(s.Topologies)
	out.Checks, out.Policies, out.RequestConfig = maps.Clone(s.Checks), maps.Clone(s.Policies), maps.Clone(s.RequestConfig)
	out.runtimes, out.devices = maps.Clone(s.runtimes), s.devices.clone()
	if s.UsesTopologies() {
		out.Nodes.TopologyCache, out.Nodes.Known, out.Nodes.Vanished = s.Nodes.Clone(), s.Nodes.Known, s.Nodes.Vanished
	}
	for name, ns := range s.Namespaces {
		out.Namespaces[name] = &Namespace{Labels: ns.Labels, Quotas: maps.Clone(ns.Quotas), ranges: maps.Clone(ns.ranges), Rules: ns.Rules}
	}
	for key, lq := range s.LocalQueues {
		c := lq.consumption
		c.Record.Consumed, c.entries, c.penalty = maps.Clone(c.Record.Consumed), maps.Clone(c.entries), maps.Clone(c.penalty)
		out.LocalQueues[key] = &LocalQueue{Object: lq.Object, counts: newCounts(), consumption: c}
	}
	for owner, requests := range s.Requests {
		out.Requests[owner] = slices.Clone(requests)
	}
	for _, f := range out.Flavors {
		out.selects(flavorKeys(f), +1)
	}
	return out
}

// Join adds a Workload of another Cache. It shares what was derived from the spec, so it costs a fraction of Set.
func (s *Cache) Join(w *Workload) *Workload {
	joined := &Workload{Object: w.Object, Pod: w.Pod, Requests: w.Requests, OnNode: w.OnNode, Keys: w.Keys, Shape: w.Shape,
		Unobtained: w.Unobtained, refusedClaims: w.refusedClaims, sourced: w.sourced}
	s.read(joined, w.Object)
	s.Workloads[w.Object.UID] = joined
	s.Slices.join(joined)
	s.selects(joined.Keys, +1)
	s.add(joined)
	s.UpdateReplacement(joined, workload.HasQuota(w.Object))
	s.Due[w.Object.UID] = joined
	return joined
}

// AllWorkloads returns all Workloads, sorted by namespace and name.
func (s *Cache) AllWorkloads() []*Workload { return ByName(s.Workloads) }

// RequestsOf returns the ProvisioningRequests of a Workload, sorted by name.
func (s *Cache) RequestsOf(w *Workload) []*autoscaling.ProvisioningRequest {
	return slices.SortedFunc(slices.Values(s.Requests[w.Object.UID]), func(a, b *autoscaling.ProvisioningRequest) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
}
