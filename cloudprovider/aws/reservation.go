package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// leastHold is how long a reservation holds at least before it ends by itself, if
// Muster does not come back to it.
const leastHold = 5 * time.Minute

// reservation is a capacity reservation as EC2 lists it.
type reservation struct {
	// hold is how it is shown to Muster.
	hold  cloudprovider.Machine
	state ec2types.CapacityReservationState
	// gathered is the placement group that it is in; nil for none.
	gathered *placementGroup
	// free is how many of its places no machine fills. They are what costs.
	free int
}

// waits says that it costs something or will.
func (r *reservation) waits() bool {
	switch r.state {
	case ec2types.CapacityReservationStateActive:
		return r.free > 0
	case ec2types.CapacityReservationStatePending:
		return true
	default:
		return false
	}
}

// reservations lists those of Muster that match the filters, by ID.
func (p *Provider) reservations(ctx context.Context, filters ...ec2types.Filter) (out []reservation, err error) {
	list, err := p.api.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{Filters: append(p.ours(), filters...)})
	if err != nil {
		return nil, err
	}
	for i := range list {
		out = append(out, *listedReservation(&list[i]))
	}
	slices.SortFunc(out, func(a, b reservation) int { return strings.Compare(a.hold.Name, b.hold.Name) })
	return out, nil
}

func listedReservation(r *ec2types.CapacityReservation) *reservation {
	tags := tagMap(r.Tags)
	id := deref(r.CapacityReservationId)
	var gathered *placementGroup
	if _, name, ok := strings.Cut(deref(r.PlacementGroupArn), ":placement-group/"); ok {
		gathered = &placementGroup{name: name, arn: deref(r.PlacementGroupArn)}
	}
	return &reservation{
		hold: cloudprovider.Machine{
			Name: id, Group: tags[nodeGroupTag], Launch: tags[launchTag], Hold: true,
			ProviderID: providerID(deref(r.AvailabilityZone), id),
		},
		state: r.State, gathered: gathered, free: int(deref(r.AvailableInstanceCount)),
	}
}

// launchReserved reserves all machines, launches them into the reservation, and lets
// go of it: the machines go on without. Each step looks at what the one before has
// left, so that it may be repeated.
func (p *Provider) launchReserved(ctx context.Context, l *launch) ([]string, error) {
	r, err := p.reserve(ctx, l)
	if err != nil {
		return nil, err
	}
	// Where it was made is where its machines can be.
	l.gathered = r.gathered
	if r.state == ec2types.CapacityReservationStateActive {
		err = p.isElsewhere(ctx, l, r.hold.Name)
	}
	var ids []string
	if err == nil {
		ids, err = p.runInto(ctx, l, r.hold.Name)
	}
	switch refused := cloudprovider.Refusal(err); {
	case refused != nil && r.state != ec2types.CapacityReservationStateActive:
		return nil, &cloudprovider.Error{Class: v1alpha1.Stockout, Code: "ReservationEnded",
			Message: fmt.Sprintf("capacity reservation %s of %d machines is %s", r.hold.Name, l.Count, r.state)}
	case refused != nil && refused.Code == unknownReservation:
		return nil, fmt.Errorf("capacity reservation %s, made a moment ago, is not known everywhere yet: %s", r.hold.Name, refused.Message)
	}
	if cloudprovider.Refusal(err) != nil {
		// It is of no use any more; where this fails, it is taken back as a hold.
		return nil, errors.Join(err, p.cancel(ctx, r.hold.Name))
	}
	if err != nil {
		return nil, err
	}
	return ids, p.release(ctx, []reservation{*r})
}

// release lets go of the reservations of a launch whose machines are there: they would
// be paid for again when the machines end.
func (p *Provider) release(ctx context.Context, list []reservation) error {
	for _, r := range list {
		if r.state != ec2types.CapacityReservationStateActive && r.state != ec2types.CapacityReservationStatePending {
			continue
		}
		if err := p.cancel(ctx, r.hold.Name); err != nil {
			return fmt.Errorf("the machines are there, their reservation is to go: %w", err)
		}
	}
	return nil
}

// reserve returns the launch's reservation once it can be used. One that has ended may have
// been used by an earlier call, whose machines lists do not know yet.
func (p *Provider) reserve(ctx context.Context, l *launch) (*reservation, error) {
	var r *reservation
	if n := len(l.reserved); n > 0 {
		r = &l.reserved[n-1]
	} else {
		in := &ec2.CreateCapacityReservationInput{
			ClientToken:  l.clientToken("reserve"),
			InstanceType: aws.String(l.spec.InstanceType), InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix,
			InstanceCount: aws.Int32(int32(l.Count)), AvailabilityZone: aws.String(l.Group.Spec.Zone),
			// Any machine that fits would eat an open one.
			InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
			EndDateType:           ec2types.EndDateTypeLimited, EndDate: aws.Time(p.now().Add(holdFor(l.Group)).Truncate(time.Second)),
			TagSpecifications: specification(p.tagsOf(l), ec2types.ResourceTypeCapacityReservation),
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
		r = listedReservation(out.CapacityReservation)
		p.reserved(l, r)
	}
	if r.state == ec2types.CapacityReservationStatePending {
		return nil, fmt.Errorf("capacity reservation %s of %d machines is still pending", r.hold.Name, l.Count)
	}
	return r, nil
}

// reserved remembers a reservation that a call has returned: its places count against MaxSize
// before lists know of it.
func (p *Provider) reserved(l *launch, r *reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made[r.hold.Name] = made{
		Machine:          cloudprovider.Machine{Name: r.hold.Name, Group: l.Group.Name, Launch: l.Token, Hold: true},
		autoScalingGroup: l.spec.AutoScalingGroup, places: l.Count, at: p.config.Clock.Now(),
	}
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
		list, listing := p.reservations(ctx)
		if listing == nil && !slices.ContainsFunc(list, func(r reservation) bool { return r.hold.Name == id }) {
			err = nil
		}
	}
	if err != nil && !api.HasCode(err, unknownReservation, "InvalidCapacityReservationState") {
		return fmt.Errorf("end capacity reservation %s: %w", id, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.made, id)
	return nil
}
