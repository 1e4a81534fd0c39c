package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// intent is a tag on an Auto Scaling group that says what LaunchInstances is about
// to make, since that call has no tags for its machines. It is there from before the
// call until lists show them with their own tags; meanwhile it is listed as a hold, and machines of the
// group that may be of the call as unattributed. Taking it back repeats the call, which makes nothing
// twice and names what there is.
type intent struct {
	autoScalingGroup string
	// call is the client token of the call.
	call  string
	count int
	zone  string
	at    time.Time
	// until is when calls end to begin, unless the tag says a later time by then.
	until  time.Time
	group  string
	launch string
	// request is the ProvisioningRequest behind the launch, where that is known: the tag of an
	// intent has no room for it.
	request string
	// cluster is the UID of the cluster whose launch it is.
	cluster string
}

const (
	intentTag = "muster.dev/launch."
	// skew is the tolerated error of the time that is derived from responses of AWS.
	skew = time.Minute
	// settled is how long a call of another process, now dead, may still be at work.
	settled = 2 * time.Minute
	// announced is for how long a tag allows calls to begin: one write for the tries of some minutes.
	announced = 3 * time.Minute
	// holdPrefix begins the name of an intent as a hold.
	holdPrefix = "launch-instances/"
)

func (i *intent) name() string { return holdPrefix + i.autoScalingGroup + "/" + i.call }

func (i *intent) tag() asgtypes.Tag {
	return asgtypes.Tag{
		Key: aws.String(intentTag + i.call),
		Value: aws.String(fmt.Sprintf("%d %d %s %s %s %s %d", i.at.Unix(), i.count, i.zone, i.group, i.launch, i.cluster,
			int(i.until.Sub(i.at).Seconds()))),
		ResourceId: aws.String(i.autoScalingGroup), ResourceType: aws.String("auto-scaling-group"), PropagateAtLaunch: aws.Bool(false),
	}
}

func (i *intent) hold() cloudprovider.Machine {
	return cloudprovider.Machine{Name: i.name(), Group: i.group, Launch: i.launch, Scope: autoScalingScope, Hold: true,
		ProviderID: providerID(i.zone, i.call)}
}

// intents of a group, by their calls.
func intents(g *asgtypes.AutoScalingGroup) (out []intent) {
	for _, t := range g.Tags {
		call, ok := strings.CutPrefix(deref(t.Key), intentTag)
		if !ok {
			continue
		}
		i := intent{autoScalingGroup: deref(g.AutoScalingGroupName), call: call}
		var at, until int64
		read, _ := fmt.Sscanf(deref(t.Value), "%d %d %s %s %s %s %d", &at, &i.count, &i.zone, &i.group, &i.launch, &i.cluster, &until)
		if read < 7 {
			continue // not of Muster's writing
		}
		i.at = time.Unix(at, 0)
		i.until = i.at.Add(time.Duration(until) * time.Second)
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b intent) int { return strings.Compare(a.call, b.call) })
	return out
}

func intentOf(g *asgtypes.AutoScalingGroup, call *string) *intent {
	all := intents(g)
	if i := slices.IndexFunc(all, func(i intent) bool { return i.call == *call }); i >= 0 {
		return &all[i]
	}
	return nil
}

// mayHaveMade says that the machine of its group, which carries no launch, may be of
// the intent's call.
func (i *intent) mayHaveMade(in *instance) bool {
	return in.Launch == "" && in.zone == i.zone && in.launched.After(i.at.Add(-skew))
}

// launchOwned has the group launch machines: intent, call, tags, and the intent goes once lists show them.
// Machines that could not be tagged are not returned, so that the call is repeated: the hold stands for them.
func (p *Provider) launchOwned(ctx context.Context, l *launch, known *intent) ([]string, error) {
	i := known
	switch {
	case len(l.listed) >= l.Count && i == nil:
		return nil, nil
	case len(l.listed) >= l.Count:
		return nil, p.drop(ctx, i)
	case i == nil:
		// Where it is refused, what is free may do without them.
		if err := p.takeOut(ctx, l.spec.AutoScalingGroup, l.dead, shrink); err != nil && !api.IsRefused(err) {
			return nil, err
		}
		i = &intent{
			autoScalingGroup: l.spec.AutoScalingGroup, call: *l.clientToken("launch"), count: l.Count, zone: l.Group.Spec.Zone,
			at: p.now(), group: l.Group.Name, launch: l.Token, cluster: p.config.ClusterUID,
		}
	}
	i.request = l.Request
	ids, err := p.call(ctx, i)
	if !isAnswer(err) {
		return nil, err
	}
	if err := p.adopt(ctx, i, ids); err != nil {
		return nil, err
	}
	if settled := p.settle(ctx, i, ids); settled != nil {
		// Unknown beside a refusal, too: the repeated call gets the same refusal.
		return ids, settled
	}
	return ids, err
}

// announce has the intent's tag say that a call may begin now.
func (p *Provider) announce(ctx context.Context, i *intent) error {
	if p.mayBegin(i) {
		return nil
	}
	i.until = p.now().Add(announced)
	if err := p.api.CreateOrUpdateTags(ctx, i.tag()); err != nil {
		return err
	}
	if !p.mayBegin(i) {
		return fmt.Errorf("the tag of the launch on Auto Scaling group %s took so long to write that the launch is tried again",
			i.autoScalingGroup)
	}
	return nil
}

// mayBegin reports whether the tag allows a call to begin, on all clocks.
func (p *Provider) mayBegin(i *intent) bool { return p.now().Before(i.until.Add(-skew)) }

// call makes the call of an intent, or repeats it.
func (p *Provider) call(ctx context.Context, i *intent) ([]string, error) {
	if err := p.announce(ctx, i); err != nil {
		return nil, err
	}
	out, err := p.api.LaunchInstances(ctx, &autoscaling.LaunchInstancesInput{
		AutoScalingGroupName: aws.String(i.autoScalingGroup), ClientToken: aws.String(i.call),
		RequestedCapacity: aws.Int32(int32(i.count)), AvailabilityZones: []string{i.zone},
		// The other strategy would go on by itself after the call.
		RetryStrategy: asgtypes.RetryStrategyNone,
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, c := range out.Instances {
		ids = append(ids, c.InstanceIds...)
	}
	if len(ids) < i.count {
		var list []api.Shortfall
		for _, e := range out.Errors {
			list = append(list, api.Shortfall{Code: deref(e.ErrorCode), Message: deref(e.ErrorMessage)})
		}
		return ids, api.Blame(list)
	}
	return ids, nil
}

// isAnswer says that the call has come to its end: it has made what it returns and no
// more. One that is throttled or not allowed was not looked at, and a try of it before,
// whose reply was lost, may have made machines.
func isAnswer(err error) bool {
	refused := cloudprovider.Refusal(err)
	return err == nil || refused != nil && refused.Class != v1alpha1.Throttle && refused.Class != v1alpha1.Auth
}

// adopt gives machines of a group the tags that others are born with.
func (p *Provider) adopt(ctx context.Context, i *intent, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	tags := tagList(p.tags(i.launch, i.request, i.group, i.autoScalingGroup))
	if err := p.api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: tags}); err != nil {
		return fmt.Errorf("the machines exist, but are not tagged yet: %w", err)
	}
	return nil
}

// settle ends the intent of a call that has made these machines, if lists show all of them under its launch. Otherwise it stays,
// since a process that begins now would take them for the group's own: a later list ends it, or its take-back.
func (p *Provider) settle(ctx context.Context, i *intent, ids []string) error {
	if len(ids) > 0 {
		named, err := p.named(ctx, i)
		if err != nil || slices.ContainsFunc(ids, func(id string) bool { return named[id] == nil }) {
			return err
		}
	}
	return p.drop(ctx, i)
}

// named are the machines that lists show under the launch of the intent, also those that have ended.
func (p *Provider) named(ctx context.Context, i *intent) (map[string]*instance, error) {
	return p.instances(ctx, append(p.ours(), tagFilter(launchTag, i.launch), tagFilter(nodeGroupTag, i.group))...)
}

// drop takes the intent's tag off the group.
func (p *Provider) drop(ctx context.Context, i *intent) error {
	if err := p.api.DeleteTags(ctx, i.tag()); err != nil {
		return fmt.Errorf("the launch is over, but its tag on Auto Scaling group %s remains: %w", i.autoScalingGroup, err)
	}
	return nil
}

// takeBackIntent ends a hold of that name, and with it whatever its call has made and is not in use.
func (p *Provider) takeBackIntent(ctx context.Context, name string) error {
	group, call, ok := strings.Cut(strings.TrimPrefix(name, holdPrefix), "/")
	if !ok {
		return nil // no name of an intent
	}
	release, err := p.turns.Take(ctx, group)
	if err != nil {
		return err
	}
	defer release()
	groups, err := p.groups(ctx, group)
	if err != nil || len(groups) == 0 {
		return err
	}
	i := intentOf(&groups[0], &call)
	if i == nil {
		return nil
	}
	named, err := p.named(ctx, i)
	if err != nil {
		return err
	}
	if len(named) >= i.count {
		return p.drop(ctx, i) // they are taken back by name, or stay
	}
	made, err := p.maybeMade(ctx, i, &groups[0])
	if err != nil {
		return err
	}
	if !made {
		return p.drop(ctx, i)
	}
	ids, err := p.call(ctx, i)
	if !isAnswer(err) {
		return err
	}
	return p.end(ctx, i, ids)
}

// end takes back what the call of an intent has made, but for what is in use, and then the intent.
func (p *Provider) end(ctx context.Context, i *intent, ids []string) error {
	used, free, err := p.config.InUse.Part(ctx, i.machines(ids))
	if err != nil {
		return err
	}
	var going []string
	for _, m := range free {
		going = append(going, m.Name)
	}
	if err := p.takeMachines(ctx, going); err != nil {
		return err
	}
	// What stays, or goes on all the same, is listed under its launch.
	p.note(i.autoScalingGroup, used)
	left, err := p.notEnded(ctx, ids)
	if err != nil {
		return err
	}
	if err := p.adopt(ctx, i, ids); err != nil && len(left) > 0 {
		return err // those that have ended are tagged for the bill alone
	}
	return p.settle(ctx, i, left)
}

// machines of the intent's call.
func (i *intent) machines(ids []string) (out []cloudprovider.Machine) {
	for _, id := range ids {
		out = append(out, cloudprovider.Machine{Name: id, Group: i.group, Launch: i.launch, ProviderID: providerID(i.zone, id)})
	}
	return out
}

// notEnded are those of the machines that have not ended, as far as lists know.
func (p *Provider) notEnded(ctx context.Context, ids []string) (left []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := p.instances(ctx, ec2types.Filter{Name: aws.String("instance-id"), Values: ids})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return found[id] != nil && !found[id].alive() }), nil
}

// maybeMade says whether the call of the intent may have made something: otherwise to
// repeat it would make machines only to take them back.
func (p *Provider) maybeMade(ctx context.Context, i *intent, g *asgtypes.AutoScalingGroup) (bool, error) {
	if p.now().Before(i.until.Add(settled)) {
		return true, nil
	}
	members, err := p.instances(ctx, tagFilter(ownerTag, i.autoScalingGroup))
	if err != nil {
		return false, err
	}
	// The group forgets what it has terminated, also while that goes on, or is stopped and may be started again.
	for _, in := range members {
		if (in.alive() || in.Kept) && i.mayHaveMade(in) {
			return true, nil
		}
	}
	return slices.ContainsFunc(g.Instances, func(m asgtypes.Instance) bool { return members[deref(m.InstanceId)] == nil }), nil
}
