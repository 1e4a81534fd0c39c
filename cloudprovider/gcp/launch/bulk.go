package launch

import (
	"context"
	"errors"
	"slices"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// bulkInsert launches by a bulk insert with a minimum: the cloud makes all machines,
// or deletes those that it has made.
func (k *Launcher) bulkInsert(ctx context.Context, l *launch) ([]cloudprovider.Machine, error) {
	ours, op, err := k.beginBulk(ctx, l)
	if err == nil && op != nil {
		op, err = k.cloud.Finish(ctx, l.id.Project, op)
	}
	switch {
	case err == nil && op == nil:
		return ours, nil
	case errors.Is(err, api.ErrExists):
		// A call so long ago that the cloud has forgotten it made machines of these names.
		return ours, l.lost(len(ours))
	case errors.Is(err, cloudprovider.ErrUnderWay):
		return ours, err
	case cloudprovider.Refusal(err) != nil:
		k.inventory.Stale(l.id, l.names)
		// The cloud deletes the instances that it has created; those that still exist are listed.
		left, _, listErr := k.inventory.Beside(ctx, l.Group, l.names, []string{inventory.ZoneOf(l.Group)})
		return left, errors.Join(err, listErr)
	case err != nil:
		return ours, err
	case len(ours) < l.Count && k.since(op.GetEndTime()) > poll.Grace:
		return ours, l.lost(len(ours))
	}
	out := make([]cloudprovider.Machine, l.Count)
	for i, name := range l.names {
		out[i] = k.inventory.Made(l.LaunchRequest, name)
	}
	return out, nil
}

// beginBulk makes the call unless all machines are there, and returns those that are.
func (k *Launcher) beginBulk(ctx context.Context, l *launch) (ours []cloudprovider.Machine, op *computepb.Operation, err error) {
	release, err := k.turns.Take(ctx, l.id.String())
	if err != nil {
		return nil, nil, err
	}
	defer release()
	mig, err := k.read(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	ours, others, err := k.inventory.Beside(ctx, l.Group, l.names, zonesOf(l, mig))
	if err != nil || len(ours) == l.Count {
		return ours, nil, err
	}
	if err := l.within(mig, others, l.Count); err != nil {
		return ours, nil, err
	}
	t, err := k.templates.Of(ctx, l.id.Project, template.LinkOf(mig)) // which look has read
	if err != nil {
		return ours, nil, err
	}
	policy, err := k.policies.Of(ctx, l.LaunchRequest, t)
	if err != nil {
		return ours, nil, err
	}
	reserved, err := k.dense.In(ctx, l.LaunchRequest, t)
	if err != nil {
		return ours, nil, err
	}
	var affinity *computepb.ReservationAffinity
	if reserved != "" {
		affinity = &computepb.ReservationAffinity{Key: new(t.AffinityKey), Values: []string{reserved},
			ConsumeReservationType: new(computepb.ReservationAffinity_SPECIFIC_RESERVATION.String())}
	}
	op, err = k.insert(ctx, l, mig, policy, affinity)
	if err == nil {
		k.inventory.Freshen(l.id, l.names)
	}
	return ours, op, err
}

// insert makes the call, or makes it again, for machines with a placement policy, if it has a name, and with a reservation affinity in
// place of the template's, if there is one.
func (k *Launcher) insert(ctx context.Context, l *launch, mig *computepb.InstanceGroupManager, policy string,
	affinity *computepb.ReservationAffinity) (*computepb.Operation, error) {
	named := map[string]*computepb.BulkInsertInstanceResourcePerInstanceProperties{}
	for _, name := range l.names {
		named[name] = &computepb.BulkInsertInstanceResourcePerInstanceProperties{}
	}
	// What stands here is laid over the template.
	over := &computepb.InstanceProperties{
		Labels:      k.inventory.Labels(l.LaunchRequest),
		MachineType: new(l.spec.MachineType), ReservationAffinity: affinity,
	}
	if l.Group.Spec.CapacityType == v1alpha1.Spot {
		// Else what is left of a reclaimed machine would stay, with its disks.
		over.Scheduling = &computepb.Scheduling{InstanceTerminationAction: new("DELETE")}
	}
	// A call for another place is another call: the names of the machines let only one succeed.
	call := []string{"bulkInsert", l.Group.Name, l.Token}
	if policy != "" {
		over.ResourcePolicies = []string{policy}
		call = append(call, policy)
	}
	call = append(call, affinity.GetValues()...)
	return k.cloud.BulkInsert(ctx, l.id.Project, inventory.ZoneOf(l.Group), api.RequestID(call...), &computepb.BulkInsertInstanceResource{
		Count: new(int64(l.Count)), MinCount: new(int64(l.Count)),
		SourceInstanceTemplate: new(template.LinkOf(mig)), InstanceProperties: over, PerInstanceProperties: named,
	})
}

// zonesOf are the zones in which machines may stand beside a managed instance group, that of the launch first.
func zonesOf(l *launch, mig *computepb.InstanceGroupManager) []string {
	out := []string{inventory.ZoneOf(l.Group)}
	for _, z := range mig.GetDistributionPolicy().GetZones() {
		if zone := api.Base(z.GetZone()); !slices.Contains(out, zone) {
			out = append(out, zone)
		}
	}
	return out
}

// since is how long ago a time of the cloud was, by the clock of the cloud; 0 for an empty one.
func (k *Launcher) since(stamp string) time.Duration {
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return 0
	}
	return k.cloud.Now().Sub(t)
}
