package discover

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
)

// describe reads all objects that the candidates refer to, with one call for each kind.
func (d *discovery) describe(ctx context.Context) error {
	if len(d.candidates) == 0 {
		return nil
	}
	var subnets, reservations []string
	for _, c := range d.candidates {
		subnets = append(subnets, c.subnets...)
		if c.reservation != "" {
			reservations = append(reservations, c.reservation)
		}
	}
	slices.Sort(subnets)
	if err := d.describeOffered(ctx, d.kinds(), slices.Compact(subnets)); err != nil {
		return err
	}
	if err := d.describeReservations(ctx, reservations); err != nil {
		return err
	}
	return d.describeDisturbances(ctx)
}

// describeOffered reads instance types, the zones that sell them, and subnets, unless they were read recently.
func (d *discovery) describeOffered(ctx context.Context, kinds, subnets []string) (err error) {
	now, known := d.clock.Now(), &d.facts.offered
	if slices.Equal(kinds, known.kinds) && slices.Equal(subnets, known.subnets) && now.Sub(known.at) < offeredFor {
		d.offered = *known
		return nil
	}
	d.offered = offered{kinds: kinds, subnets: subnets, at: now}
	if err := d.describeTypes(ctx, kinds); err != nil {
		return err
	}
	if err := d.describeSales(ctx, kinds); err != nil {
		return err
	}
	if d.where, err = asg.Subnets(ctx, d.api, subnets); err != nil {
		return err
	}
	*known = d.offered
	return nil
}

func (d *discovery) describeTypes(ctx context.Context, kinds []string) error {
	d.types = map[string]*ec2types.InstanceTypeInfo{}
	// One that does not exist would make the call fail if it were named; as a filter it
	// is only not found.
	for names := range slices.Chunk(kinds, api.MostNames) {
		list, err := d.api.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
			Filters: []ec2types.Filter{api.Filter("instance-type", names...)},
		})
		if err != nil {
			return err
		}
		for i := range list {
			d.types[string(list[i].InstanceType)] = &list[i]
		}
	}
	return nil
}

func (d *discovery) describeSales(ctx context.Context, kinds []string) error {
	d.sold = map[string]map[string]bool{}
	for names := range slices.Chunk(kinds, api.MostNames) {
		list, err := d.api.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{
			LocationType: ec2types.LocationTypeAvailabilityZone, Filters: []ec2types.Filter{api.Filter("instance-type", names...)},
		})
		if err != nil {
			return err
		}
		for _, o := range list {
			kind := string(o.InstanceType)
			if d.sold[kind] == nil {
				d.sold[kind] = map[string]bool{}
			}
			d.sold[kind][api.Deref(o.Location)] = true
		}
	}
	return nil
}

// describeReservations reads the reservations that launch templates target.
func (d *discovery) describeReservations(ctx context.Context, ids []string) error {
	d.reservations = map[string]ec2types.CapacityReservation{}
	if len(ids) == 0 {
		return nil
	}
	list, err := d.api.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{
		Filters: []ec2types.Filter{api.Filter("state", "active", "scheduled", "expired", "cancelled")},
	})
	if err != nil {
		return err
	}
	for _, r := range list {
		d.reservations[api.Deref(r.CapacityReservationId)] = r
	}
	return nil
}
