// Package terminate ends machines and reservations. A machine is terminated in the way that its owner requires: one that an Auto Scaling
// group has is taken out of the group, which would replace it otherwise, and one beside its group is terminated.
package terminate

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
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Limits of what one call takes.
const (
	mostTerminated = 500
	mostTakenOut   = 100
	mostOwners     = 50
)

// Terminator terminates machines and cancels reservations.
type Terminator struct {
	api       *api.Client
	inventory *inventory.Inventory
}

// New returns a Terminator.
func New(client *api.Client, inv *inventory.Inventory) *Terminator { return &Terminator{client, inv} }

// Machines terminates machines, in their groups or beside them. A machine with Muster's tags and no tag of a group stands beside it, and
// is terminated without Auto Scaling.
func (t *Terminator) Machines(ctx context.Context, ids []string) error {
	slices.Sort(ids)
	var beside, others []string
	for batch := range slices.Chunk(ids, api.MostNames) {
		shown, err := t.inventory.Instances(ctx, api.Filter("instance-id", batch...))
		if err != nil {
			log.FromContext(ctx).Error(err, "Machines that are to go cannot be listed; Auto Scaling reports which belong to a group")
		}
		for _, id := range batch {
			if in := shown[id]; in != nil && in.Launch != "" && in.Tags[inventory.OwnerTag] == "" {
				beside = append(beside, id)
			} else {
				others = append(others, id)
			}
		}
	}
	errs := []error{t.terminate(ctx, beside)}
	owners, err := t.owners(ctx, others)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, t.terminateIn(ctx, owners, others))...)
}

// terminateIn terminates machines, each in the way that its owner requires.
func (t *Terminator) terminateIn(ctx context.Context, owners map[string]owner, ids []string) error {
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
			errs = append(errs, t.terminate(ctx, ids))
		case of.state == asg.Retained:
			errs = append(errs, t.takeOut(ctx, of.group, ids, !shrink))
		case of.state != asg.Terminating:
			errs = append(errs, t.takeOut(ctx, of.group, ids, shrink))
		}
	}
	return errors.Join(errs...)
}

// owner of a machine is its Auto Scaling group, if it has one.
type owner struct {
	group string
	// state is terminating for machines that the group is terminating already: a lifecycle hook may
	// hold them for hours, and to take them out once more would shrink the group twice. It is
	// retained for those that the group keeps, by its lifecycle policy, until it is
	// requested to terminate them again, and that it counts no more.
	state string
}

// owners are those of the machines that have one, by ID. A group that owns a machine would
// replace it, if it were only terminated.
func (t *Terminator) owners(ctx context.Context, ids []string) (map[string]owner, error) {
	out := map[string]owner{}
	for batch := range slices.Chunk(ids, mostOwners) {
		list, err := t.api.DescribeAutoScalingInstances(ctx, batch)
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
func (t *Terminator) terminate(ctx context.Context, ids []string) error {
	return sift(ids, mostTerminated, func(ids []string) error {
		err := t.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
		if len(ids) > 1 {
			return unknownOr(err)
		}
		fresh := t.inventory.IsFresh(ids[0])
		switch {
		case fresh && api.IsUnknownMachine(err):
			return fmt.Errorf("TerminateInstances: machine %s was made a moment ago and is not known yet", ids[0])
		case !fresh && api.IsDenied(err):
			// What has gone has lost its tags, without which the policy grants nothing.
			found, listing := t.inventory.Instances(ctx, api.Filter("instance-id", ids...))
			if listing == nil && len(found) == 0 {
				return errUnknown
			}
		}
		return unknownOr(err)
	})
}

// shrink has the desired size of a group fall by exactly the machines that are taken out.
const shrink = true

// OutOf terminates machines of the group and lowers its desired size by exactly their number.
func (t *Terminator) OutOf(ctx context.Context, group string, ids []string) error {
	return t.takeOut(ctx, group, ids, shrink)
}

// takeOut ends machines of a group.
func (t *Terminator) takeOut(ctx context.Context, group string, ids []string, shrink bool) error {
	return sift(ids, mostTakenOut, func(ids []string) error {
		err := t.takeOutOnce(ctx, group, ids, shrink)
		if cause := cloudprovider.CauseOf(err); !shrink || cause == nil || cause.Class != v1alpha1.Config {
			return err
		}
		// A try whose reply was lost may have taken some out already: AWS would name them one at a time.
		owners, asking := t.owners(ctx, ids)
		if asking == nil && slices.ContainsFunc(ids, func(id string) bool { return owners[id] != owner{group: group} }) {
			return t.terminateIn(ctx, owners, ids)
		}
		if len(ids) > 1 {
			return err
		}
		// Where calls take long, a machine may be taken out by two of them, and counted twice: the group then wants fewer than it
		// has, down to its minimum, below which it refuses to shrink.
		if over, asking := t.hasTooMany(ctx, group); asking != nil || !over {
			return err
		}
		return t.takeOutOnce(ctx, group, ids, !shrink)
	})
}

func (t *Terminator) takeOutOnce(ctx context.Context, group string, ids []string, shrink bool) error {
	err := t.api.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(group), InstanceIds: ids, ShouldDecrementDesiredCapacity: aws.Bool(shrink),
	})
	if err != nil {
		err = fmt.Errorf("the Auto Scaling group %s: %w", group, err)
	}
	return unknownOr(err)
}

// hasTooMany reports whether more machines stay in a group than it wants.
func (t *Terminator) hasTooMany(ctx context.Context, group string) (bool, error) {
	groups, err := asg.Find(ctx, t.api, group)
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

// sift makes a call for all IDs, see calls.Sift. AWS refuses a batch for the sake of a machine that is not known, is protected from
// termination, or is one too many for the minimum of its group. Those that the refusal names are tried by themselves, and machines that
// are not known are left out.
func sift(ids []string, most int, call func([]string) error) error {
	return calls.Sift(ids, most, func(batch []string) error {
		err := call(batch)
		if len(batch) == 1 && errors.Is(err, errUnknown) {
			return nil
		}
		return err
	}, parts)
}

// parts of a batch that a call has refused.
func parts(batch []string, err error) [][]string {
	named, rest := split(batch, err)
	switch {
	case !isAboutOne(err) || len(named) == 0 && api.IsDenied(err): // a denial that names no machine is for all
		return nil
	case len(named) == 0 || len(rest) == 0:
		return calls.Halves(batch)
	default:
		return append([][]string{rest}, slices.Collect(slices.Chunk(named, 1))...)
	}
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
	return errors.Is(err, errUnknown) || cloudprovider.IsRefused(err)
}

// Reservation ends a reservation. One that is over is no error, and that it cannot be ended
// is no refusal of the launch that it was for.
func (t *Terminator) Reservation(ctx context.Context, id string) error {
	err := t.api.CancelCapacityReservation(ctx, &ec2.CancelCapacityReservationInput{CapacityReservationId: aws.String(id)})
	if api.IsDenied(err) {
		// What has gone has lost its tags, without which the policy grants nothing.
		list, listing := t.inventory.Reservations(ctx)
		if listing == nil && !slices.ContainsFunc(list, func(r inventory.Reservation) bool { return r.Hold.Name == id }) {
			err = nil
		}
	}
	if err != nil && !api.IsEndedReservation(err) {
		return fmt.Errorf("end capacity reservation %s: %w", id, err)
	}
	t.inventory.Forget(id)
	return nil
}
