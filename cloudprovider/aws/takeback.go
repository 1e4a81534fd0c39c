package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// Limits of what one call takes.
const (
	mostTerminated = 500
	mostTakenOut   = 100
	mostOwners     = 50
)

// TakeBack implements cloudprovider.Taker. The kind of a name follows from its form, and Auto
// Scaling tells the owner of a machine, so it works for deleted groups, too.
func (p *Provider) TakeBack(ctx context.Context, _ string, names []string) error {
	var ids []string
	var errs []error
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "i-"):
			ids = append(ids, name)
		case strings.HasPrefix(name, "cr-"):
			errs = append(errs, p.cancel(ctx, name))
		case strings.HasPrefix(name, holdPrefix):
			errs = append(errs, p.takeBackIntent(ctx, name))
		}
	}
	slices.Sort(ids)
	owners, err := p.owners(ctx, ids)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	byOwner := map[string][]string{}
	for _, id := range ids {
		byOwner[owners[id]] = append(byOwner[owners[id]], id)
	}
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		if owner == "" {
			errs = append(errs, p.terminate(ctx, byOwner[owner]))
		} else {
			errs = append(errs, p.takeOut(ctx, owner, byOwner[owner]))
		}
	}
	p.Note() // what was taken shows in a list soon
	return errors.Join(errs...)
}

// owners are the Auto Scaling groups of those of the machines that have one, by ID. A
// group that owns a machine would replace it, if it were only terminated.
func (p *Provider) owners(ctx context.Context, ids []string) (map[string]string, error) {
	out := map[string]string{}
	for batch := range slices.Chunk(ids, mostOwners) {
		pages := autoscaling.NewDescribeAutoScalingInstancesPaginator(p.autoscaling,
			&autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: batch})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("DescribeAutoScalingInstances: %w", refusal(err))
			}
			for _, in := range page.AutoScalingInstances {
				out[deref(in.InstanceId)] = deref(in.AutoScalingGroupName)
			}
		}
	}
	return out, nil
}

// terminate ends machines that no group owns.
func (p *Provider) terminate(ctx context.Context, ids []string) error {
	return sift(ids, mostTerminated, func(ids []string) error {
		_, err := p.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
		if err == nil || !isUnknownMachine(err) {
			return wrapped("TerminateInstances", err)
		}
		if _, fresh := p.fresh()[ids[0]]; fresh && len(ids) == 1 {
			return fmt.Errorf("TerminateInstances: machine %s was made a moment ago and is not known yet", ids[0])
		}
		return errUnknown
	})
}

// takeOut ends machines of a group, whose desired size falls by exactly them.
func (p *Provider) takeOut(ctx context.Context, group string, ids []string) error {
	return sift(ids, mostTakenOut, func(ids []string) error {
		_, err := p.autoscaling.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(group), InstanceIds: ids, ShouldDecrementDesiredCapacity: aws.Bool(true),
		})
		if err == nil || !isUnknownMachine(err) {
			return wrapped("TerminateInstanceInAutoScalingGroup "+group, err)
		}
		return errUnknown
	})
}

func wrapped(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", call, refusal(err))
}

var errUnknown = errors.New("one of the machines is not known")

// sift makes a call for all IDs, in batches. Where one that is not known makes a batch
// fail, it makes the call for each half, down to that one, which is left out.
func sift(ids []string, most int, call func([]string) error) error {
	var errs []error
	for batch := range slices.Chunk(ids, most) {
		err := call(batch)
		if errors.Is(err, errUnknown) {
			err = nil
			if len(batch) > 1 {
				err = sift(batch, (len(batch)+1)/2, call)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
