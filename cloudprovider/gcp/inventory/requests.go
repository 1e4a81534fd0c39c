package inventory

import (
	"context"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// States of a resize request that waits no longer. There is CREATING as well, before ACCEPTED.
const (
	RequestSucceeded = "SUCCEEDED"
	RequestFailed    = "FAILED"
	RequestCancelled = "CANCELLED"
)

// withRequests adds the resize requests that wait, in place of their instances.
func (v *Inventory) withRequests(ctx context.Context, id api.Manager, groups []*v1alpha1.NodeGroup,
	machines []cloudprovider.Machine) ([]cloudprovider.Machine, error) {
	requests, err := v.cloud.ResizeRequests(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		name := r.GetName()
		if Over(r) || !v.Names.IsRequest(name) {
			continue
		}
		machines = slices.DeleteFunc(machines, func(m cloudprovider.Machine) bool {
			return m.Hold && strings.HasPrefix(m.Name, strings.TrimSuffix(name, allPlaces))
		})
		for _, g := range groups {
			if v.Names.Request(v.Names.Token(name), g.Name) == name {
				machines = append(machines, v.Hold(id, g.Name, name))
			}
		}
	}
	return machines, nil
}

// Over reports whether a resize request waits no longer.
func Over(r *computepb.InstanceGroupManagerResizeRequest) bool {
	s := r.GetState()
	return s == RequestSucceeded || s == RequestFailed || s == RequestCancelled
}

// Hold is a resize request that waits.
func (v *Inventory) Hold(id api.Manager, group, name string) cloudprovider.Machine {
	return cloudprovider.Machine{
		Name: name, Group: group, Launch: v.Names.Token(name), Hold: true, State: cloudprovider.Booting,
		ProviderID: ProviderID(id.Project, id.Location, name), Scope: v.scopeOfMembers(id),
	}
}
