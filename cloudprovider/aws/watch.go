package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

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
	began := p.config.Clock.Now()
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
			}
		}
	}
	machines, err := p.instances(ctx, p.ours()...)
	if err != nil {
		return nil, err
	}
	out := p.holds(ctx, pending, machines)
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
			if g := offering(byOwner[owner], in); g != nil {
				in.Group = g.Name
				in.Unattributed = slices.ContainsFunc(pending[owner], func(i intent) bool { return i.mayHaveMade(in) }) ||
					launchesItself(byOwner[owner]) && in.launched.After(began.Add(-skew))
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

// launchesItself reports whether LaunchInstances is called for the Auto Scaling group of the NodeGroups. A machine that is younger than
// the list of intents may be of one that was written since.
func launchesItself(groups []*v1alpha1.NodeGroup) bool {
	return slices.ContainsFunc(groups, func(g *v1alpha1.NodeGroup) bool { return g.Spec.AWS.LaunchMethod == v1alpha1.AWSLaunchInstances })
}

// holds are those of the intents that stand for machines which lists do not show under their launch yet. The others are ended, and
// leave pending.
func (p *Provider) holds(ctx context.Context, pending map[string][]intent, machines map[string]*instance) (out []cloudprovider.Machine) {
	for group, list := range pending {
		pending[group] = slices.DeleteFunc(list, func(i intent) bool {
			if i.cluster != p.config.ClusterUID {
				return false
			}
			named := 0
			for _, in := range machines {
				if in.Launch == i.launch && in.Group == i.group {
					named++
				}
			}
			if named < i.count {
				out = append(out, i.hold())
				return false
			}
			if p.config.MayAct == nil || p.config.MayAct() == nil {
				if err := p.drop(ctx, &i); err != nil {
					log.FromContext(ctx).Error(err, "The tag of a launch that is over is still there; it will be retried")
				}
			}
			return true
		})
	}
	return out
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
