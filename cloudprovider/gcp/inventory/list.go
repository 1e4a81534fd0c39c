package inventory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// List returns the machines of all NodeGroups, including deleted ones. Its scopes are the zones, for machines
// that stand beside managed instance groups, and each of these groups, for its members.
func (v *Inventory) List(ctx context.Context) (Listing, error) {
	exist, err := v.refresh(ctx)
	if err != nil {
		return Listing{}, err
	}
	groups := v.Groups()
	out := &listing{Listing: Listing{Instances: map[string][]*computepb.Instance{}}, away: v.silent.All()}
	out.Failed = map[string]error{}
	var calls errgroup.Group
	calls.SetLimit(parallel)
	projects, managers := v.parts(groups)
	for _, project := range projects {
		calls.Go(func() error { v.listBeside(ctx, project, groups, out); return nil })
	}
	for _, id := range slices.SortedFunc(maps.Keys(managers), func(a, b api.Manager) int { return cmp.Compare(a.String(), b.String()) }) {
		calls.Go(func() error { v.listMembers(ctx, id, managers[id], out); return nil })
	}
	_ = calls.Wait()
	v.noteUnanswered(out.away)
	if len(out.Scopes) == 0 && len(out.Failed) > 0 {
		return Listing{Instances: out.Instances}, errors.Join(slices.Collect(maps.Values(out.Failed))...)
	}
	if len(out.Failed) == 0 {
		v.forget(groups, exist, out.Machines)
	}
	poll.EndWith(out.Machines, groups...)
	return out.Listing, nil
}

// Listing is what a list has shown.
type Listing struct {
	poll.Listing
	// Instances are all of Muster's in each project that could be listed. They are there even where the list as a whole fails.
	Instances map[string][]*computepb.Instance
}

// parallel is how many calls for lists are made at once.
const parallel = 16

// listing is a list in the making.
type listing struct {
	mu sync.Mutex
	Listing
	// away are the locations that do not answer: no more calls are made to them for this list.
	away map[string]error
}

// silence is how long a zone or region that has not answered is left alone, so that each list does not wait for it again.
const silence = 30 * time.Second

// noteUnanswered notes the locations of a list that have not answered.
func (v *Inventory) noteUnanswered(away map[string]error) {
	for location, err := range away {
		if _, noted := v.silent.Of(location); !noted && cloudprovider.CauseOf(err).Code == api.Unanswered {
			v.silent.Note(location, err)
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

// found the instances of a project.
func (l *listing) found(project string, all []*computepb.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Instances[project] = all
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
func (v *Inventory) parts(groups []*v1alpha1.NodeGroup) (projects []string, managers map[api.Manager][]*v1alpha1.NodeGroup) {
	projects, managers = []string{v.config.Project}, map[api.Manager][]*v1alpha1.NodeGroup{}
	for _, g := range groups {
		id := ManagerOf(g)
		managers[id] = append(managers[id], g)
		if !slices.Contains(projects, id.Project) {
			projects = append(projects, id.Project)
		}
	}
	return projects, managers
}

// forget groups that have been deleted and of whose launches nothing is left. Those
// of a moment ago may have launches that lists do not know yet.
func (v *Inventory) forget(groups []*v1alpha1.NodeGroup, exist map[string]bool, machines []cloudprovider.Machine) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range groups {
		left := slices.ContainsFunc(machines, func(m cloudprovider.Machine) bool {
			return m.Group == g.Name && m.Launch != "" && m.State < cloudprovider.Terminated
		})
		if !exist[g.Name] && !left && v.config.Clock.Since(v.seen[g.Name].at) > poll.Grace {
			delete(v.seen, g.Name)
		}
	}
}
