package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Scopes of lists. EC2 shows what Muster has launched, Auto Scaling which groups are claimed, and what their launches are about to make.
const (
	ec2Scope         = ""
	AutoScalingScope = "Auto Scaling"
)

// ListedAt is when all scopes were listed that show machines of the NodeGroup.
func (v *Inventory) ListedAt(g *v1alpha1.NodeGroup) time.Time {
	if g.Spec.AWS != nil && g.Spec.AWS.LaunchMethod == v1alpha1.AWSLaunchInstances {
		return v.config.Watch.Oldest(ec2Scope, AutoScalingScope)
	}
	return v.config.Watch.Oldest(ec2Scope)
}

// Listing is what a list has shown.
type Listing struct {
	poll.Listing
	// PlacementGroups has the names of the placement groups of the listed machines and reservations.
	PlacementGroups map[string]bool
}

// List lists all that costs money: what Muster has made, what else the Auto Scaling
// groups that the cluster has claimed own, and holds.
func (v *Inventory) List(ctx context.Context) (out Listing, err error) {
	nodeGroups, err := v.config.NodeGroups(ctx)
	if err != nil {
		return out, fmt.Errorf("list NodeGroups: %w", err)
	}
	began := v.api.Time(v.config.Clock.Now())
	byOwner := map[string][]*v1alpha1.NodeGroup{}
	for _, g := range nodeGroups {
		if g.Spec.AWS == nil || g.Spec.AWS.Region != v.config.Region {
			continue
		}
		byOwner[g.Spec.AWS.AutoScalingGroup] = append(byOwner[g.Spec.AWS.AutoScalingGroup], g)
	}
	// The intents come before the machines: one that has gone meanwhile has left
	// machines with tags.
	groups, err := v.groupStates(ctx, slices.Sorted(maps.Keys(byOwner)))
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case err != nil:
		out.Scopes, out.Failed = []string{ec2Scope}, map[string]error{AutoScalingScope: err}
	default:
		out.Scopes = []string{ec2Scope, AutoScalingScope}
	}
	machines, err := v.Instances(ctx, v.Ours()...)
	if err != nil {
		return out, err
	}
	pending := groups.pending
	out.Machines = v.holds(ctx, pending, machines)
	for names := range slices.Chunk(groups.claimed, api.MostNames) {
		members, err := v.Instances(ctx, TagFilter(OwnerTag, names...))
		if err != nil {
			return out, err
		}
		for id, in := range members {
			if v.owns(in.Tags) {
				machines[id] = in // it may have got its tags after the list of those with tags
				continue
			}
			if _, ok := in.Tags[LaunchTag]; ok {
				continue // of another cluster
			}
			owner := in.Tags[OwnerTag]
			if g := offering(byOwner[owner], in); g != nil {
				in.Group, in.Scope = g.Name, AutoScalingScope
				in.Unattributed = slices.ContainsFunc(pending[owner], func(i Intent) bool { return i.MayHaveMade(in) }) ||
					launchesItself(byOwner[owner]) && in.Launched.After(began.Add(-Skew))
				machines[id] = in
			}
		}
	}
	out.PlacementGroups = map[string]bool{}
	for _, in := range machines {
		if state := groups.leaving[in.Name]; state != "" && in.Alive() {
			in.State, in.Billed, in.Kept = cloudprovider.Terminated, true, state == asg.Retained
			in.Reason = "its Auto Scaling group is terminating it: " + state
		}
		if in.Alive() || in.Kept {
			out.PlacementGroups[in.PlacementGroup] = true
		}
		out.Machines = append(out.Machines, in.Machine)
	}
	reservations, err := v.Reservations(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range reservations {
		if r.Waits() {
			out.Machines = append(out.Machines, r.Hold)
		}
		if r.Lasts() {
			out.PlacementGroups[r.PlacementGroup] = true
		}
	}
	poll.EndWith(out.Machines, nodeGroups...)
	return out, nil
}

// groupStates is the state of the NodeGroups' Auto Scaling groups.
type groupStates struct {
	// claimed are the names of the groups that the cluster has claimed.
	claimed []string
	// pending are the intents on each, by name.
	pending map[string][]Intent
	// leaving has the lifecycle state of each machine that is being terminated, by ID. A lifecycle hook may hold a machine for hours
	// while it is billed. A lifecycle policy may retain it until it is terminated again.
	leaving map[string]string
}

// groupStates describes the groups of those names, all or none.
func (v *Inventory) groupStates(ctx context.Context, names []string) (groupStates, error) {
	out := groupStates{pending: map[string][]Intent{}, leaving: map[string]string{}}
	for batch := range slices.Chunk(names, api.MostNames) {
		groups, err := asg.Find(ctx, v.api, batch...)
		if err != nil {
			return groupStates{}, err
		}
		for i := range groups {
			g := &groups[i]
			if ClaimedBy(g) == v.UID {
				out.claimed = append(out.claimed, api.Deref(g.AutoScalingGroupName))
			}
			for _, in := range Intents(g) {
				out.pending[in.AutoScalingGroup] = append(out.pending[in.AutoScalingGroup], in)
			}
			for _, m := range g.Instances {
				if state := string(m.LifecycleState); strings.HasPrefix(state, asg.Terminating) {
					out.leaving[api.Deref(m.InstanceId)] = state
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
func (v *Inventory) holds(ctx context.Context, pending map[string][]Intent, machines map[string]*Instance) (out []cloudprovider.Machine) {
	for group, list := range pending {
		pending[group] = slices.DeleteFunc(list, func(i Intent) bool {
			if i.Cluster != v.UID {
				return false
			}
			named := 0
			for _, in := range machines {
				if in.Launch == i.Launch && in.Group == i.Group {
					named++
				}
			}
			if named < i.Count {
				out = append(out, i.hold())
				return false
			}
			if v.config.MayAct() == nil {
				if err := v.EndIntent(ctx, &i); err != nil {
					log.FromContext(ctx).Error(err, "The tag of a launch that is over is still there; it will be retried")
				}
			}
			return true
		})
	}
	return out
}

// offering is the NodeGroup whose machines are like that one.
func offering(groups []*v1alpha1.NodeGroup, in *Instance) *v1alpha1.NodeGroup {
	for _, g := range groups {
		spec := g.Spec.AWS
		capacityType := in.CapacityType
		if spec.CapacityReservation != "" && in.Reservation == spec.CapacityReservation {
			capacityType = v1alpha1.Reserved
		}
		if spec.InstanceType == in.Type && (spec.Subnet == in.Subnet || g.Spec.Zone == in.Zone) && g.Spec.CapacityType == capacityType {
			return g
		}
	}
	return nil
}
