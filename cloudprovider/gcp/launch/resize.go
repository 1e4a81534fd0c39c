package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// resize launches by a resize request, which waits in the cloud's queue until all
// machines can be had at once. Meanwhile it is a hold.
func (k *Launcher) resize(ctx context.Context, l *launch) ([]cloudprovider.Machine, error) {
	name := k.inventory.Names.Request(l.Token, l.Group.Name)
	r, err := k.cloud.ResizeRequest(ctx, l.id, name)
	if errors.Is(err, api.ErrNotFound) {
		if err := k.enqueue(ctx, l, name); err != nil {
			return nil, err
		}
		r, err = k.cloud.ResizeRequest(ctx, l.id, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading resize request %s: %w", name, err)
	}
	switch r.GetState() {
	case inventory.RequestSucceeded:
		ours, err := k.managedOf(ctx, l)
		if err == nil && len(ours) < l.Count {
			err = l.lost(len(ours))
		}
		return ours, err
	case inventory.RequestFailed:
		if refusal := api.Failed(r.GetStatus().GetError().GetErrors()); refusal != nil {
			return nil, refusal
		}
		return nil, &cloudprovider.Error{Class: v1alpha1.Stockout, Code: inventory.RequestFailed, Message: "resize request " + name +
			" has failed, and the cloud does not say why"}
	case inventory.RequestCancelled:
		// By a person or another tool: a termination of Muster's is followed by another token.
		return nil, &cloudprovider.Error{Class: v1alpha1.Lost, Code: inventory.RequestCancelled,
			Message: "resize request " + name + " was cancelled by others while it waited in the cloud's queue"}
	default:
		return []cloudprovider.Machine{k.inventory.Hold(l.id, l.Group.Name, name)}, fmt.Errorf("resize request %s waits in the cloud's queue%s",
			name, waitsFor(r))
	}
}

// enqueue makes the resize request.
func (k *Launcher) enqueue(ctx context.Context, l *launch, name string) error {
	release, err := k.turns.Take(ctx, l.id.String())
	if err != nil {
		return err
	}
	defer release()
	if err := k.checkRoom(ctx, l, l.Count); err != nil {
		return err
	}
	err = k.cloud.InsertResizeRequest(ctx, l.id, name, l.names, int64(nodegroups.Lifetime(l.Group).Seconds()),
		api.RequestID("resizeRequest", l.Group.Name, l.Token))
	if err != nil && !errors.Is(err, api.ErrExists) {
		return fmt.Errorf("making resize request %s: %w", name, err)
	}
	return nil
}

// checkRoom returns an error if the managed instance group has no room for so many more machines. The machines beside it count, too:
// those of other offerings, and those of an earlier launch method.
func (k *Launcher) checkRoom(ctx context.Context, l *launch, count int) error {
	mig, err := k.read(ctx, l)
	if err != nil {
		return err
	}
	ours, others, err := k.inventory.Beside(ctx, l.Group, l.names, zonesOf(l, mig))
	if err != nil {
		return err
	}
	return l.within(mig, len(ours)+others, count)
}

// waitsFor is why the last attempt of the cloud did not get the machines. It may be
// old.
func waitsFor(r *computepb.InstanceGroupManagerResizeRequest) string {
	if last := api.Failed(r.GetStatus().GetLastAttempt().GetError().GetErrors()); last != nil {
		return fmt.Sprintf("; its last attempt failed: %v", last)
	}
	return ""
}

// managedOf are the machines of a launch that its managed instance group has.
func (k *Launcher) managedOf(ctx context.Context, l *launch) ([]cloudprovider.Machine, error) {
	all, err := k.cloud.Managed(ctx, l.id)
	if err != nil {
		return nil, fmt.Errorf("listing the instances of managed instance group %s: %w", l.id.Name, err)
	}
	var out []cloudprovider.Machine
	for _, in := range all {
		if m := k.inventory.Member(l.id, in); slices.Contains(l.names, m.Name) {
			m.Group = l.Group.Name
			out = append(out, m)
		}
	}
	return out, nil
}
