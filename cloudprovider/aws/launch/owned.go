package launch

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

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// settled is how long a call of another process, now dead, may still be at work.
	settled = 2 * time.Minute
	// announced is for how long a tag allows calls to begin: one write for the tries of some minutes.
	announced = 3 * time.Minute
	// shownWithin is the time within which a new machine is listed. A machine that neither EC2 nor its group lists after that has
	// terminated and was forgotten.
	shownWithin = 10 * time.Minute
)

// launchOwned has the group launch machines: intent, call, tags, and the intent goes once lists show them.
// Machines that could not be tagged are not returned, so that the call is repeated: the hold stands for them.
func (r *Launcher) launchOwned(ctx context.Context, l *launch, known *inventory.Intent) ([]string, error) {
	i := known
	switch {
	case len(l.listed) >= l.Count && i == nil:
		return nil, nil
	case len(l.listed) >= l.Count:
		return nil, r.inventory.EndIntent(ctx, i)
	case i == nil:
		// Where it is refused, what is free may do without them.
		if err := r.terminator.OutOf(ctx, l.spec.AutoScalingGroup, l.dead); err != nil && !cloudprovider.IsRefused(err) {
			return nil, err
		}
		i = &inventory.Intent{
			AutoScalingGroup: l.spec.AutoScalingGroup, Call: *l.clientToken("launch"), Count: l.Count, Zone: l.Group.Spec.Zone,
			At: r.now(), Group: l.Group.Name, Launch: l.Token, Cluster: r.inventory.UID,
		}
	}
	i.Request = l.Request
	own := known == nil || r.wasRefused(known)
	ids, err := r.call(ctx, i)
	if r.refused.Delete(i.Call); own && len(ids) == 0 && cloudprovider.Refusal(err) != nil {
		r.refused.Store(i.Call, true)
	}
	if !isAnswer(err) && !r.wasRefused(i) {
		return nil, err
	}
	if err := r.adopt(ctx, i, ids); err != nil {
		return nil, err
	}
	if settled := r.settle(ctx, i, ids); settled != nil {
		// Unknown beside a refusal, too: the repeated call gets the same refusal.
		return ids, settled
	}
	return ids, err
}

// announce has the intent's tag say that a call may begin now.
func (r *Launcher) announce(ctx context.Context, i *inventory.Intent) error {
	if r.mayBegin(i) {
		return nil
	}
	i.Until = r.now().Add(announced)
	if err := r.api.CreateOrUpdateTags(ctx, i.Tag()); err != nil {
		return err
	}
	if !r.mayBegin(i) {
		return fmt.Errorf("the tag of the launch on Auto Scaling group %s took so long to write that the launch is tried again",
			i.AutoScalingGroup)
	}
	return nil
}

// mayBegin reports whether the tag allows a call to begin, on all clocks.
func (r *Launcher) mayBegin(i *inventory.Intent) bool {
	return r.now().Before(i.Until.Add(-inventory.Skew))
}

// call makes the call of an intent, or repeats it.
func (r *Launcher) call(ctx context.Context, i *inventory.Intent) ([]string, error) {
	if err := r.announce(ctx, i); err != nil {
		return nil, err
	}
	out, err := r.api.LaunchInstances(ctx, &autoscaling.LaunchInstancesInput{
		AutoScalingGroupName: aws.String(i.AutoScalingGroup), ClientToken: aws.String(i.Call),
		RequestedCapacity: aws.Int32(int32(i.Count)), AvailabilityZones: []string{i.Zone},
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
	if len(ids) < i.Count {
		var list []api.Shortfall
		for _, e := range out.Errors {
			list = append(list, api.Shortfall{Code: api.Deref(e.ErrorCode), Message: api.Deref(e.ErrorMessage)})
		}
		return ids, api.Blame(list)
	}
	return ids, nil
}

// wasRefused reports whether the call of an intent has made nothing.
func (r *Launcher) wasRefused(i *inventory.Intent) bool {
	_, refused := r.refused.Load(i.Call)
	return refused
}

// isAnswer says that the call has come to its end: it has made what it returns and no
// more. One that is throttled or not allowed was not looked at, and a try of it before,
// whose reply was lost, may have made machines.
func isAnswer(err error) bool {
	refused := cloudprovider.Refusal(err)
	return err == nil || refused != nil && refused.Class != v1alpha1.Throttle && refused.Class != v1alpha1.Auth
}

// adopt gives machines of a group the tags that others are born with.
func (r *Launcher) adopt(ctx context.Context, i *inventory.Intent, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	tags := inventory.TagList(r.inventory.Tags(i.Launch, i.Request, i.Group, i.AutoScalingGroup))
	if err := r.api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: tags}); err != nil {
		return fmt.Errorf("the machines exist, but are not tagged yet: %w", err)
	}
	return nil
}

// settle ends the intent of a call that has made these machines, if lists show all of them under its launch. Otherwise it stays,
// since a process that begins now would take them for the group's own: a later list ends it, or its termination.
func (r *Launcher) settle(ctx context.Context, i *inventory.Intent, ids []string) error {
	if len(ids) > 0 {
		named, err := r.inventory.Named(ctx, i)
		if err != nil || slices.ContainsFunc(ids, func(id string) bool { return named[id] == nil }) {
			return err
		}
	}
	if err := r.inventory.EndIntent(ctx, i); err != nil {
		return err
	}
	r.refused.Delete(i.Call)
	return nil
}

// Terminate ends a hold of that name, and with it whatever its call has made and is not in use.
func (r *Launcher) Terminate(ctx context.Context, name string) error {
	group, call, ok := strings.Cut(strings.TrimPrefix(name, inventory.HoldPrefix), "/")
	if !ok {
		return nil // no name of an intent
	}
	release, err := r.turns.Take(ctx, group)
	if err != nil {
		return err
	}
	defer release()
	groups, err := asg.Find(ctx, r.api, group)
	if err != nil || len(groups) == 0 {
		return err
	}
	i := inventory.IntentOf(&groups[0], call)
	if i == nil {
		return nil
	}
	named, err := r.inventory.Named(ctx, i)
	if err != nil {
		return err
	}
	if len(named) >= i.Count {
		return r.inventory.EndIntent(ctx, i) // they are terminated by name, or stay
	}
	if r.wasRefused(i) {
		return r.settle(ctx, i, nil)
	}
	made, err := r.maybeMade(ctx, i, &groups[0])
	if err != nil {
		return err
	}
	if !made {
		return r.settle(ctx, i, nil)
	}
	ids, err := r.call(ctx, i)
	if !isAnswer(err) {
		return err
	}
	return r.end(ctx, i, ids)
}

// end terminates the machines that the call of an intent has made, except those in use, and then ends the intent.
func (r *Launcher) end(ctx context.Context, i *inventory.Intent, ids []string) error {
	used, free, err := r.inUse.Part(ctx, inventory.Returned(i.Group, i.Launch, i.Zone, ids))
	if err != nil {
		return err
	}
	var going []string
	for _, m := range free {
		going = append(going, m.Name)
	}
	if err := r.terminator.Machines(ctx, going); err != nil {
		return err
	}
	// What stays, or goes on all the same, is listed under its launch.
	r.inventory.Note(i.AutoScalingGroup, used)
	known, left, err := r.remaining(ctx, i, ids)
	if err != nil {
		return err
	}
	if err := r.adopt(ctx, i, known); err != nil && len(left) > 0 {
		return err // terminated machines are tagged for the bill alone
	}
	return r.settle(ctx, i, left)
}

// remaining returns the machines of an intent's call that AWS still lists or will list, and among them the ones that are not
// terminated.
func (r *Launcher) remaining(ctx context.Context, i *inventory.Intent, ids []string) (known, left []string, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	found, err := r.inventory.Instances(ctx, api.Filter("instance-id", ids...))
	if err != nil {
		return nil, nil, err
	}
	known = ids
	if r.now().After(i.At.Add(shownWithin)) {
		groups, err := asg.Find(ctx, r.api, i.AutoScalingGroup)
		if err != nil {
			return nil, nil, err
		}
		known = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return found[id] == nil && !hasMember(groups, id) })
	}
	left = slices.DeleteFunc(slices.Clone(known), func(id string) bool { return found[id] != nil && !found[id].Alive() })
	return known, left, nil
}

// hasMember reports whether one of the groups lists the machine.
func hasMember(groups []asgtypes.AutoScalingGroup, id string) bool {
	return slices.ContainsFunc(groups, func(g asgtypes.AutoScalingGroup) bool {
		return slices.ContainsFunc(g.Instances, func(m asgtypes.Instance) bool { return api.Deref(m.InstanceId) == id })
	})
}

// maybeMade says whether the call of the intent may have made something: otherwise to
// repeat it would make machines only to terminate them.
func (r *Launcher) maybeMade(ctx context.Context, i *inventory.Intent, g *asgtypes.AutoScalingGroup) (bool, error) {
	if r.now().Before(i.Until.Add(settled)) {
		return true, nil
	}
	members, err := r.inventory.Instances(ctx, inventory.TagFilter(inventory.OwnerTag, i.AutoScalingGroup))
	if err != nil {
		return false, err
	}
	// The group forgets what it has terminated, also while that goes on, or is stopped and may be started again.
	for _, in := range members {
		if (in.Alive() || in.Kept) && i.MayHaveMade(in) {
			return true, nil
		}
	}
	return slices.ContainsFunc(g.Instances, func(m asgtypes.Instance) bool { return members[api.Deref(m.InstanceId)] == nil }), nil
}
