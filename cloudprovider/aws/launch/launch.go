// Package launch makes machines. Each way of launching is a file: a fleet, a reservation that is made for the launch, the instances of a
// reservation (run), and the group's own LaunchInstances (owned). What they share is here: what is refused before any call, what exists
// already under the token, and how many machines the group may still have.
package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/cloudprovider/aws/terminate"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config of a Launcher.
type Config struct {
	Region     string
	Inventory  *inventory.Inventory
	Placements *placement.Groups
	Terminator *terminate.Terminator
	Clock      clock.PassiveClock
	// InUse is consulted before machines are terminated that were not named.
	InUse cloudprovider.InUse
}

// Launcher launches machines in one region, and terminates launches whose machines have no names yet.
type Launcher struct {
	region     string
	api        *api.Client
	inventory  *inventory.Inventory
	placements *placement.Groups
	terminator *terminate.Terminator
	clock      clock.PassiveClock
	inUse      cloudprovider.InUse

	// turns of the launches into an Auto Scaling group: no other one of this process counts what the group has meanwhile.
	turns calls.Turns
	// refused has the tokens of LaunchInstances calls that have made nothing: this process has made every try of them, and AWS refused
	// each.
	// The intent does not record a refusal: it would take a write where the intent is deleted instead, and a record that is read late
	// would hide the machines of a later try.
	refused sync.Map
}

// New returns a Launcher.
func New(client *api.Client, c Config) *Launcher {
	return &Launcher{
		region: c.Region, api: client, inventory: c.Inventory, placements: c.Placements, terminator: c.Terminator, clock: c.Clock, inUse: c.InUse,
	}
}

// now returns the time by the clock of AWS, see api.Client.Time.
func (r *Launcher) now() time.Time { return r.api.Time(r.clock.Now()) }

// launch is one launch in the making.
type launch struct {
	cloudprovider.LaunchRequest
	spec  *v1alpha1.AWSGroup
	group *asgtypes.AutoScalingGroup
	// listed are the machines that exist under the token, as far as lists know.
	listed map[string]*inventory.Instance
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
	reserved []inventory.Reservation
	// neighbours is the placement group of the machines that those of the launch are to join, and gathered the one that they are
	// launched into; empty and nil for none of Muster's.
	neighbours string
	gathered   *placement.Group
	// template is what machines beside the Auto Scaling group are made of.
	template *ec2types.ResponseLaunchTemplateData
}

// Launch does what a cloudprovider.Launcher does.
func (r *Launcher) Launch(ctx context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	l := &launch{LaunchRequest: req, spec: req.Group.Spec.AWS}
	if err := r.check(l); err != nil {
		return nil, err
	}
	release, err := r.turns.Take(ctx, l.spec.AutoScalingGroup)
	if err != nil {
		return nil, err
	}
	defer release()

	ids, err := r.launch(ctx, l)
	machines := union(l.listed, inventory.Returned(req.Group.Name, req.Token, req.Group.Spec.Zone, ids))
	poll.EndWith(machines, req.Group)
	r.inventory.Note(l.spec.AutoScalingGroup, machines)
	if err != nil {
		return machines, fmt.Errorf("launch %d machines of NodeGroup %s: %w", req.Count, req.Group.Name, err)
	}
	return machines, nil
}

// check refuses what no call could make.
func (r *Launcher) check(l *launch) error {
	switch {
	case l.spec == nil:
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "NoAWSGroup",
			Message: fmt.Sprintf("NodeGroup %s has no spec.aws: name the Auto Scaling group there", l.Group.Name)}
	case l.spec.Region != r.region:
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "WrongRegion",
			Message: fmt.Sprintf("spec.aws.region of NodeGroup %s is %s, and Muster runs for %s: name a group of that region", l.Group.Name,
				l.spec.Region, r.region)}
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
func (r *Launcher) launch(ctx context.Context, l *launch) ([]string, error) {
	if err := r.read(ctx, l); err != nil {
		return nil, err
	}
	known := inventory.IntentOf(l.group, *l.clientToken("launch"))
	// What an earlier call of the same token has made may be in the count already.
	if most := int(api.Deref(l.group.MaxSize)); known == nil && len(l.listed) == 0 && l.others+l.Count > most {
		return nil, &cloudprovider.Error{Class: v1alpha1.Quota, Code: "MaxSize",
			Message: fmt.Sprintf("%d machines requested in addition to the %d of Auto Scaling group %s, which exceeds its MaxSize of %d: raise it",
				l.Count, l.others, l.spec.AutoScalingGroup, most)}
	}
	switch {
	case l.spec.LaunchMethod == v1alpha1.AWSLaunchInstances:
		return r.launchOwned(ctx, l, known)
	case len(l.listed) >= l.Count:
		return nil, r.release(ctx, l.reserved)
	}
	version, err := asg.ReadTemplate(ctx, r.api, asg.TemplateOf(l.group, l.spec.InstanceType))
	if err != nil {
		return nil, err
	}
	l.template = version.LaunchTemplateData
	if api.Deref(l.template.DisableApiTermination) {
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "ProtectedMachines",
			Message: fmt.Sprintf("Auto Scaling group %s cannot be used: %s", l.spec.AutoScalingGroup, asg.Protects)}
	}
	if err := r.gather(ctx, l); err != nil {
		return nil, err
	}
	var ids []string
	switch {
	case l.spec.LaunchMethod == v1alpha1.AWSReservation:
		ids, err = r.launchReserved(ctx, l)
	case l.Group.Spec.CapacityType == v1alpha1.Reserved:
		// Where the reservation is gone, the launch is refused by its own call.
		err = r.placements.CheckDomain(ctx, l.LaunchRequest, l.spec.CapacityReservation)
		if err == nil || api.HasCode(err, api.UnknownReservation) {
			ids, err = r.runInto(ctx, l, l.spec.CapacityReservation)
		}
	default:
		ids, err = r.createFleet(ctx, l)
	}
	if refused := cloudprovider.Refusal(err); refused != nil && refused.Code == api.UnknownPlacementGroup && l.gathered != nil {
		refused.Class = v1alpha1.Throttle // it is listed, and will be known everywhere in a moment
	}
	return ids, err
}

// made says that the machine is of this launch.
func (l *launch) made(m cloudprovider.Machine) bool {
	return m.Launch == l.Token && m.Group == l.Group.Name
}

// read finds out what exists.
func (r *Launcher) read(ctx context.Context, l *launch) error {
	groups, err := asg.Find(ctx, r.api, l.spec.AutoScalingGroup)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "AutoScalingGroupNotFound",
			Message: fmt.Sprintf("there is no Auto Scaling group %s in region %s: was it deleted?", l.spec.AutoScalingGroup, l.spec.Region)}
	}
	l.group = &groups[0]
	if asg.TemplateOf(l.group, l.spec.InstanceType) == nil {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "NoLaunchTemplate",
			Message: fmt.Sprintf("Auto Scaling group %s has no launch template: launch configurations are not supported, move it to a "+
				"launch template", l.spec.AutoScalingGroup)}
	}
	if l.spec.LaunchMethod == v1alpha1.AWSLaunchInstances && asg.Rebalances(l.group) {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: asg.ZoneRebalancing,
			Message: fmt.Sprintf("Auto Scaling group %s cannot be used: %s", l.spec.AutoScalingGroup, asg.Unbalanced(l.group))}
	}
	if err := r.inventory.Claim(ctx, l.group); err != nil {
		return err
	}
	all, err := r.inventory.Instances(ctx, append(r.inventory.Ours(), inventory.TagFilter(inventory.GroupTag, l.spec.AutoScalingGroup))...)
	if err != nil {
		return err
	}
	l.listed = map[string]*inventory.Instance{}
	counted := map[string]bool{}
	for id, in := range all {
		if l.made(in.Machine) {
			l.listed[id] = in
		} else if in.Alive() {
			counted[id] = true
		}
	}
	for _, m := range l.group.Instances {
		if in := all[api.Deref(m.InstanceId)]; in == nil {
			counted[api.Deref(m.InstanceId)] = true
		} else if !in.Alive() && !in.Kept && !strings.HasPrefix(string(m.LifecycleState), asg.Terminating) {
			l.dead = append(l.dead, in.Name)
		}
	}
	unlisted := r.inventory.Fresh()
	for id, m := range unlisted {
		if m.AutoScalingGroup == l.spec.AutoScalingGroup && all[id] == nil && !l.made(m.Machine) && !m.Hold {
			counted[id] = true
		}
	}
	l.others, l.neighbours = len(counted), r.placements.Neighbours(l.LaunchRequest, all)
	if l.subnets, err = r.subnetsFor(ctx, l); err != nil {
		return err
	}
	reservations, err := r.inventory.Reservations(ctx, inventory.TagFilter(inventory.GroupTag, l.spec.AutoScalingGroup))
	if err != nil {
		return err
	}
	for _, made := range reservations {
		delete(unlisted, made.Hold.Name)
		if l.made(made.Hold) {
			l.reserved = append(l.reserved, made)
		} else if made.Waits() {
			l.others += made.Free
		}
	}
	for _, m := range unlisted {
		if m.Hold && m.AutoScalingGroup == l.spec.AutoScalingGroup && !l.made(m.Machine) {
			l.others += m.Places
		}
	}
	return nil
}

// subnetsFor returns the subnets that the group has in the zone of the launch. AWS is called
// about them only where there may be more than the one that the NodeGroup names.
func (r *Launcher) subnetsFor(ctx context.Context, l *launch) ([]string, error) {
	all := strings.Split(api.Deref(l.group.VPCZoneIdentifier), ",")
	if l.spec.LaunchMethod == v1alpha1.AWSLaunchInstances || len(all) <= len(l.group.AvailabilityZones) {
		return []string{l.spec.Subnet}, nil
	}
	found, err := asg.Subnets(ctx, r.api, all)
	if err != nil {
		return nil, err
	}
	out := []string{l.spec.Subnet}
	for _, id := range all {
		if id != l.spec.Subnet && api.Deref(found[id].AvailabilityZone) == l.Group.Spec.Zone {
			out = append(out, id)
		}
	}
	slices.Sort(out[1:])
	return out, nil
}

// clientToken names a call of the launch to AWS: one token of Muster's may stand for
// launches in several groups, and a launch may need several calls.
func (l *launch) clientToken(call string) *string {
	sum := sha256.Sum256([]byte(l.Token + "\x00" + l.Group.Name + "\x00" + call))
	return aws.String(hex.EncodeToString(sum[:])) // 64 characters, the most that is taken
}

// union is the machines that were listed, and those that a call has returned beside
// them, by name.
func union(listed map[string]*inventory.Instance, returned []cloudprovider.Machine) []cloudprovider.Machine {
	var out []cloudprovider.Machine
	for _, in := range listed {
		out = append(out, in.Machine)
	}
	for _, m := range returned {
		if listed[m.Name] == nil {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b cloudprovider.Machine) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// instanceTags are those of machines: the tags that their Auto Scaling group propagates, which
// it does only to what it launches itself, and the launch's.
func (r *Launcher) instanceTags(l *launch) map[string]string {
	out := map[string]string{}
	for _, t := range l.group.Tags {
		if api.Deref(t.PropagateAtLaunch) && !strings.HasPrefix(api.Deref(t.Key), "aws:") {
			out[api.Deref(t.Key)] = api.Deref(t.Value)
		}
	}
	maps.Copy(out, r.inventory.TagsOf(l.LaunchRequest))
	return out
}
