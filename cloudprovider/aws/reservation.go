package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// leastHold is how long a reservation holds at least before it ends by itself, if
// Muster does not come back to it.
const leastHold = 5 * time.Minute

// launchReserved reserves all machines, launches them into the reservation, and lets
// go of it: the machines go on without. Each step looks at what the one before has
// left, so that it may be repeated.
func (p *Provider) launchReserved(ctx context.Context, l *launch) ([]string, error) {
	r, err := p.reserve(ctx, l)
	if err != nil {
		return nil, err
	}
	// Where it was made is where its machines can be.
	l.gathered = nil
	if r.PlacementGroup != "" {
		l.gathered = &placementGroup{name: r.PlacementGroup}
	}
	if r.State == ec2types.CapacityReservationStateActive {
		err = p.isElsewhere(ctx, l, r.Hold.Name)
	}
	var ids []string
	if err == nil {
		ids, err = p.runInto(ctx, l, r.Hold.Name)
	}
	switch refused := cloudprovider.Refusal(err); {
	case refused != nil && r.State != ec2types.CapacityReservationStateActive:
		return nil, &cloudprovider.Error{Class: v1alpha1.Stockout, Code: "ReservationEnded",
			Message: fmt.Sprintf("capacity reservation %s of %d machines is %s", r.Hold.Name, l.Count, r.State)}
	case refused != nil && refused.Code == unknownReservation:
		return nil, fmt.Errorf("capacity reservation %s, made a moment ago, is not known everywhere yet: %s", r.Hold.Name, refused.Message)
	}
	if cloudprovider.Refusal(err) != nil {
		// It is of no use any more; where this fails, it is taken back as a hold.
		return nil, errors.Join(err, p.cancel(ctx, r.Hold.Name))
	}
	if err != nil {
		return nil, err
	}
	return ids, p.release(ctx, []inventory.Reservation{*r})
}

// release lets go of the reservations of a launch whose machines are there: they would
// be paid for again when the machines end.
func (p *Provider) release(ctx context.Context, list []inventory.Reservation) error {
	for _, r := range list {
		if !r.Lasts() {
			continue
		}
		if err := p.cancel(ctx, r.Hold.Name); err != nil {
			return fmt.Errorf("the machines are there, their reservation is to go: %w", err)
		}
	}
	return nil
}

// reserve returns the launch's reservation once it can be used. One that has ended may have
// been used by an earlier call, whose machines lists do not know yet.
func (p *Provider) reserve(ctx context.Context, l *launch) (*inventory.Reservation, error) {
	var r *inventory.Reservation
	if n := len(l.reserved); n > 0 {
		r = &l.reserved[n-1]
	} else {
		in := &ec2.CreateCapacityReservationInput{
			ClientToken:  l.clientToken("reserve"),
			InstanceType: aws.String(l.spec.InstanceType), InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix,
			InstanceCount: aws.Int32(int32(l.Count)), AvailabilityZone: aws.String(l.Group.Spec.Zone),
			// Any machine that fits would eat an open one.
			InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
			EndDateType:           ec2types.EndDateTypeLimited,
			EndDate:               aws.Time(p.api.Time(p.config.Clock.Now()).Add(holdFor(l.Group)).Truncate(time.Second)),
			TagSpecifications:     inventory.TagSpecifications(p.inventory.TagsOf(l.LaunchRequest), ec2types.ResourceTypeCapacityReservation),
		}
		if l.gathered != nil {
			in.PlacementGroupArn = aws.String(l.gathered.arn)
		}
		out, err := p.api.CreateCapacityReservation(ctx, in)
		switch {
		case api.HasCode(err, "IdempotentParameterMismatch"):
			// An earlier call has made it, with another end; lists will show it.
			return nil, errors.New("CreateCapacityReservation: the reservation of an earlier call is not listed yet")
		case err != nil:
			return nil, err
		}
		r = inventory.ReservationOf(out.CapacityReservation)
		p.inventory.NoteReservation(l.spec.AutoScalingGroup,
			cloudprovider.Machine{Name: r.Hold.Name, Group: l.Group.Name, Launch: l.Token, Hold: true}, l.Count)
	}
	if r.State == ec2types.CapacityReservationStatePending {
		return nil, fmt.Errorf("capacity reservation %s of %d machines is still pending", r.Hold.Name, l.Count)
	}
	return r, nil
}

// holdFor is how long the reservation of a launch holds before it ends by itself.
func holdFor(g *v1alpha1.NodeGroup) time.Duration {
	return max(leastHold, nodegroups.JoinTimeout(g))
}

// unknownReservation is the code of calls about a reservation that does not exist.
const unknownReservation = "InvalidCapacityReservationId.NotFound"

// cancel ends a reservation. One that is over is no error, and that it cannot be ended
// is no refusal of the launch that it was for.
func (p *Provider) cancel(ctx context.Context, id string) error {
	err := p.api.CancelCapacityReservation(ctx, &ec2.CancelCapacityReservationInput{CapacityReservationId: aws.String(id)})
	if api.IsDenied(err) {
		// What has gone has lost its tags, without which the policy grants nothing.
		list, listing := p.inventory.Reservations(ctx)
		if listing == nil && !slices.ContainsFunc(list, func(r inventory.Reservation) bool { return r.Hold.Name == id }) {
			err = nil
		}
	}
	if err != nil && !api.HasCode(err, unknownReservation, "InvalidCapacityReservationState") {
		return fmt.Errorf("end capacity reservation %s: %w", id, err)
	}
	p.inventory.Forget(id)
	return nil
}
