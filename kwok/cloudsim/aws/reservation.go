package aws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func (f *Front) reservation(id string) *cloudsim.Reservation {
	return find(f.world.Reservations(), func(r *cloudsim.Reservation) bool { return r.ID == id })
}

// createCapacityReservation supports targeted reservations that start at once.
func (f *Front) createCapacityReservation(p *params) []element {
	key := cloudsim.PoolKey{
		Cloud: v1alpha1.ProviderAWS, Type: p.text("InstanceType"), Zone: p.text("AvailabilityZone"), CapacityType: v1alpha1.OnDemand,
	}
	count, tags := p.number("InstanceCount"), p.tagSpecifications("TagSpecifications")["capacity-reservation"]
	if platform := p.text("InstancePlatform"); platform != "Linux/UNIX" {
		panic(invalid("InstancePlatform is '%s': only Linux/UNIX is simulated", platform))
	}
	if match := p.text("InstanceMatchCriteria"); match != "targeted" {
		panic(invalid("InstanceMatchCriteria is '%s': only targeted is simulated", match))
	}
	var ends time.Time
	if p.text("EndDateType") == "limited" {
		var err error
		if ends, err = time.Parse(time.RFC3339, p.text("EndDate")); err != nil || !ends.After(f.world.Now()) {
			panic(invalid("EndDate is '%s': it must be a time to come", p.values.Get("EndDate")))
		}
	}
	if count < 1 || count > 1000 {
		panic(invalid("InstanceCount is %d: it must be between 1 and 1000", count))
	}
	o := cloudsim.Order{Pool: key, Count: count, Tags: tags}
	if arn := p.text("PlacementGroupArn"); arn != "" {
		_, o.Together, _ = strings.Cut(arn, ":placement-group/")
		if refused := f.mayBePlaced(o.Together, key.Type, key.Zone); refused != nil {
			panic(refused)
		}
	}
	p.checkRead()
	if refused := f.unreachable(key.Zone); refused != nil {
		panic(refused)
	}
	if t := f.config.typeOf(key.Type); t != nil && !slices.Contains(t.soldAs(), onDemandClass) {
		panic(unsold(t, onDemandClass))
	}
	r, refused := f.world.Reserve(fmt.Sprintf("cr-%017x", len(f.world.Reservations())+1), o, ends)
	if refused != nil {
		panic(refusal(refused, v1alpha1.OnDemand))
	}
	return []element{el("capacityReservation", f.describeReservation(r))}
}

func (f *Front) describeReservation(r cloudsim.Reservation) []element {
	filled := 0
	for _, in := range f.world.Instances(true) {
		if in.Reservation == r.ID && in.Phase != cloudsim.Terminated {
			filled++
		}
	}
	state, free := f.stateOfReservation(r), r.Count-filled
	if state != "active" && state != "pending" {
		free = 0
	}
	out := []element{
		el("capacityReservationId", r.ID), el("instanceType", r.Pool.Type), el("availabilityZone", r.Pool.Zone),
		el("state", state), el("totalInstanceCount", r.Count), el("availableInstanceCount", free),
		el("instanceMatchCriteria", "targeted"), el("createDate", r.MadeAt), el("tagSet", tagSet(r.Tags)),
	}
	if g := f.placementGroups[r.Together]; g != nil {
		out = append(out, el("placementGroupArn", f.arnOf(g)))
	}
	if !r.EndsAt.IsZero() {
		out = append(out, el("endDateType", "limited"), el("endDate", r.EndsAt))
	}
	if b := f.config.block(r.ID); b != nil {
		out = append(out, el("reservationType", "capacity-block"), el("startDate", r.MadeAt.Add(b.From.Duration)))
	}
	return out
}

// blockEnd is how long before the end of a Capacity Block its machines are terminated.
const blockEnd = 30 * time.Minute

func (f *Front) stateOfReservation(r cloudsim.Reservation) string {
	age, block := f.world.Now().Sub(r.MadeAt), f.config.block(r.ID)
	switch {
	case !r.EndedAt.IsZero() && r.EndedAt.Equal(r.EndsAt):
		return "expired"
	case !r.EndedAt.IsZero():
		return "cancelled"
	case block != nil && age < block.From.Duration:
		return "scheduled"
	case block == nil && age < f.config.ReservationDelay.Duration:
		return "pending"
	default:
		return "active"
	}
}

// buyBlocks makes the reservations of the Capacity Blocks.
func (f *Front) buyBlocks() error {
	for _, b := range f.config.Blocks {
		key := cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: b.Type, Zone: b.Zone, CapacityType: v1alpha1.Reserved}
		if _, refused := f.world.Reserve(b.ID, cloudsim.Order{Pool: key, Count: b.Count}, f.world.Now().Add(b.Until.Duration)); refused != nil {
			return fmt.Errorf("buy Capacity Block %s: %s", b.ID, refused.Message)
		}
	}
	return nil
}

func (f *Front) describeCapacityReservations(p *params) []element {
	want := wildcards(p.filters("Filter", "Value", "state", "tag-key", "tag:*"))
	names := p.texts("CapacityReservationId")
	var found []cloudsim.Reservation
	for _, id := range names {
		if f.reservation(id) == nil {
			panic(&cloudsim.Error{Code: "InvalidCapacityReservationId.NotFound",
				Message: fmt.Sprintf("The capacity reservation '%s' does not exist", id)})
		}
	}
	for _, r := range f.world.Reservations() {
		if !r.EndedAt.IsZero() && f.world.Now().Sub(r.EndedAt) > listed {
			continue
		}
		e := el("", f.describeReservation(r))
		state := find(e.kids, func(k *element) bool { return k.name == "state" }).text
		if (len(names) == 0 || find(names, func(id *string) bool { return *id == r.ID }) != nil) &&
			want.match(map[string]string{"state": state}, r.Tags) && f.world.Visible(r.MadeAt) {
			found = append(found, r)
		}
	}
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{el("capacityReservationSet", each("item", found, f.describeReservation)), el("nextToken", next)}
}

func (f *Front) cancelCapacityReservation(p *params) []element {
	id := p.text("CapacityReservationId")
	p.checkRead()
	if !f.world.EndReservation(id) {
		panic(&cloudsim.Error{Code: "InvalidCapacityReservationId.NotFound",
			Message: fmt.Sprintf("The capacity reservation '%s' does not exist", id)})
	}
	return []element{el("return", "true")}
}
