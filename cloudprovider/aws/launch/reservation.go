package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// leastHold is how long a reservation holds at least before it ends by itself, if
// Muster does not come back to it.
const leastHold = 5 * time.Minute

// launchReserved reserves all machines, launches them into the reservation, and lets
// go of it: the machines go on without. Each step reads what the one before has
// left, so that it may be repeated.
func (r *Launcher) launchReserved(ctx context.Context, l *launch) ([]string, error) {
	made, err := r.reserve(ctx, l)
	if err != nil {
		return nil, err
	}
	// Where it was made is where its machines can be.
	l.gathered = nil
	if made.PlacementGroup != "" {
		l.gathered = &placement.Group{Name: made.PlacementGroup}
	}
	if made.State == ec2types.CapacityReservationStateActive {
		err = r.placements.CheckDomain(ctx, l.LaunchRequest, made.Hold.Name)
	}
	var ids []string
	if err == nil {
		ids, err = r.runInto(ctx, l, made.Hold.Name)
	}
	switch refused := cloudprovider.Refusal(err); {
	case refused != nil && made.State != ec2types.CapacityReservationStateActive:
		return nil, &cloudprovider.Error{Class: v1alpha1.Stockout, Code: "ReservationEnded",
			Message: fmt.Sprintf("capacity reservation %s of %d machines is %s", made.Hold.Name, l.Count, made.State)}
	case refused != nil && api.IsEndedReservation(err):
		// It has ended between the two calls: Muster cancels it where its request ends meanwhile. That is no fault of the group.
		return nil, fmt.Errorf("capacity reservation %s, made for this launch, is not known everywhere yet, or has ended meanwhile: %s",
			made.Hold.Name, refused.Message)
	}
	if cloudprovider.Refusal(err) != nil {
		// It is of no use any more; if this fails, it is terminated as a hold.
		return nil, errors.Join(err, r.terminator.Reservation(ctx, made.Hold.Name))
	}
	if err != nil {
		return nil, err
	}
	return ids, r.release(ctx, []inventory.Reservation{*made})
}

// release cancels the reservations of a launch whose machines exist. Otherwise they would be billed again once the machines end.
func (r *Launcher) release(ctx context.Context, list []inventory.Reservation) error {
	for _, made := range list {
		if !made.Lasts() {
			continue
		}
		if err := r.terminator.Reservation(ctx, made.Hold.Name); err != nil {
			return fmt.Errorf("the machines are there, their reservation is to go: %w", err)
		}
	}
	return nil
}

// reserve returns the launch's reservation once it can be used. One that has ended may have
// been used by an earlier call, whose machines lists do not know yet.
func (r *Launcher) reserve(ctx context.Context, l *launch) (*inventory.Reservation, error) {
	var made *inventory.Reservation
	if n := len(l.reserved); n > 0 {
		made = &l.reserved[n-1]
	} else {
		in := &ec2.CreateCapacityReservationInput{
			ClientToken:  l.clientToken("reserve"),
			InstanceType: aws.String(l.spec.InstanceType), InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix,
			InstanceCount: aws.Int32(int32(l.Count)), AvailabilityZone: aws.String(l.Group.Spec.Zone),
			// Any machine that fits would eat an open one.
			InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
			EndDateType:           ec2types.EndDateTypeLimited, EndDate: aws.Time(r.now().Add(holdFor(l.Group)).Truncate(time.Second)),
			TagSpecifications: inventory.TagSpecifications(r.inventory.TagsOf(l.LaunchRequest), ec2types.ResourceTypeCapacityReservation),
		}
		if l.gathered != nil {
			in.PlacementGroupArn = aws.String(l.gathered.ARN)
		}
		out, err := r.api.CreateCapacityReservation(ctx, in)
		switch {
		case api.HasCode(err, "IdempotentParameterMismatch"):
			// An earlier call has made it, with another end; lists will show it.
			return nil, errors.New("CreateCapacityReservation: the reservation of an earlier call is not listed yet")
		case err != nil:
			return nil, err
		}
		made = inventory.ReservationOf(out.CapacityReservation)
		r.inventory.NoteReservation(l.spec.AutoScalingGroup,
			cloudprovider.Machine{Name: made.Hold.Name, Group: l.Group.Name, Launch: l.Token, Hold: true}, l.Count)
	}
	if made.State == ec2types.CapacityReservationStatePending {
		return nil, fmt.Errorf("capacity reservation %s of %d machines is still pending", made.Hold.Name, l.Count)
	}
	return made, nil
}

// holdFor is how long the reservation of a launch holds before it ends by itself.
func holdFor(g *v1alpha1.NodeGroup) time.Duration {
	return max(leastHold, nodegroups.JoinTimeout(g))
}
