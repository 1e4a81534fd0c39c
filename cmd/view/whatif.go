package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/forecast"
)

// Changes are the differences of a what-if question.
type Changes struct {
	Quotas []QuotaChange
	// Groups are added; one replaces an existing group of its name.
	Groups []*v1alpha1.NodeGroup
	// LostZones have no machines and launch none.
	LostZones []string
}

// QuotaChange is a changed nominal quota.
type QuotaChange struct {
	ClusterQueue string
	Flavor       kueue.ResourceFlavorReference
	Resource     corev1.ResourceName
	Nominal      resource.Quantity
}

// Any reports whether anything changes.
func (c *Changes) Any() bool { return len(c.Quotas)+len(c.Groups)+len(c.LostZones) > 0 }

// Changed returns the Picture of the changed cluster. p stays as it is.
func (p *Picture) Changed(c *Changes) (*Picture, error) {
	out := p.copied()
	for _, q := range c.Quotas {
		i := slices.IndexFunc(out.ClusterQueues, func(cq *kueue.ClusterQueue) bool { return cq.Name == q.ClusterQueue })
		if i < 0 {
			return nil, fmt.Errorf("ClusterQueue %q does not exist; those that do: %s", q.ClusterQueue,
				cmp.Or(strings.Join(p.QueueNames(), ", "), "none"))
		}
		cq, err := forecast.WithQuota(out.ClusterQueues[i], q.Flavor, q.Resource, q.Nominal)
		if err != nil {
			return nil, err
		}
		out.ClusterQueues[i] = cq
		out.Queues.Set(cq)
	}
	for _, g := range c.Groups {
		status, machines := v1alpha1.NodeGroupStatus{}, 0
		if had := p.Groups[g.Name]; had != nil {
			status, machines = had.Status, int(had.Status.Machines)
		}
		changed := g.DeepCopy()
		changed.Status = status
		out.Groups[g.Name] = changed
		out.Snapshot = forecast.WithGroup(out.Snapshot, nodegroups.GroupFrom(changed, status, machines))
	}
	for _, zone := range c.LostZones {
		if zones := p.Zones(); !slices.Contains(zones, zone) {
			return nil, fmt.Errorf("zone %q has no machine and no NodeGroup; the zones that do: %s", zone, cmp.Or(strings.Join(zones, ", "), "none"))
		}
		out.Snapshot = forecast.WithoutZone(out.Snapshot, zone)
	}
	if out.Queues.Capacity() != nil {
		out.Queues.SetCapacity(out.Snapshot)
	}
	out.decide()
	return out, nil
}

// With returns the Picture with these Workloads added or replaced.
func (p *Picture) With(submissions []*kueue.Workload) *Picture {
	out := p.copied()
	for _, w := range submissions {
		out.Queues.Set(w)
		out.Workloads = slices.DeleteFunc(out.Workloads, func(o *kueue.Workload) bool { return o.UID == w.UID })
	}
	out.Workloads = append(out.Workloads, submissions...)
	out.decide()
	return out
}

// copied returns a copy to be changed, on which nothing is decided yet.
func (p *Picture) copied() *Picture {
	out := *p
	out.Queues, out.Foreseen = forecast.Copy(p.Queues), nil
	out.Workloads, out.ClusterQueues, out.Groups = slices.Clone(p.Workloads), slices.Clone(p.ClusterQueues), maps.Clone(p.Groups)
	return &out
}

// Zones returns the zones of existing machines and of NodeGroups.
func (p *Picture) Zones() []string {
	zones := map[string]bool{}
	for i := range p.Snapshot.Groups {
		zones[p.Snapshot.Groups[i].Zone] = true
	}
	for n := range p.Snapshot.Nodes.All() {
		zones[n.Labels[corev1.LabelTopologyZone]] = true
	}
	delete(zones, "")
	return slices.Sorted(maps.Keys(zones))
}
