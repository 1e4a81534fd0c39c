package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// bulkInsert launches by a bulk insert with a minimum: the cloud makes all machines,
// or deletes those that it has made.
func (p *Provider) bulkInsert(ctx context.Context, l *launch) ([]cloudprovider.Machine, error) {
	ours, op, err := p.beginBulk(ctx, l)
	if err == nil && op != nil {
		op, err = p.cloud.Finish(ctx, l.id.Project, op)
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
		p.stale(l.id, l.names)
		// The cloud deletes what it has made; lists tell what is not gone yet.
		left, _, listErr := p.bulkMachines(ctx, l, []string{l.zone()})
		return left, errors.Join(err, listErr)
	case err != nil:
		return ours, err
	case len(ours) < l.Count && p.since(op.GetEndTime()) > poll.Grace:
		return ours, l.lost(len(ours))
	}
	out := make([]cloudprovider.Machine, l.Count)
	for i, name := range l.names {
		out[i] = p.machine(l, name, cloudprovider.Booting)
	}
	return out, nil
}

// beginBulk makes the call unless all machines are there, and returns those that are.
func (p *Provider) beginBulk(ctx context.Context, l *launch) (ours []cloudprovider.Machine, op *computepb.Operation, err error) {
	release, err := p.turns.Take(ctx, l.id.String())
	if err != nil {
		return nil, nil, err
	}
	defer release()
	mig, err := p.look(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	ours, others, err := p.bulkMachines(ctx, l, zonesOf(l, mig))
	if err != nil || len(ours) == l.Count {
		return ours, nil, err
	}
	if err := l.within(mig, others, l.Count); err != nil {
		return ours, nil, err
	}
	t, err := p.template(ctx, l.id.Project, templateOf(mig)) // which look has read
	if err != nil {
		return ours, nil, err
	}
	policy, err := p.policies.of(ctx, l, t)
	if err != nil {
		return ours, nil, err
	}
	reserved, err := p.dense.in(ctx, l, t)
	if err != nil {
		return ours, nil, err
	}
	var affinity *computepb.ReservationAffinity
	if reserved != "" {
		affinity = &computepb.ReservationAffinity{Key: new(t.affinityKey), Values: []string{reserved},
			ConsumeReservationType: new(computepb.ReservationAffinity_SPECIFIC_RESERVATION.String())}
	}
	op, err = p.insert(ctx, l, mig, policy, affinity)
	if err == nil {
		p.freshen(l.id, l.names)
	}
	return ours, op, err
}

// insert makes the call, or makes it again, for machines with a placement policy, if it has a name, and with a reservation affinity in
// place of the template's, if there is one.
func (p *Provider) insert(ctx context.Context, l *launch, mig *computepb.InstanceGroupManager, policy string,
	affinity *computepb.ReservationAffinity) (*computepb.Operation, error) {
	named := map[string]*computepb.BulkInsertInstanceResourcePerInstanceProperties{}
	for _, name := range l.names {
		named[name] = &computepb.BulkInsertInstanceResourcePerInstanceProperties{}
	}
	// What stands here is laid over the template.
	over := &computepb.InstanceProperties{
		Labels: map[string]string{
			labelCluster: p.Cluster,
			labelUID:     p.ClusterUID,
			labelLaunch:  labelValue(l.Token),
			labelRequest: labelValue(l.Request),
			labelGroup:   labelValue(l.Group.Name),
			labelManager: managerLabel(l.id),
		},
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
	return p.cloud.BulkInsert(ctx, l.id.Project, l.zone(), api.RequestID(call...), &computepb.BulkInsertInstanceResource{
		Count: new(int64(l.Count)), MinCount: new(int64(l.Count)),
		SourceInstanceTemplate: new(templateOf(mig)), InstanceProperties: over, PerInstanceProperties: named,
	})
}

func managerLabel(id api.Manager) string { return labelValue(id.Location + "_" + id.Name) }

// templateOf a managed instance group: of its first version, where it has several.
func templateOf(mig *computepb.InstanceGroupManager) string {
	if t := mig.GetInstanceTemplate(); t != "" || len(mig.GetVersions()) == 0 {
		return t
	}
	return mig.GetVersions()[0].GetInstanceTemplate()
}

// bulkMachines are those of the launch that exist, and how many others there are beside the managed instance group, in all of its
// offerings. Each zone is listed by itself: of one that is away, other than that of the launch, the last known state counts.
func (p *Provider) bulkMachines(ctx context.Context, l *launch, zones []string) (ours []cloudprovider.Machine, others int, err error) {
	names, listed := map[string]bool{}, map[string]bool{}
	for _, name := range l.names {
		names[name] = true
	}
	filter := p.names.filterOf(slices.DeleteFunc(p.known(), func(g *v1alpha1.NodeGroup) bool { return managerOf(g) != l.id }))
	for _, zone := range zones {
		found, err := p.cloud.InstancesOf(ctx, l.id.Project, zone, filter)
		if last, known := p.lastBeside(l.id, zone); err != nil && zone != l.zone() && known {
			others += last
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("listing the machines of zone %s: %w", zone, err)
		}
		for _, in := range found {
			listed[in.GetName()] = true
			switch m := p.bulkMachine(l.id.Project, in); {
			case !p.isBeside(l.id, in):
			case names[m.Name]:
				m.Group = l.Group.Name
				ours = append(ours, m)
			case m.State != cloudprovider.Terminated:
				others++
			}
		}
	}
	return ours, others + p.unlisted(l.id, listed, names), nil
}

// zonesOf are the zones in which machines may stand beside a managed instance group, that of the launch first.
func zonesOf(l *launch, mig *computepb.InstanceGroupManager) []string {
	out := []string{l.zone()}
	for _, z := range mig.GetDistributionPolicy().GetZones() {
		if zone := api.Base(z.GetZone()); !slices.Contains(out, zone) {
			out = append(out, zone)
		}
	}
	return out
}

// freshen notes that machines have been asked for, and stale that they are not to
// be, or are no more.
func (p *Provider) freshen(id api.Manager, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fresh[id] == nil {
		p.fresh[id] = map[string]time.Time{}
	}
	for _, name := range names {
		p.fresh[id][name] = p.Clock.Now()
	}
}

func (p *Provider) stale(id api.Manager, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		delete(p.fresh[id], name)
	}
}

// unlisted counts the machines that have been asked for and that lists may not know
// yet, without those of the launch itself.
func (p *Provider) unlisted(id api.Manager, listed, ours map[string]bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, at := range p.fresh[id] {
		switch {
		case listed[name] || p.Clock.Since(at) > poll.Grace:
			delete(p.fresh[id], name)
		case !ours[name]:
			n++
		}
	}
	return n
}
