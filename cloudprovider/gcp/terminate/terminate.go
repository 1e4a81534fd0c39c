// Package terminate ends machines: members of a managed instance group by the group, all others one by one, and what waits in the cloud's
// queue by cancelling it.
package terminate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cloud.google.com/go/compute/apiv1/computepb"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// mostRemoved is how many instances a managed instance group deletes by one call.
	mostRemoved = 1000
	// parallel is how many instances are deleted at once: the cloud has no call for
	// several that are in no group.
	parallel = 16
)

// Terminator takes machines back.
type Terminator struct {
	cloud     *api.Client
	inventory *inventory.Inventory
	// inUse is consulted before machines of a resize request are deleted, which were not named.
	inUse cloudprovider.InUse
}

// New returns a Terminator. It makes no call.
func New(cloud *api.Client, inventory *inventory.Inventory, inUse cloudprovider.InUse) *Terminator {
	return &Terminator{cloud: cloud, inventory: inventory, inUse: inUse}
}

// Machines terminates machines of a group. The managed instance group deletes its members, which lowers its target size by exactly
// them. Other machines are deleted one by one, and resize requests are cancelled.
func (k *Terminator) Machines(ctx context.Context, group string, names []string) error {
	g, err := k.inventory.Group(ctx, group)
	if err != nil {
		return err
	}
	if g == nil {
		return k.strays(ctx, group, names)
	}
	t := &termination{k, inventory.ManagerOf(g), g}
	defer k.inventory.Touch(t.id)
	var requests, machines []string
	for _, name := range names {
		switch {
		case k.inventory.Names.Foreign(name): // another cluster's, though it is named here
		case k.inventory.Names.IsRequest(name):
			requests = append(requests, name)
		default:
			machines = append(machines, name)
		}
	}
	var errs []error
	for _, name := range requests {
		errs = append(errs, t.cancel(ctx, name))
	}
	if len(machines) > 0 {
		rest, err := t.remove(ctx, machines)
		if err != nil && len(rest) == 0 {
			if rest = t.beside(ctx, machines); len(rest) == len(machines) {
				err = nil
			}
		}
		rest = slices.DeleteFunc(rest, func(name string) bool { return k.inventory.Names.Token(name) == "" })
		errs = append(errs, err, k.deleteAll(ctx, t.places(rest)))
		k.inventory.Stale(t.id, rest)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("terminating machines of NodeGroup %s: %w", group, err)
	}
	return nil
}

// strays deletes machines of a group that is gone: see inventory.Strays.
func (k *Terminator) strays(ctx context.Context, group string, names []string) error {
	found, err := k.inventory.Strays(ctx, group, names)
	if err != nil {
		return err
	}
	return k.deleteAll(ctx, found)
}

// deleteAll deletes instances one by one. Those that cannot be deleted do not keep
// the others.
func (k *Terminator) deleteAll(ctx context.Context, places []inventory.Place) error {
	errs := make([]error, len(places))
	var deletions errgroup.Group
	deletions.SetLimit(parallel)
	for i, at := range places {
		deletions.Go(func() error {
			err := k.cloud.DeleteInstance(ctx, at.Project, at.Zone, at.Name)
			if err != nil && !errors.Is(err, api.ErrNotFound) {
				errs[i] = fmt.Errorf("deleting instance %s: %w", at.Name, err)
			}
			return nil
		})
	}
	_ = deletions.Wait()
	return errors.Join(errs...)
}

// termination is one termination of machines of a group.
type termination struct {
	*Terminator
	id    api.Manager
	group *v1alpha1.NodeGroup
}

// places of instances of the group, by name.
func (t *termination) places(names []string) (out []inventory.Place) {
	for _, name := range names {
		out = append(out, inventory.Place{Project: t.id.Project, Zone: inventory.ZoneOf(t.group), Name: name})
	}
	return out
}

// remove has the managed instance group delete its members, and returns the names
// of those that are none.
func (t *termination) remove(ctx context.Context, names []string) (rest []string, err error) {
	all, err := t.cloud.Managed(ctx, t.id)
	if errors.Is(err, api.ErrNotFound) {
		return names, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the instances of managed instance group %s: %w", t.id.Name, err)
	}
	members := map[string]string{}
	for _, in := range all {
		members[api.Base(in.GetInstance())] = api.Path(in.GetInstance())
	}
	var links []string
	for _, name := range names {
		if link := members[name]; link != "" {
			links = append(links, link)
		} else {
			rest = append(rest, name)
		}
	}
	err = calls.Sift(links, mostRemoved, func(links []string) error { return accepted(t.cloud.DeleteInstances(ctx, t.id, links)) }, parts)
	return rest, err
}

// beside are those of the names that stand beside the managed instance group, by a list of instances: what the group does not own is
// terminated though the group cannot be listed. It is empty if instances cannot be listed, either.
func (t *termination) beside(ctx context.Context, names []string) (out []string) {
	filter := t.inventory.Names.FilterOf([]*v1alpha1.NodeGroup{t.group})
	found, _ := t.cloud.InstancesOf(ctx, t.id.Project, inventory.ZoneOf(t.group), filter) // the caller has an error
	for _, in := range found {
		if slices.Contains(names, in.GetName()) && !inventory.IsMember(in) {
			out = append(out, in.GetName())
		}
	}
	return out
}

// parts of a batch of members that a managed instance group has refused to delete for what one of them is.
func parts(batch []string, err error) [][]string {
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Config {
		return nil
	}
	return calls.Halves(batch)
}

// accepted is the error of a call, unless it is only that its operation still runs:
// the cloud is at it, and lists show the outcome.
func accepted(err error) error {
	if errors.Is(err, cloudprovider.ErrUnderWay) {
		return nil
	}
	return err
}

// cancel takes a resize request out of the queue. One that has its machines already
// loses them, except those in use: a list that shows the request may be older than its machines.
func (t *termination) cancel(ctx context.Context, name string) error {
	r, err := t.cloud.ResizeRequest(ctx, t.id, name)
	if errors.Is(err, api.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading resize request %s: %w", name, err)
	}
	switch {
	case r.GetState() == inventory.RequestSucceeded:
		_, free, err := t.inUse.Part(ctx, t.machinesOf(r))
		if err != nil {
			return err
		}
		var names []string
		for _, m := range free {
			names = append(names, m.Name)
		}
		_, err = t.remove(ctx, names)
		return err
	case inventory.Over(r):
		return nil
	}
	if err := accepted(t.cloud.CancelResizeRequest(ctx, t.id, name)); err != nil {
		return fmt.Errorf("cancelling resize request %s: %w", name, err)
	}
	return nil
}

// machinesOf a resize request.
func (t *termination) machinesOf(r *computepb.InstanceGroupManagerResizeRequest) (out []cloudprovider.Machine) {
	for _, in := range r.GetInstances() {
		at := t.places([]string{in.GetName()})[0]
		out = append(out, cloudprovider.Machine{
			Name: at.Name, Group: t.group.Name, Launch: t.inventory.Names.Token(at.Name),
			ProviderID: inventory.ProviderID(at.Project, at.Zone, at.Name),
		})
	}
	return out
}
