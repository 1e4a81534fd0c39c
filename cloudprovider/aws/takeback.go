package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Limits of what one call takes.
const (
	mostTerminated = 500
	mostTakenOut   = 100
	mostOwners     = 50
)

// takeBack takes machines and holds back. The kind of a name follows from its form, and Auto
// Scaling tells the owner of a machine, so it works for deleted groups, too.
func (p *Provider) takeBack(ctx context.Context, _ string, names []string) error {
	var ids []string
	var errs []error
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "i-"):
			ids = append(ids, name)
		case strings.HasPrefix(name, "cr-"):
			errs = append(errs, p.cancel(ctx, name))
		case strings.HasPrefix(name, inventory.HoldPrefix):
			errs = append(errs, p.takeBackIntent(ctx, name))
		}
	}
	return errors.Join(append(errs, p.takeMachines(ctx, ids))...)
}

// takeMachines terminates machines, in their groups or beside them. Those that EC2 shows with Muster's tags and without those of a group
// stand beside it, and do not need Auto Scaling.
func (p *Provider) takeMachines(ctx context.Context, ids []string) error {
	slices.Sort(ids)
	var beside, others []string
	for batch := range slices.Chunk(ids, api.MostNames) {
		shown, err := p.inventory.Instances(ctx, api.Filter("instance-id", batch...))
		if err != nil {
			log.FromContext(ctx).Error(err, "Machines that are to go cannot be listed; Auto Scaling tells which are of a group")
		}
		for _, id := range batch {
			if in := shown[id]; in != nil && in.Launch != "" && in.Tags[inventory.OwnerTag] == "" {
				beside = append(beside, id)
			} else {
				others = append(others, id)
			}
		}
	}
	errs := []error{p.terminate(ctx, beside)}
	owners, err := p.owners(ctx, others)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, p.takeFrom(ctx, owners, others))...)
}

// takeFrom terminates machines, each in the way that its owner asks for.
func (p *Provider) takeFrom(ctx context.Context, owners map[string]owner, ids []string) error {
	byOwner := map[owner][]string{}
	for _, id := range ids {
		byOwner[owners[id]] = append(byOwner[owners[id]], id)
	}
	var errs []error
	for _, of := range slices.SortedFunc(maps.Keys(byOwner), func(a, b owner) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.state, b.state))
	}) {
		ids := byOwner[of]
		switch {
		case of.group == "":
			errs = append(errs, p.terminate(ctx, ids))
		case of.state == asg.Retained:
			errs = append(errs, p.takeOut(ctx, of.group, ids, !shrink))
		case of.state != asg.Terminating:
			errs = append(errs, p.takeOut(ctx, of.group, ids, shrink))
		}
	}
	return errors.Join(errs...)
}

// owner of a machine is its Auto Scaling group, if it has one.
type owner struct {
	group string
	// state is terminating for machines that the group is terminating already: a lifecycle hook may
	// hold them for hours, and to take them out once more would shrink the group twice. It is
	// retained for those that the group keeps, by its lifecycle policy, until it is told again,
	// and that it counts no more.
	state string
}

// owners are those of the machines that have one, by ID. A group that owns a machine would
// replace it, if it were only terminated.
func (p *Provider) owners(ctx context.Context, ids []string) (map[string]owner, error) {
	out := map[string]owner{}
	for batch := range slices.Chunk(ids, mostOwners) {
		list, err := p.api.DescribeAutoScalingInstances(ctx, batch)
		if err != nil {
			return nil, err
		}
		for _, in := range list {
			of := owner{group: api.Deref(in.AutoScalingGroupName)}
			if state := api.Deref(in.LifecycleState); state == asg.Retained {
				of.state = asg.Retained
			} else if strings.HasPrefix(state, asg.Terminating) {
				of.state = asg.Terminating
			}
			out[api.Deref(in.InstanceId)] = of
		}
	}
	return out, nil
}

// terminate ends machines that no group owns.
func (p *Provider) terminate(ctx context.Context, ids []string) error {
	return sift(ids, mostTerminated, func(ids []string) error {
		err := p.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
		if len(ids) > 1 {
			return unknownOr(err)
		}
		_, fresh := p.inventory.Fresh()[ids[0]]
		switch {
		case fresh && api.IsUnknownMachine(err):
			return fmt.Errorf("TerminateInstances: machine %s was made a moment ago and is not known yet", ids[0])
		case !fresh && api.IsDenied(err):
			// What has gone has lost its tags, without which the policy grants nothing.
			found, listing := p.inventory.Instances(ctx, ec2types.Filter{Name: aws.String("instance-id"), Values: ids})
			if listing == nil && len(found) == 0 {
				return errUnknown
			}
		}
		return unknownOr(err)
	})
}

// shrink has the desired size of a group fall by exactly the machines that are taken out.
const shrink = true

// takeOut ends machines of a group.
func (p *Provider) takeOut(ctx context.Context, group string, ids []string, shrink bool) error {
	return sift(ids, mostTakenOut, func(ids []string) error {
		err := p.takeOutOnce(ctx, group, ids, shrink)
		if cause := cloudprovider.CauseOf(err); !shrink || cause == nil || cause.Class != v1alpha1.Config {
			return err
		}
		// A try whose reply was lost may have taken some out already: AWS would name them one at a time.
		owners, asking := p.owners(ctx, ids)
		if asking == nil && slices.ContainsFunc(ids, func(id string) bool { return owners[id] != owner{group: group} }) {
			return p.takeFrom(ctx, owners, ids)
		}
		if len(ids) > 1 {
			return err
		}
		// Where calls take long, a machine may be taken out by two of them, and counted twice: the group then wants fewer than it
		// has, down to its minimum, below which it refuses to shrink.
		if over, asking := p.hasTooMany(ctx, group); asking != nil || !over {
			return err
		}
		return p.takeOutOnce(ctx, group, ids, !shrink)
	})
}

func (p *Provider) takeOutOnce(ctx context.Context, group string, ids []string, shrink bool) error {
	err := p.api.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(group), InstanceIds: ids, ShouldDecrementDesiredCapacity: aws.Bool(shrink),
	})
	if err != nil {
		err = fmt.Errorf("the Auto Scaling group %s: %w", group, err)
	}
	return unknownOr(err)
}

// hasTooMany reports whether more machines stay in a group than it wants.
func (p *Provider) hasTooMany(ctx context.Context, group string) (bool, error) {
	groups, err := asg.Find(ctx, p.api, group)
	if err != nil || len(groups) == 0 {
		return false, err
	}
	staying := int32(0)
	for _, in := range groups[0].Instances {
		if !strings.HasPrefix(string(in.LifecycleState), asg.Terminating) {
			staying++
		}
	}
	return staying > api.Deref(groups[0].DesiredCapacity), nil
}

// unknownOr returns the error of a call, which is errUnknown, too, if it was refused for the sake of a machine that AWS does not know.
func unknownOr(err error) error {
	if api.IsUnknownMachine(err) {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return err
}

var errUnknown = errors.New("one of the machines is not known")

// sift makes a call for all IDs, in batches. AWS refuses a batch for the sake of one of its
// machines: one that is not known, is protected from termination, or is one too many for the
// minimum of its group. The call is made again without those that the refusal names, or for
// each half if it names none, so that all others go. Machines that are not known are left out.
func sift(ids []string, most int, call func([]string) error) error {
	var errs []error
	for batch := range slices.Chunk(ids, most) {
		err := call(batch)
		switch named, rest := split(batch, err); {
		case errors.Is(err, errUnknown) && len(batch) == 1:
		case !isAboutOne(err) || len(batch) == 1:
			errs = append(errs, err)
		case len(named) > 0 && len(rest) > 0:
			errs = append(errs, sift(rest, most, call), sift(named, 1, call))
		case len(named) > 0 || !api.IsDenied(err): // a denial that names no machine is for all
			errs = append(errs, sift(batch, (len(batch)+1)/2, call))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// split returns the IDs that the text of an error names, and the others.
func split(ids []string, err error) (named, rest []string) {
	for _, id := range ids {
		if err != nil && strings.Contains(err.Error(), id) {
			named = append(named, id)
		} else {
			rest = append(rest, id)
		}
	}
	return named, rest
}

// isAboutOne reports whether a call may have been refused for the sake of one of its machines.
func isAboutOne(err error) bool {
	return errors.Is(err, errUnknown) || api.IsRefused(err)
}
