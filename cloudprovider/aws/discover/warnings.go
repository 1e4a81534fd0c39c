package discover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Reasons of warnings, beside those that other clouds have, too.
const (
	CapacityRebalancing = "CapacityRebalancing"
	NodegroupUnread     = "NodegroupUnread"
	NodeRepair          = "NodeRepair"
	InstanceRefresh     = "InstanceRefresh"
	InstanceLifetime    = "InstanceLifetime"
	ReservationOver     = "ReservationOver"
	VolumesStay         = "VolumesStay"
	WarmPool            = "WarmPool"
	ReplacesMachines    = "ReplacesMachines"
	NoPlacementGroup    = "NoPlacementGroup"
)

// autoscalerTag says that cluster-autoscaler finds the group by itself.
const autoscalerTag = "k8s.io/cluster-autoscaler/enabled"

// disturbances are what else changes Auto Scaling groups, by their names.
type disturbances struct {
	policies, schedules map[string][]string
	refreshing          map[string]bool
}

func (d *discovery) describeDisturbances(ctx context.Context) error {
	found := disturbances{policies: map[string][]string{}, schedules: map[string][]string{}, refreshing: map[string]bool{}}
	policies, err := d.api.DescribePolicies(ctx, &autoscaling.DescribePoliciesInput{})
	if err != nil {
		return err
	}
	for _, s := range policies {
		if s.Enabled == nil || *s.Enabled {
			name := api.Deref(s.AutoScalingGroupName)
			found.policies[name] = append(found.policies[name], api.Deref(s.PolicyName))
		}
	}
	schedules, err := d.api.DescribeScheduledActions(ctx, &autoscaling.DescribeScheduledActionsInput{})
	if err != nil {
		return err
	}
	for _, s := range schedules {
		name := api.Deref(s.AutoScalingGroupName)
		found.schedules[name] = append(found.schedules[name], api.Deref(s.ScheduledActionName))
	}
	var names []string
	for _, c := range d.candidates {
		names = append(names, c.name)
	}
	err = d.facts.refreshing.read(d.clock.Now(), names, func(group string) (bool, error) { return d.refreshes(ctx, group) })
	for _, name := range names {
		found.refreshing[name], _ = d.facts.refreshing.of(name)
	}
	d.disturbed = found
	return err
}

// refreshes reports whether an instance refresh of a group is under way.
func (d *discovery) refreshes(ctx context.Context, group string) (bool, error) {
	list, err := d.api.DescribeInstanceRefreshes(ctx, group)
	// The newest come first: one that is under way is among them.
	return slices.ContainsFunc(list, func(r asgtypes.InstanceRefresh) bool {
		switch r.Status {
		case asgtypes.InstanceRefreshStatusPending, asgtypes.InstanceRefreshStatusInProgress,
			asgtypes.InstanceRefreshStatusBaking, asgtypes.InstanceRefreshStatusRollbackInProgress:
			return true
		default:
			return false
		}
	}), err
}

// warnings say what may disturb the machines of a candidate.
func (d *disturbances) warnings(c *candidate) (out []cloudprovider.Warning) {
	warn := func(reason, format string, args ...any) {
		out = append(out, cloudprovider.Warning{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if _, ok := c.tags[autoscalerTag]; ok {
		warn(cloudprovider.OtherAutoscaler, "its tag %s lets cluster-autoscaler resize it, too: remove the tag, or restrict cluster-autoscaler "+
			"to check-capacity", autoscalerTag)
	}
	if names := d.policies[c.name]; len(names) > 0 {
		slices.Sort(names)
		warn(cloudprovider.OtherAutoscaler, "its scaling policies %s resize it: delete them", strings.Join(names, ", "))
	}
	if names := d.schedules[c.name]; len(names) > 0 {
		slices.Sort(names)
		warn(cloudprovider.OtherAutoscaler, "its scheduled actions %s resize it: delete them", strings.Join(names, ", "))
	}
	if c.unread != "" {
		warn(NodegroupUnread, "the taints and labels of its managed node group cannot be read, so those that its tags do not declare are "+
			"unknown: %s", c.unread)
	}
	g := c.group
	if asg.Rebalances(g) {
		warn(asg.ZoneRebalancing, "it spans %d zones and moves machines between them, running pods included: suspend its process AZRebalance",
			len(g.AvailabilityZones))
	}
	if api.Deref(g.CapacityRebalance) {
		fix := "turn its capacity rebalancing off"
		if _, managed := c.tags[asg.ManagedTag]; managed {
			fix = "use a group that EKS does not manage, since EKS keeps capacity rebalancing on for Spot"
		}
		warn(CapacityRebalancing, "it replaces Spot machines that may be reclaimed, before they are: %s", fix)
	}
	if c.repaired {
		warn(NodeRepair, "EKS replaces nodes that it finds unhealthy, also of a gang that runs, and with machines unknown to Muster: turn off "+
			"node auto repair of the managed node group")
	}
	if d.refreshing[c.name] {
		warn(InstanceRefresh, "an instance refresh replaces its machines: wait for its end, or cancel it")
	}
	if s := api.Deref(g.MaxInstanceLifetime); s > 0 {
		warn(InstanceLifetime, "it replaces machines after %d hours, running pods included: set its maximum instance lifetime to 0", s/3600)
	}
	if len(c.keeps) > 0 {
		warn(VolumesStay, "its launch template keeps the volume %s of machines that have ended, and it is billed: set DeleteOnTermination",
			strings.Join(c.keeps, ", "))
	}
	if g.WarmPoolConfiguration != nil {
		warn(WarmPool, "it keeps a warm pool, whose machines Muster does not use and does not count: delete the pool")
	}
	if c.method == v1alpha1.AWSLaunchInstances && !asg.Suspends(g, "ReplaceUnhealthy") {
		warn(ReplacesMachines, "it replaces ended machines with machines unknown to Muster, which replaces them, too: suspend its "+
			"process ReplaceUnhealthy")
	}
	return out
}
