package launch

import (
	"context"
	"fmt"
	"slices"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// create lets the managed instance group create instances of given names. The group never
// gives up by itself, so all of them are deleted if one cannot be created.
func (k *Launcher) create(ctx context.Context, l *launch) ([]cloudprovider.Machine, error) {
	release, err := k.turns.Take(ctx, l.id.String())
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := k.cloud.Managed(ctx, l.id)
	if err != nil {
		return nil, fmt.Errorf("listing the instances of managed instance group %s: %w", l.id.Name, err)
	}
	ours := l.instances(all)
	if missing := l.missing(ours); len(missing) > 0 {
		if err := k.createMissing(ctx, l, missing); err != nil {
			return k.machines(l, ours), err
		}
		if all, err = k.cloud.Managed(ctx, l.id); err != nil {
			return k.machines(l, ours), fmt.Errorf("listing the instances of managed instance group %s: %w", l.id.Name, err)
		}
		ours = l.instances(all)
	}
	return k.machines(l, ours), l.outcome(ours)
}

// createMissing has the group create the instances that it does not have.
func (k *Launcher) createMissing(ctx context.Context, l *launch, missing []string) error {
	if err := k.checkRoom(ctx, l, len(missing)); err != nil {
		return err
	}
	id := api.RequestID(append([]string{"createInstances", l.Group.Name, l.Token}, missing...)...)
	if err := k.cloud.CreateInstances(ctx, l.id, missing, id); err != nil {
		return fmt.Errorf("creating instances in managed instance group %s: %w", l.id.Name, err)
	}
	return nil
}

// instances of the launch among those of the managed instance group, by name.
func (l *launch) instances(all []*computepb.ManagedInstance) map[string]*computepb.ManagedInstance {
	out := map[string]*computepb.ManagedInstance{}
	for _, in := range all {
		if name := api.Base(in.GetInstance()); slices.Contains(l.names, name) {
			out[name] = in
		}
	}
	return out
}

// missing are the names of the launch that the group does not have.
func (l *launch) missing(ours map[string]*computepb.ManagedInstance) (out []string) {
	for _, name := range l.names {
		if ours[name] == nil {
			out = append(out, name)
		}
	}
	return out
}

// machines of the launch, in order.
func (k *Launcher) machines(l *launch, ours map[string]*computepb.ManagedInstance) (out []cloudprovider.Machine) {
	for _, name := range l.names {
		if in := ours[name]; in != nil {
			m := k.inventory.Member(l.id, in)
			m.Group = l.Group.Name
			out = append(out, m)
		}
	}
	return out
}

// outcome is nil once there is a VM for each instance. The first that the group
// could not make decides: nothing comes of waiting for the others. Where the group was only
// throttled it tries again.
func (l *launch) outcome(ours map[string]*computepb.ManagedInstance) error {
	unmade := 0
	for _, name := range l.names {
		in := ours[name]
		if in.GetInstanceStatus() != "" {
			continue
		}
		unmade++
		if refusal := api.Failed(in.GetLastAttempt().GetErrors().GetErrors()); refusal != nil && refusal.Class != v1alpha1.Throttle {
			return refusal
		}
	}
	if unmade > 0 {
		return fmt.Errorf("managed instance group %s has made %d of %d machines", l.id.Name, l.Count-unmade, l.Count)
	}
	return nil
}
