package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// list is all machines of the NodeGroups, and what is left of those that have been deleted. Its scopes are the zones, for machines
// that stand beside managed instance groups, and each of these groups, for its members.
func (p *Provider) list(ctx context.Context) (poll.Listing, error) {
	exist, err := p.refresh(ctx)
	if err != nil {
		return poll.Listing{}, err
	}
	groups := p.known()
	out := &listing{Listing: poll.Listing{Failed: map[string]error{}}, away: p.unanswered()}
	var calls errgroup.Group
	calls.SetLimit(parallel)
	projects, managers := p.parts(groups)
	for _, project := range projects {
		calls.Go(func() error { p.listBeside(ctx, project, groups, out); return nil })
	}
	for _, id := range slices.SortedFunc(maps.Keys(managers), func(a, b api.Manager) int { return cmp.Compare(a.String(), b.String()) }) {
		calls.Go(func() error { p.listMembers(ctx, id, managers[id], out); return nil })
	}
	_ = calls.Wait()
	p.noteUnanswered(out.away)
	if len(out.Scopes) == 0 && len(out.Failed) > 0 {
		return poll.Listing{}, errors.Join(slices.Collect(maps.Values(out.Failed))...)
	}
	if len(out.Failed) == 0 {
		p.forget(groups, exist, out.Machines)
	}
	ends := map[string]time.Time{}
	for _, g := range groups {
		ends[g.Name] = nodegroups.EndsAt(g)
	}
	for i := range out.Machines {
		if out.Machines[i].EndsAt.IsZero() {
			out.Machines[i].EndsAt = ends[out.Machines[i].Group]
		}
	}
	return out.Listing, nil
}

// listing is a list in the making.
type listing struct {
	mu sync.Mutex
	poll.Listing
	// away are the locations that do not answer: no more calls are made to them for this list.
	away map[string]error
}

// silence is how long a zone or region that has not answered is left alone, so that each list does not wait for it again.
const silence = 30 * time.Second

// silent is a zone or region that has not answered.
type silent struct {
	err error
	at  time.Time
}

// unanswered are the locations that are left alone.
func (p *Provider) unanswered() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]error{}
	for location, s := range p.silent {
		if p.Clock.Since(s.at) < silence {
			out[location] = s.err
		} else {
			delete(p.silent, location)
		}
	}
	return out
}

// noteUnanswered notes the locations of a list that have not answered.
func (p *Provider) noteUnanswered(away map[string]error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for location, err := range away {
		if _, noted := p.silent[location]; !noted && cloudprovider.CauseOf(err).Code == api.Unanswered {
			p.silent[location] = silent{err, p.Clock.Now()}
		}
	}
}

// add the machines of a scope.
func (l *listing) add(scope string, machines []cloudprovider.Machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Scopes = append(l.Scopes, scope)
	l.Machines = append(l.Machines, machines...)
}

// fail a scope.
func (l *listing) fail(scope string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Failed[scope] = err
}

// call makes a call to a location unless that does not answer.
func (l *listing) call(location string, call func() error) error {
	l.mu.Lock()
	err := l.away[location]
	l.mu.Unlock()
	if err != nil {
		return err
	}
	err = call()
	if cause := cloudprovider.CauseOf(err); cause != nil && cause.Class == v1alpha1.Outage {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.away[location] = err
	}
	return err
}

// parts are what is listed by itself: the machines beside all managed instance groups of a project, and those of each of the groups.
func (p *Provider) parts(groups []*v1alpha1.NodeGroup) (projects []string, managers map[api.Manager][]*v1alpha1.NodeGroup) {
	projects, managers = []string{p.Project}, map[api.Manager][]*v1alpha1.NodeGroup{}
	for _, g := range groups {
		id := managerOf(g)
		managers[id] = append(managers[id], g)
		if !slices.Contains(projects, id.Project) {
			projects = append(projects, id.Project)
		}
	}
	return projects, managers
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

// listBeside lists the machines of bulk inserts. Their names have the hash of this cluster, and their labels name their groups, so that
// those of deleted groups are found as well.
func (p *Provider) listBeside(ctx context.Context, project string, groups []*v1alpha1.NodeGroup, out *listing) {
	all, err := p.cloud.Instances(ctx, project, p.names.filter())
	zones := slices.Concat(all.Scopes(), slices.Collect(maps.Keys(all.Failed)), p.zones(project, groups))
	slices.Sort(zones)
	for _, zone := range slices.Compact(zones) {
		if !p.concerns(project, zone, groups) && len(all.Items[zone]) == 0 {
			continue
		}
		scope := p.scopeOf(project, zone)
		if failed := cmp.Or(err, all.Failed[zone]); failed != nil {
			out.fail(scope, fmt.Errorf("listing the machines of %s: %w", scope, failed))
			continue
		}
		machines, count := []cloudprovider.Machine{}, map[string]int{}
		for _, in := range all.Items[zone] {
			m := p.bulkMachine(project, in)
			if isMember(in) || m.Group == "" {
				continue
			}
			machines = append(machines, m)
			if m.State != cloudprovider.Terminated {
				count[p.managerOf(in)]++
			}
		}
		p.mu.Lock()
		p.beside[place{project: project, zone: zone}] = count
		p.mu.Unlock()
		out.add(scope, machines)
	}
	if err == nil {
		p.policies.sweep(ctx, project, all.All())
	}
}

// concerns reports whether groups have, or have had, machines in a zone: the cloud lists all zones of the world.
func (p *Provider) concerns(project, zone string, groups []*v1alpha1.NodeGroup) bool {
	return slices.Contains(p.zones(project, groups), zone) || slices.ContainsFunc(groups, func(g *v1alpha1.NodeGroup) bool {
		return g.Spec.GCP.Project == project && g.Spec.GCP.Location == regionOf(zone)
	})
}

// zones of a project in which NodeGroups are or machines have been listed.
func (p *Provider) zones(project string, groups []*v1alpha1.NodeGroup) (out []string) {
	for _, g := range groups {
		if zone := cmp.Or(g.Spec.Zone, g.Spec.GCP.Location); g.Spec.GCP.Project == project {
			out = append(out, zone)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.beside {
		if at.project == project {
			out = append(out, at.zone)
		}
	}
	return out
}

// managerOf is the label of the managed instance group that an instance stands beside.
func (p *Provider) managerOf(in *computepb.Instance) string {
	if label := in.GetLabels()[labelManager]; label != "" {
		return label
	}
	for _, g := range p.known() {
		if p.names.isOf(in.GetName(), g.Name) {
			return managerLabel(managerOf(g))
		}
	}
	return ""
}

// lastBeside is how many machines stood beside a managed instance group when the zone was listed last; false if it never was.
func (p *Provider) lastBeside(id api.Manager, zone string) (n int, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count, known := p.beside[place{project: id.Project, zone: zone}]
	return count[managerLabel(id)], known
}

// members of a managed instance group, and when they were listed.
type members struct {
	machines []cloudprovider.Machine
	at       time.Time
}

// isDue reports whether the members of a managed instance group are to be listed: something is under way there, or it has been a while.
func (p *Provider) isDue(id api.Manager) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, listed := p.members[id]
	if at, ok := p.touched[id]; ok && p.Clock.Since(at) > poll.Grace {
		delete(p.touched, id)
	}
	_, touched := p.touched[id]
	return !listed || touched || p.Clock.Since(last.at) >= poll.Calm || slices.ContainsFunc(last.machines, func(m cloudprovider.Machine) bool {
		return m.State == cloudprovider.Booting || m.State == cloudprovider.Terminated && !m.Kept
	})
}

// listMembers lists the members of a managed instance group, or takes them as they were a moment ago where nothing is under way.
func (p *Provider) listMembers(ctx context.Context, id api.Manager, groups []*v1alpha1.NodeGroup, out *listing) {
	scope := p.scopeOfMembers(id)
	if p.isDue(id) {
		var machines []cloudprovider.Machine
		at := p.Clock.Now()
		err := out.call(id.Location, func() (err error) {
			machines, err = p.listManaged(ctx, id, groups)
			return err
		})
		if err != nil {
			out.fail(scope, fmt.Errorf("listing the machines of managed instance group %s: %w", id, err))
			return
		}
		p.mu.Lock()
		p.members[id] = members{machines, at}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out.add(scope, p.members[id].machines)
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
			s = start{id: in.GetId(), at: p.cloud.Now()}
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
	all, err := p.cloud.Instances(ctx, id.Project, p.names.filter())
	for zone, away := range all.Failed {
		if zone == id.Location || regionOf(zone) == id.Location {
			err = away
		}
	}
	if err != nil {
		return nil, err
	}
	out := map[string]start{}
	for _, in := range all.All() {
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

// Watch implements cloudprovider.Watcher: the cloud is listed again and again.
func (p *Provider) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	return p.poller.Watch(ctx, observe, synced)
}

// Expect implements cloudprovider.Expecter.
func (p *Provider) Expect() { p.poller.Expect() }

// ListedAt implements cloudprovider.Lister.
func (p *Provider) ListedAt(g *v1alpha1.NodeGroup) time.Time {
	if g.Spec.GCP == nil {
		return time.Time{}
	}
	id := managerOf(g)
	return p.poller.Oldest(p.scopeOf(id.Project, g.Spec.Zone), p.scopeOfMembers(id))
}
