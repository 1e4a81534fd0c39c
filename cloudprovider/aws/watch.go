package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// mostNames is how many values a filter or a list of names takes.
const mostNames = 100

// list is all that costs money: what Muster has made, what else the Auto Scaling
// groups that the cluster has claimed own, and holds.
func (p *Provider) list(ctx context.Context) ([]cloudprovider.Machine, error) {
	nodeGroups, err := p.config.Groups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list NodeGroups: %w", err)
	}
	byOwner, ends := map[string][]*v1alpha1.NodeGroup{}, map[string]time.Time{}
	for _, g := range nodeGroups {
		if g.Spec.AWS == nil || g.Spec.AWS.Region != p.config.Region {
			continue
		}
		byOwner[g.Spec.AWS.AutoScalingGroup] = append(byOwner[g.Spec.AWS.AutoScalingGroup], g)
		ends[g.Name] = nodegroups.EndsAt(g)
	}
	// The intents come before the machines: one that has gone meanwhile has left
	// machines with tags.
	var out []cloudprovider.Machine
	pending := map[string][]intent{}
	var claimed []string
	for names := range slices.Chunk(slices.Sorted(maps.Keys(byOwner)), mostNames) {
		groups, err := p.groups(ctx, names...)
		if err != nil {
			return nil, err
		}
		for i := range groups {
			if clusterOf(&groups[i]) == p.config.ClusterUID {
				claimed = append(claimed, deref(groups[i].AutoScalingGroupName))
			}
			for _, in := range intents(&groups[i]) {
				pending[in.autoScalingGroup] = append(pending[in.autoScalingGroup], in)
				if in.cluster == p.config.ClusterUID {
					out = append(out, in.hold(zoneOf(&groups[i])))
				}
			}
		}
	}
	machines, err := p.instances(ctx, p.ours()...)
	if err != nil {
		return nil, err
	}
	for names := range slices.Chunk(claimed, mostNames) {
		members, err := p.instances(ctx, tagFilter(ownerTag, names...))
		if err != nil {
			return nil, err
		}
		for id, in := range members {
			if _, ok := in.tags[launchTag]; ok {
				continue // Muster's, of this cluster or another
			}
			owner := in.tags[ownerTag]
			unclear := slices.ContainsFunc(pending[owner], func(i intent) bool { return i.mayHaveMade(in) })
			if g := offering(byOwner[owner], in); g != nil && !unclear {
				in.Group = g.Name
				machines[id] = in
			}
		}
	}
	for _, in := range machines {
		in.EndsAt = ends[in.Group]
		out = append(out, in.Machine)
	}
	reservations, err := p.reservations(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range reservations {
		if r.waits() {
			out = append(out, r.hold)
		}
	}
	p.sweep(ctx, machines, reservations)
	return out, nil
}

// offering is the NodeGroup whose machines are like that one.
func offering(groups []*v1alpha1.NodeGroup, in *instance) *v1alpha1.NodeGroup {
	for _, g := range groups {
		spec := g.Spec.AWS
		market := in.market
		if spec.CapacityReservation != "" && in.reservation == spec.CapacityReservation {
			market = v1alpha1.Reserved
		}
		if spec.InstanceType == in.kind && (spec.Subnet == in.subnet || g.Spec.Zone == in.zone) && g.Spec.CapacityType == market {
			return g
		}
	}
	return nil
}

// zoneOf is a zone of the group.
func zoneOf(g *asgtypes.AutoScalingGroup) string {
	if len(g.AvailabilityZones) == 0 {
		return ""
	}
	return slices.Min(g.AvailabilityZones)
}
