package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// list is all machines of the NodeGroups, and what is left of those that have been
// deleted. A part of the cloud that cannot be listed stays as it was; only where no
// part can, nothing is known.
func (p *Provider) list(ctx context.Context) ([]cloudprovider.Machine, error) {
	exist, err := p.refresh(ctx)
	if err != nil {
		return nil, err
	}
	groups := p.known()
	parts := p.parts(groups)
	var out []cloudprovider.Machine
	var errs []error
	for _, part := range parts {
		machines, err := part.list(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("listing the machines of %s: %w", part.name, err))
		}
		out = append(out, p.part(part.name, machines, err)...)
	}
	if len(errs) > 0 && len(errs) == len(parts) {
		return nil, errors.Join(errs...)
	}
	if len(errs) > 0 {
		log.FromContext(ctx).Error(errors.Join(errs...), "Some machines of Google Cloud cannot be listed; their last known state is used")
	}
	p.forget(groups, exist, out)
	ends := map[string]time.Time{}
	for _, g := range groups {
		ends[g.Name] = nodegroups.EndsAt(g)
	}
	for i := range out {
		if out[i].EndsAt.IsZero() {
			out[i].EndsAt = ends[out[i].Group]
		}
	}
	return out, nil
}

// part is what is listed by itself: the machines beside all managed instance groups
// of a project, or those of one of the groups.
type part struct {
	name string
	list func(context.Context) ([]cloudprovider.Machine, error)
}

func (p *Provider) parts(groups []*v1alpha1.NodeGroup) (out []part) {
	projects := []string{p.Project}
	managers := map[api.Manager][]*v1alpha1.NodeGroup{}
	var order []api.Manager
	for _, g := range groups {
		id := managerOf(g)
		if managers[id] == nil {
			order = append(order, id)
		}
		managers[id] = append(managers[id], g)
		if !slices.Contains(projects, id.Project) {
			projects = append(projects, id.Project)
		}
	}
	for _, project := range projects {
		out = append(out, part{"project " + project, func(ctx context.Context) ([]cloudprovider.Machine, error) {
			return p.listBeside(ctx, project, groups)
		}})
	}
	for _, id := range order {
		out = append(out, part{"managed instance group " + id.String(), func(ctx context.Context) ([]cloudprovider.Machine, error) {
			return p.listManaged(ctx, id, managers[id])
		}})
	}
	return out
}

// part is what a part holds: as listed, or where that failed, as before.
func (p *Provider) part(name string, machines []cloudprovider.Machine, err error) []cloudprovider.Machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.listed[name] = machines
	}
	return p.listed[name]
}

// forget groups that have been deleted and of whose launches nothing is left. Those
// of a moment ago may have launches that lists do not know yet.
func (p *Provider) forget(groups []*v1alpha1.NodeGroup, exist map[string]bool, machines []cloudprovider.Machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		left := slices.ContainsFunc(machines, func(m cloudprovider.Machine) bool {
			return m.Group == g.Name && m.Launch != "" && m.State < cloudprovider.Terminated
		})
		if !exist[g.Name] && !left && p.Clock.Since(p.seen[g.Name].at) > poll.Grace {
			delete(p.seen, g.Name)
		}
	}
}

// listBeside returns the machines of bulk inserts. Their labels name their groups, so that
// those of deleted groups are found as well.
func (p *Provider) listBeside(ctx context.Context, project string, groups []*v1alpha1.NodeGroup) ([]cloudprovider.Machine, error) {
	all, err := p.labelled(ctx, project, fmt.Sprintf("labels.%s=%s", labelUID, p.ClusterUID))
	if err != nil {
		return nil, err
	}
	p.policies.sweep(ctx, project, all)
	names := map[string]string{}
	for _, g := range groups {
		names[labelValue(g.Name)] = g.Name
	}
	var out []cloudprovider.Machine
	for _, in := range all {
		m := p.bulkMachine(project, in)
		if name := names[m.Group]; name != "" {
			m.Group = name
		}
		out = append(out, m)
	}
	return out, nil
}

// listManaged are the machines of a managed instance group, and the resize requests
// that wait.
func (p *Provider) listManaged(ctx context.Context, id api.Manager, groups []*v1alpha1.NodeGroup) ([]cloudprovider.Machine, error) {
	all, err := p.cloud.Managed(ctx, id)
	if errors.Is(err, api.ErrNotFound) {
		return nil, nil // it has been deleted, and its machines with it
	}
	if err != nil {
		return nil, err
	}
	var out []cloudprovider.Machine
	started := p.started(ctx, id, all)
	queued := slices.ContainsFunc(groups, func(g *v1alpha1.NodeGroup) bool { return g.Spec.GCP.LaunchMethod == v1alpha1.GCPResizeRequest })
	for _, in := range all {
		machine := p.managedMachine(id, in)
		if p.names.foreign(machine.Name) {
			continue
		}
		machine.Group, machine.Started = p.owner(groups, in), started[in.GetInstance()]
		queued = queued || machine.Hold && machine.Launch != ""
		if machine.Group != "" {
			out = append(out, machine)
		}
	}
	if !queued {
		return out, nil
	}
	return p.withRequests(ctx, id, groups, out)
}

// start of a member of a managed instance group.
type start struct {
	// id of the VM. Another one of the same name has another.
	id uint64
	// at is when it was first seen to run, or to run again.
	at    time.Time
	ended bool
}

// started is when the members of a managed instance group were started last. The cloud tells that of instances, but not of
// members, so it is the time of the list that showed it first. What the first list of this process shows may have run for long: that
// is asked for, and where it cannot be told it stays open.
func (p *Provider) started(ctx context.Context, id api.Manager, all []*computepb.ManagedInstance) map[string]time.Time {
	p.mu.Lock()
	old := p.starts[id]
	p.mu.Unlock()
	ours := func(in *computepb.ManagedInstance) bool {
		return in.GetInstanceStatus() != "" && p.names.token(api.Base(in.GetInstance())) != ""
	}
	if old == nil && slices.ContainsFunc(all, ours) {
		var err error
		if old, err = p.startsOf(ctx, id); err != nil {
			log.FromContext(ctx).Error(err, "It cannot be told for how long machines of a managed instance group have run; it will be retried",
				"managedInstanceGroup", id.String())
			return nil
		}
	}
	now, out := map[string]start{}, map[string]time.Time{}
	for _, in := range all {
		if in.GetInstanceStatus() == "" {
			continue
		}
		link, ended := pathOf(in.GetInstance()), stateOf(in.GetInstanceStatus()) == cloudprovider.Terminated
		s, known := old[link]
		if !known || s.id != in.GetId() || s.ended && !ended {
			s = start{id: in.GetId(), at: p.Clock.Now()}
		}
		s.ended = ended
		now[link], out[in.GetInstance()] = s, s.at
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starts[id] = now
	return out
}

// startsOf the instances of the project that Muster may have launched, by their paths.
func (p *Provider) startsOf(ctx context.Context, id api.Manager) (map[string]start, error) {
	all, err := p.labelled(ctx, id.Project, "name eq "+namePrefix+".*")
	if err != nil {
		return nil, err
	}
	out := map[string]start{}
	for _, in := range all {
		if at, err := time.Parse(time.RFC3339Nano, in.GetLastStartTimestamp()); err == nil {
			out[pathOf(in.GetSelfLink())] = start{id: in.GetId(), at: at}
		}
	}
	return out, nil
}

// withRequests adds the resize requests that wait, in place of their instances.
func (p *Provider) withRequests(ctx context.Context, id api.Manager, groups []*v1alpha1.NodeGroup,
	machines []cloudprovider.Machine) ([]cloudprovider.Machine, error) {
	requests, err := p.cloud.ResizeRequests(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		name := r.GetName()
		if over(r) || !p.names.isRequest(name) {
			continue
		}
		machines = slices.DeleteFunc(machines, func(m cloudprovider.Machine) bool {
			return m.Hold && strings.HasPrefix(m.Name, strings.TrimSuffix(name, allPlaces))
		})
		for _, g := range groups {
			if p.names.request(p.names.token(name), g.Name) == name {
				machines = append(machines, p.hold(id, g.Name, name))
			}
		}
	}
	return machines, nil
}

// over says that a resize request waits no longer.
func over(r *computepb.InstanceGroupManagerResizeRequest) bool {
	s := r.GetState()
	return s == requestSucceeded || s == requestFailed || s == requestCancelled
}

// owner is the group of an instance among those of its managed instance group:
// that which launched it, or the first of its zone and type.
func (p *Provider) owner(groups []*v1alpha1.NodeGroup, in *computepb.ManagedInstance) string {
	name, zone := api.Base(in.GetInstance()), zoneOf(in.GetInstance())
	for _, g := range groups {
		if token := p.names.token(name); token != "" && strings.HasPrefix(name, p.names.prefix(token, g.Name)) {
			return g.Name
		}
	}
	machineType := in.GetPropertiesFromFlexibilityPolicy().GetMachineType()
	for _, g := range groups {
		if (g.Spec.Zone == zone || g.Spec.GCP.Location == zone) && (machineType == "" || g.Spec.GCP.MachineType == machineType) {
			return g.Name
		}
	}
	return ""
}

// endsAt is when the cloud ends a machine by itself, as one on flex-start or with a maximum run time.
// Machines that end in the same minute count as equals.
func endsAt(timestamp string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, timestamp) // empty for one that does not end
	return at.Truncate(time.Minute)
}

// Watch implements cloudprovider.Watcher: the cloud is listed again and again.
func (p *Provider) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	return p.poller.Watch(ctx, observe, synced)
}

// Expect implements cloudprovider.Expecter.
func (p *Provider) Expect() { p.poller.Expect() }
