package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// mostNames is how many values a filter or a list of names takes.
const mostNames = 100

// Scopes of lists. EC2 shows what Muster has launched, Auto Scaling which groups are claimed, and what their launches are about to make.
const (
	ec2Scope         = ""
	autoScalingScope = "Auto Scaling"
)

// ListedAt implements cloudprovider.Lister.
func (p *Provider) ListedAt(g *v1alpha1.NodeGroup) time.Time {
	if g.Spec.AWS != nil && g.Spec.AWS.LaunchMethod == v1alpha1.AWSLaunchInstances {
		return p.Oldest(ec2Scope, autoScalingScope)
	}
	return p.Oldest(ec2Scope)
}

// list is all that costs money: what Muster has made, what else the Auto Scaling
// groups that the cluster has claimed own, and holds.
func (p *Provider) list(ctx context.Context) (out poll.Listing, err error) {
	nodeGroups, err := p.config.Groups(ctx)
	if err != nil {
		return out, fmt.Errorf("list NodeGroups: %w", err)
	}
	began := p.now()
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
	groups, err := p.groupStates(ctx, slices.Sorted(maps.Keys(byOwner)))
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case err != nil:
		out.Scopes, out.Failed = []string{ec2Scope}, map[string]error{autoScalingScope: err}
	default:
		out.Scopes = []string{ec2Scope, autoScalingScope}
	}
	machines, err := p.instances(ctx, p.ours()...)
	if err != nil {
		return out, err
	}
	pending := groups.pending
	out.Machines = p.holds(ctx, pending, machines)
	for names := range slices.Chunk(groups.claimed, mostNames) {
		members, err := p.instances(ctx, tagFilter(ownerTag, names...))
		if err != nil {
			return out, err
		}
		for id, in := range members {
			if _, ok := in.tags[launchTag]; ok {
				continue // Muster's, of this cluster or another
			}
			owner := in.tags[ownerTag]
			if g := offering(byOwner[owner], in); g != nil {
				in.Group, in.Scope = g.Name, autoScalingScope
				in.Unattributed = slices.ContainsFunc(pending[owner], func(i intent) bool { return i.mayHaveMade(in) }) ||
					launchesItself(byOwner[owner]) && in.launched.After(began.Add(-skew))
				machines[id] = in
			}
		}
	}
	for _, in := range machines {
		in.EndsAt = ends[in.Group]
		if state := groups.leaving[in.Name]; state != "" && in.alive() {
			in.State, in.Kept, in.Reason = cloudprovider.Terminated, state == retained, "its Auto Scaling group is terminating it: "+state
		}
		out.Machines = append(out.Machines, in.Machine)
	}
	reservations, err := p.reservations(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range reservations {
		if r.waits() {
			out.Machines = append(out.Machines, r.hold)
		}
	}
	p.sweep(ctx, machines, reservations)
	return out, nil
}

// groupStates is the state of the NodeGroups' Auto Scaling groups.
type groupStates struct {
	// claimed are the names of the groups that the cluster has claimed.
	claimed []string
	// pending are the intents on each, by name.
	pending map[string][]intent
	// leaving has the lifecycle state of each machine that is being terminated, by ID. A lifecycle hook may hold a machine for hours
	// while it is billed. A lifecycle policy may retain it until it is terminated again.
	leaving map[string]string
}

// groupStates describes the groups of those names, all or none.
func (p *Provider) groupStates(ctx context.Context, names []string) (groupStates, error) {
	out := groupStates{pending: map[string][]intent{}, leaving: map[string]string{}}
	for batch := range slices.Chunk(names, mostNames) {
		groups, err := p.groups(ctx, batch...)
		if err != nil {
			return groupStates{}, err
		}
		for i := range groups {
			g := &groups[i]
			if clusterOf(g) == p.config.ClusterUID {
				out.claimed = append(out.claimed, deref(g.AutoScalingGroupName))
			}
			for _, in := range intents(g) {
				out.pending[in.autoScalingGroup] = append(out.pending[in.autoScalingGroup], in)
			}
			for _, m := range g.Instances {
				if state := string(m.LifecycleState); strings.HasPrefix(state, terminating) {
					out.leaving[deref(m.InstanceId)] = state
				}
			}
		}
	}
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
