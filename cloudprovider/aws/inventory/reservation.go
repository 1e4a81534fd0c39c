package inventory

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
)

// Reservation is a capacity reservation as EC2 lists it.
type Reservation struct {
	// Hold is how it is shown to Muster.
	Hold  cloudprovider.Machine
	State ec2types.CapacityReservationState
	// PlacementGroup is the name of the one that it is in; empty for none.
	PlacementGroup string
	// Free is how many of its places no machine fills. They are what costs.
	Free int
}

// Lasts reports whether it holds places, or will.
func (r *Reservation) Lasts() bool {
	return r.State == ec2types.CapacityReservationStateActive || r.State == ec2types.CapacityReservationStatePending
}

// Waits reports whether it costs something or will.
func (r *Reservation) Waits() bool {
	return r.State == ec2types.CapacityReservationStatePending || r.State == ec2types.CapacityReservationStateActive && r.Free > 0
}

// Reservations lists Muster's reservations that match the filters, in the order of their IDs.
func (v *Inventory) Reservations(ctx context.Context, filters ...ec2types.Filter) (out []Reservation, err error) {
	list, err := v.api.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{Filters: append(v.Ours(), filters...)})
	if err != nil {
		return nil, err
	}
	for i := range list {
		out = append(out, *ReservationOf(&list[i]))
	}
	slices.SortFunc(out, func(a, b Reservation) int { return strings.Compare(a.Hold.Name, b.Hold.Name) })
	return out, nil
}

// ReservationOf reads what an answer says of one.
func ReservationOf(r *ec2types.CapacityReservation) *Reservation {
	tags := tagMap(r.Tags)
	id := api.Deref(r.CapacityReservationId)
	_, placementGroup, _ := strings.Cut(api.Deref(r.PlacementGroupArn), ":placement-group/")
	return &Reservation{
		Hold: cloudprovider.Machine{
			Name: id, Group: tags[NodeGroupTag], Launch: tags[LaunchTag], Hold: true,
			ProviderID: providerID(api.Deref(r.AvailabilityZone), id),
		},
		State: r.State, PlacementGroup: placementGroup, Free: int(api.Deref(r.AvailableInstanceCount)),
	}
}
