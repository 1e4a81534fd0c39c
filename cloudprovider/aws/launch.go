package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// launch is one launch in the making.
type launch struct {
	cloudprovider.LaunchRequest
	spec  *v1alpha1.AWSGroup
	group *asgtypes.AutoScalingGroup
	// listed are the machines that exist under the token, as far as lists know.
	listed map[string]*instance
	// subnets of the zone: the one that the NodeGroup names, and the group's others there.
	subnets []string
	// others is how many machines the Auto Scaling group has beside them, with those
	// that stand beside it and the places that are reserved for it.
	others int
	// dead are machines of Muster that have ended and that the Auto Scaling group still
	// counts: it does where it may not replace them. Those that are only stopped may be started
	// again, and those that the group is replacing would shrink it by another machine.
	dead []string
	// reserved are the reservations under the token.
	reserved []reservation
	// neighbours is the placement group of the machines that those of the launch are to join, and gathered the one that they are
	// launched into; empty and nil for none of Muster's.
	neighbours string
	gathered   *placementGroup
	// template is what machines beside the Auto Scaling group are made of.
	template *ec2types.ResponseLaunchTemplateData
}

// Launch implements cloudprovider.Launcher.
func (p *Provider) Launch(ctx context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	l := &launch{LaunchRequest: req, spec: req.Group.Spec.AWS}
	if err := p.check(l); err != nil {
		return nil, err
	}
	release, err := p.turns.Take(ctx, l.spec.AutoScalingGroup)
	if err != nil {
		return nil, err
	}
	defer release()

	ids, err := p.launch(ctx, l)
	machines := union(l.listed, launched(req, ids))
	for i := range machines {
		machines[i].EndsAt = nodegroups.EndsAt(req.Group)
	}
	p.note(l.spec.AutoScalingGroup, machines)
	if err != nil {
		return machines, fmt.Errorf("launch %d machines of NodeGroup %s: %w", req.Count, req.Group.Name, err)
	}
	return machines, nil
}

// check refuses what no call could make.
func (p *Provider) check(l *launch) error {
	switch {
	case l.spec == nil:
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "NoAWSGroup",
			Message: fmt.Sprintf("NodeGroup %s has no spec.aws: name the Auto Scaling group there", l.Group.Name)}
	case l.spec.Region != p.config.Region:
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "WrongRegion",
			Message: fmt.Sprintf("spec.aws.region of NodeGroup %s is %s, and Muster runs for %s: name a group of that region", l.Group.Name,
				l.spec.Region, p.config.Region)}
	case l.Group.Spec.CapacityType == v1alpha1.Reserved && l.spec.CapacityReservation == "":
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "NoCapacityReservation",
			Message: fmt.Sprintf("NodeGroup %s has capacity type Reserved and no spec.aws.capacityReservation: name the reservation", l.Group.Name)}
	case l.spec.LaunchMethod == v1alpha1.AWSReservation && l.Group.Spec.CapacityType != v1alpha1.OnDemand:
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "NotReservable",
			Message: fmt.Sprintf("NodeGroup %s has capacity type %s, but only OnDemand can be reserved first: set spec.aws.launchMethod to Fleet",
				l.Group.Name, l.Group.Spec.CapacityType)}
	case l.Count > nodegroups.PerLaunch(l.Group):
		return &cloudprovider.Error{Class: v1alpha1.Quota, Code: "TooManyAtOnce",
			Message: fmt.Sprintf("%d machines requested, but %s launches at most %d in one call", l.Count, l.spec.LaunchMethod,
				nodegroups.PerLaunch(l.Group))}
	}
	return nil
}

// launch returns the IDs of the machines that it has made or found by its token.
func (p *Provider) launch(ctx context.Context, l *launch) ([]string, error) {
	if err := p.look(ctx, l); err != nil {
		return nil, err
	}
	known := intentOf(l.group, l.clientToken("launch"))
	// What an earlier call of the same token has made may be in the count already.
	if most := int(deref(l.group.MaxSize)); known == nil && len(l.listed) == 0 && l.others+l.Count > most {
		return nil, &cloudprovider.Error{Class: v1alpha1.Quota, Code: "MaxSize",
			Message: fmt.Sprintf("%d machines requested in addition to the %d of Auto Scaling group %s, which exceeds its MaxSize of %d: raise it",
				l.Count, l.others, l.spec.AutoScalingGroup, most)}
	}
	switch {
	case l.spec.LaunchMethod == v1alpha1.AWSLaunchInstances:
		return p.launchOwned(ctx, l, known)
	case len(l.listed) >= l.Count:
		return nil, p.release(ctx, l.reserved)
	}
	var err error
	if l.template, err = p.templateData(ctx, templateOf(l.group, l.spec.InstanceType)); err != nil {
		return nil, err
	}
	switch {
	case deref(l.template.DisableApiTermination):
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "ProtectedMachines",
			Message: fmt.Sprintf("Auto Scaling group %s cannot be used: %s", l.spec.AutoScalingGroup, protects)}
	}
	if err := p.gather(ctx, l); err != nil {
		return nil, err
	}
	var ids []string
	switch {
	case l.spec.LaunchMethod == v1alpha1.AWSReservation:
		ids, err = p.launchReserved(ctx, l)
	case l.Group.Spec.CapacityType == v1alpha1.Reserved:
		// Where the reservation is gone, the launch is refused by its own call.
		if err = p.isElsewhere(ctx, l, l.spec.CapacityReservation); err == nil || api.HasCode(err, unknownReservation) {
			ids, err = p.runInto(ctx, l, l.spec.CapacityReservation)
		}
	default:
		ids, err = p.createFleet(ctx, l)
	}
	if refused := cloudprovider.Refusal(err); refused != nil && refused.Code == unknownPlacementGroup && l.gathered != nil {
		refused.Class = v1alpha1.Throttle // it is listed, and will be known everywhere in a moment
	}
	return ids, err
}

// made says that the machine is of this launch.
func (l *launch) made(m cloudprovider.Machine) bool {
	return m.Launch == l.Token && m.Group == l.Group.Name
}

// look finds out what exists.
func (p *Provider) look(ctx context.Context, l *launch) error {
	groups, err := p.groups(ctx, l.spec.AutoScalingGroup)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "AutoScalingGroupNotFound",
			Message: fmt.Sprintf("there is no Auto Scaling group %s in region %s: was it deleted?", l.spec.AutoScalingGroup, l.spec.Region)}
	}
	l.group = &groups[0]
	if templateOf(l.group, l.spec.InstanceType) == nil {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "NoLaunchTemplate",
			Message: fmt.Sprintf("Auto Scaling group %s has no launch template: launch configurations are not supported, move it to a "+
				"launch template", l.spec.AutoScalingGroup)}
	}
	if l.spec.LaunchMethod == v1alpha1.AWSLaunchInstances && rebalances(l.group) {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: ZoneRebalancing,
			Message: fmt.Sprintf("Auto Scaling group %s cannot be used: %s", l.spec.AutoScalingGroup, unbalanced(l.group))}
	}
	if err := p.claim(ctx, l.group); err != nil {
		return err
	}
	all, err := p.instances(ctx, append(p.ours(), tagFilter(groupTag, l.spec.AutoScalingGroup))...)
	if err != nil {
		return err
	}
	l.listed = map[string]*instance{}
	counted := map[string]bool{}
	for id, in := range all {
		if l.made(in.Machine) {
			l.listed[id] = in
		} else if in.alive() {
			counted[id] = true
		}
	}
	for _, m := range l.group.Instances {
		if in := all[deref(m.InstanceId)]; in == nil {
			counted[deref(m.InstanceId)] = true
		} else if !in.alive() && !in.Kept && !strings.HasPrefix(string(m.LifecycleState), terminating) {
			l.dead = append(l.dead, in.Name)
		}
	}
	unlisted := p.fresh()
	for id, m := range unlisted {
		if m.autoScalingGroup == l.spec.AutoScalingGroup && all[id] == nil && !l.made(m.Machine) && !m.Hold {
			counted[id] = true
		}
	}
	l.others, l.neighbours = len(counted), p.neighbours(l, all)
	if l.subnets, err = p.subnetsFor(ctx, l); err != nil {
		return err
	}
	reservations, err := p.reservations(ctx, tagFilter(groupTag, l.spec.AutoScalingGroup))
	if err != nil {
		return err
	}
	for _, r := range reservations {
		delete(unlisted, r.hold.Name)
		if l.made(r.hold) {
			l.reserved = append(l.reserved, r)
		} else if r.waits() {
			l.others += r.free
		}
	}
	for _, m := range unlisted {
		if m.Hold && m.autoScalingGroup == l.spec.AutoScalingGroup && !l.made(m.Machine) {
			l.others += m.places
		}
	}
	return nil
}

// clusterOf is the UID of the cluster that has claimed the group; empty for none.
func clusterOf(g *asgtypes.AutoScalingGroup) string {
	for _, t := range g.Tags {
		if deref(t.Key) == clusterUIDTag {
			return deref(t.Value)
		}
	}
	return ""
}

// claim tags a group with the cluster's UID, unless another cluster has claimed it: what it
// launches by itself carries nothing that tells clusters of one name apart.
func (p *Provider) claim(ctx context.Context, g *asgtypes.AutoScalingGroup) error {
	switch uid := clusterOf(g); uid {
	case p.config.ClusterUID:
		return nil
	case "":
		return p.api.CreateOrUpdateTags(ctx, groupTagOf(g, clusterUIDTag, p.config.ClusterUID))
	default:
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "OtherCluster", Message: "Auto Scaling group " + deref(g.AutoScalingGroupName) +
			" is not Muster's here: " + p.otherCluster(uid)}
	}
}

// groupTagOf is a tag of a group, which its machines do not get.
func groupTagOf(g *asgtypes.AutoScalingGroup, key, value string) asgtypes.Tag {
	return asgtypes.Tag{
		Key: aws.String(key), Value: aws.String(value), PropagateAtLaunch: aws.Bool(false),
		ResourceId: g.AutoScalingGroupName, ResourceType: aws.String("auto-scaling-group"),
	}
}

// otherCluster tells that a group was claimed by another cluster of the same name.
func (p *Provider) otherCluster(uid string) string {
	return fmt.Sprintf("its tag %s is %s, the UID of another cluster, and that of this one is %s; if this cluster replaces that one, "+
		"remove the tag", clusterUIDTag, uid, p.config.ClusterUID)
}

// subnetsFor returns the subnets that the group has in the zone of the launch. AWS is asked
// about them only where there may be more than the one that the NodeGroup names.
func (p *Provider) subnetsFor(ctx context.Context, l *launch) ([]string, error) {
	all := strings.Split(deref(l.group.VPCZoneIdentifier), ",")
	if l.spec.LaunchMethod == v1alpha1.AWSLaunchInstances || len(all) <= len(l.group.AvailabilityZones) {
		return []string{l.spec.Subnet}, nil
	}
	found, err := p.subnets(ctx, all)
	if err != nil {
		return nil, err
	}
	out := []string{l.spec.Subnet}
	for _, id := range all {
		if id != l.spec.Subnet && deref(found[id].AvailabilityZone) == l.Group.Spec.Zone {
			out = append(out, id)
		}
	}
	slices.Sort(out[1:])
	return out, nil
}

// groups describes the Auto Scaling groups of those names that exist.
func (p *Provider) groups(ctx context.Context, names ...string) ([]asgtypes.AutoScalingGroup, error) {
	return p.api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names})
}

// templateOf is the launch template by which a group makes machines of a type.
func templateOf(g *asgtypes.AutoScalingGroup, instanceType string) *asgtypes.LaunchTemplateSpecification {
	if g.MixedInstancesPolicy == nil || g.MixedInstancesPolicy.LaunchTemplate == nil {
		return g.LaunchTemplate
	}
	for _, o := range g.MixedInstancesPolicy.LaunchTemplate.Overrides {
		if deref(o.InstanceType) == instanceType && o.LaunchTemplateSpecification != nil {
			return o.LaunchTemplateSpecification
		}
	}
	return g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification
}

// clientToken names a call of the launch to AWS: one token of Muster's may stand for
// launches in several groups, and a launch may need several calls.
func (l *launch) clientToken(call string) *string {
	sum := sha256.Sum256([]byte(l.Token + "\x00" + l.Group.Name + "\x00" + call))
	return aws.String(hex.EncodeToString(sum[:])) // 64 characters, the most that is taken
}
