package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// members of a managed instance group, and when they were listed.
type members struct {
	machines []cloudprovider.Machine
	at       time.Time
}

// isDue reports whether the members of a managed instance group are to be listed: something is under way there, or it has been a while.
func (v *Inventory) isDue(id api.Manager) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, listed := v.members[id]
	_, touched := v.touched.Of(id)
	return !listed || touched || v.config.Clock.Since(last.at) >= poll.Calm ||
		slices.ContainsFunc(last.machines, func(m cloudprovider.Machine) bool {
			return m.State == cloudprovider.Booting || m.State == cloudprovider.Terminated && !m.Kept
		})
}

// listMembers lists the members of a managed instance group, or takes them as they were a moment ago where nothing is under way.
func (v *Inventory) listMembers(ctx context.Context, id api.Manager, groups []*v1alpha1.NodeGroup, out *listing) {
	scope := v.scopeOfMembers(id)
	if v.isDue(id) {
		var machines []cloudprovider.Machine
		at := v.config.Clock.Now()
		err := out.call(id.Location, func() (err error) {
			machines, err = v.listManaged(ctx, id, groups)
			return err
		})
		if err != nil {
			out.fail(scope, fmt.Errorf("listing the machines of managed instance group %s: %w", id, err))
			return
		}
		v.mu.Lock()
		v.members[id] = members{machines, at}
		v.mu.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out.add(scope, v.members[id].machines)
}

// listManaged are the machines of a managed instance group, and the resize requests
// that wait.
func (v *Inventory) listManaged(ctx context.Context, id api.Manager, groups []*v1alpha1.NodeGroup) ([]cloudprovider.Machine, error) {
	all, err := v.cloud.Managed(ctx, id)
	if errors.Is(err, api.ErrNotFound) {
		return nil, nil // it has been deleted, and its machines with it
	}
	if err != nil {
		return nil, err
	}
	var out []cloudprovider.Machine
	started := v.started(ctx, id, all)
	queued := slices.ContainsFunc(groups, func(g *v1alpha1.NodeGroup) bool { return g.Spec.GCP.LaunchMethod == v1alpha1.GCPResizeRequest })
	for _, in := range all {
		machine := v.Member(id, in)
		if v.Names.Foreign(machine.Name) {
			continue
		}
		machine.Group, machine.Started = v.owner(groups, in), started[in.GetInstance()]
		queued = queued || machine.Hold && machine.Launch != ""
		if machine.Group != "" {
			out = append(out, machine)
		}
	}
	if !queued {
		return out, nil
	}
	return v.withRequests(ctx, id, groups, out)
}

// start of a member of a managed instance group.
type start struct {
	// id of the VM. Another one of the same name has another.
	id uint64
	// at is when it was first seen to run, or to run again.
	at    time.Time
	ended bool
}

// started is when the members of a managed instance group were started last. The cloud reports that of instances, but not of
// members, so it is the time of the list that showed it first. What the first list of this process shows may have run for long: that
// is read from the cloud, and where it cannot be determined it stays open.
func (v *Inventory) started(ctx context.Context, id api.Manager, all []*computepb.ManagedInstance) map[string]time.Time {
	v.mu.Lock()
	old := v.starts[id]
	v.mu.Unlock()
	ours := func(in *computepb.ManagedInstance) bool {
		return in.GetInstanceStatus() != "" && v.Names.Token(api.Base(in.GetInstance())) != ""
	}
	if old == nil && slices.ContainsFunc(all, ours) {
		var err error
		if old, err = v.startsOf(ctx, id); err != nil {
			log.FromContext(ctx).Error(err, "It cannot be determined for how long machines of a managed instance group have run; it will be retried",
				"managedInstanceGroup", id.String())
			return nil
		}
	}
	now, out := map[string]start{}, map[string]time.Time{}
	for _, in := range all {
		if in.GetInstanceStatus() == "" {
			continue
		}
		link, ended := api.Path(in.GetInstance()), StateOf(in.GetInstanceStatus()) == cloudprovider.Terminated
		s, known := old[link]
		if !known || s.id != in.GetId() || s.ended && !ended {
			s = start{id: in.GetId(), at: v.cloud.Now()}
		}
		s.ended = ended
		now[link], out[in.GetInstance()] = s, s.at
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.starts[id] = now
	return out
}

// startsOf the instances of the project that Muster may have launched, by their paths.
func (v *Inventory) startsOf(ctx context.Context, id api.Manager) (map[string]start, error) {
	all, err := v.cloud.Instances(ctx, id.Project, v.Names.Filter())
	for zone, away := range all.Failed {
		if zone == id.Location || api.Region(zone) == id.Location {
			err = away
		}
	}
	if err != nil {
		return nil, err
	}
	out := map[string]start{}
	for _, in := range all.All() {
		if at, err := time.Parse(time.RFC3339Nano, in.GetLastStartTimestamp()); err == nil {
			out[api.Path(in.GetSelfLink())] = start{id: in.GetId(), at: at}
		}
	}
	return out, nil
}
