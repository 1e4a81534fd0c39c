// Package discover finds which managed instance groups are Muster's, and what machines they offer: one NodeGroup for each zone and machine
// type, with its limits, its launch method, its reservation, and warnings of what fights Muster over it.
package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"cloud.google.com/go/compute/apiv1/computepb"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/cloudprovider/gcp/placement"
	"github.com/muster-dev/muster/cloudprovider/gcp/prices"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what a Discoverer works with.
type Config struct {
	// Project whose groups are discovered.
	Project   string
	Inventory *inventory.Inventory
	Templates *template.Reader
	Policies  *placement.Policies
	Prices    *prices.Book
}

// Discoverer finds the groups of a project that say that they are Muster's.
type Discoverer struct {
	cloud     *api.Client
	project   string
	inventory *inventory.Inventory
	templates *template.Reader
	policies  *placement.Policies
	prices    *prices.Book

	mu sync.Mutex
	// discovered are the groups of each zone and region as they were last discovered.
	discovered map[string]cloudprovider.Discovery
}

// New returns a Discoverer. It makes no call.
func New(cloud *api.Client, c Config) *Discoverer {
	return &Discoverer{
		cloud: cloud, project: c.Project, inventory: c.Inventory, templates: c.Templates, policies: c.Policies, prices: c.Prices,
		discovered: map[string]cloudprovider.Discovery{},
	}
}

// Discover implements cloudprovider.Discoverer. A zone or region that is away keeps the groups that it had.
func (d *Discoverer) Discover(ctx context.Context) (cloudprovider.Discovery, error) {
	managers, err := d.cloud.Managers(ctx, d.project)
	if err != nil {
		return cloudprovider.Discovery{}, fmt.Errorf("listing the managed instance groups of project %s: %w", d.project, err)
	}
	autoscalers, err := d.cloud.Autoscalers(ctx, d.project)
	if err != nil {
		return cloudprovider.Discovery{}, fmt.Errorf("listing the autoscalers of project %s: %w", d.project, err)
	}
	d.prices.Refresh(ctx)
	out := cloudprovider.Discovery{}
	for _, location := range slices.Concat(managers.Scopes(), slices.Sorted(maps.Keys(managers.Failed))) {
		found, err := d.discoverIn(ctx, location, managers, autoscalers)
		if err != nil {
			if found, err = d.undiscovered(ctx, location, err); err != nil {
				return cloudprovider.Discovery{}, fmt.Errorf("discovering the groups of %s in project %s: %w", location, d.project, err)
			}
		}
		out.Groups, out.Refused = append(out.Groups, found.Groups...), append(out.Refused, found.Refused...)
	}
	slices.SortFunc(out.Groups, func(a, b cloudprovider.Found) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Refused, func(a, b cloudprovider.Refused) int { return cmp.Compare(a.Group, b.Group) })
	return out, nil
}

// discoverIn finds the groups of a zone or region.
func (d *Discoverer) discoverIn(ctx context.Context, location string, managers api.Aggregated[*computepb.InstanceGroupManager],
	autoscalers api.Aggregated[*computepb.Autoscaler]) (out cloudprovider.Discovery, err error) {
	if err := cmp.Or(managers.Failed[location], autoscalers.Failed[location]); err != nil {
		return out, err
	}
	scalers := map[string]*computepb.Autoscaler{}
	for _, a := range autoscalers.Items[location] {
		scalers[api.Base(a.GetTarget())] = a
	}
	for _, mig := range managers.Items[location] {
		id := api.Manager{Project: d.project, Location: location, Name: mig.GetName()}
		found, err := d.offerings(ctx, id, mig, scalers[id.Name])
		var unusable *template.UnusableError
		switch {
		case errors.As(err, &unusable):
			out.Refused = append(out.Refused, cloudprovider.Refused{Group: id.Location + "/" + id.Name, Reason: unusable.Error()})
		case err != nil:
			return out, fmt.Errorf("reading managed instance group %s: %w", id, err)
		}
		out.Groups = append(out.Groups, found...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.discovered[location] = out
	return out, nil
}

// undiscovered returns the groups that a zone or region had before the error. Where that is not known, and there are NodeGroups of it,
// the error stands: their groups must not seem to be gone. Errors other than the cloud's own stand, too.
func (d *Discoverer) undiscovered(ctx context.Context, location string, err error) (cloudprovider.Discovery, error) {
	if cause := cloudprovider.CauseOf(err); cause == nil || cause.Class != v1alpha1.Outage {
		return cloudprovider.Discovery{}, err
	}
	if err := d.inventory.Refresh(ctx); err != nil {
		return cloudprovider.Discovery{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last, known := d.discovered[location]
	for _, g := range d.inventory.Groups() {
		if !known && g.Spec.GCP.Project == d.project && g.Spec.GCP.Location == location {
			return cloudprovider.Discovery{}, err
		}
	}
	log.FromContext(ctx).Error(err, "The groups of a part of Google Cloud cannot be discovered; those that it had stay", "location", location)
	return last, nil
}

// offerings of a managed instance group: one for each of its zones and machine types.
func (d *Discoverer) offerings(ctx context.Context, id api.Manager, mig *computepb.InstanceGroupManager,
	autoscaler *computepb.Autoscaler) ([]cloudprovider.Found, error) {
	t, err := d.templates.Of(ctx, id.Project, template.LinkOf(mig))
	if errors.Is(err, api.ErrNotFound) || err == nil && t == nil {
		// Without a template the group cannot say that it is Muster's.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := &candidate{id, mig, autoscaler, t}
	if _, enabled := t.Keys[template.KeyEnabled]; !enabled {
		return nil, nil
	}
	if ours, err := d.templates.Claim(t); !ours {
		return nil, err
	}
	if t.IsFlexStart() {
		return nil, template.NoFlexStart()
	}
	least, most, err := c.limits()
	if err != nil {
		return nil, err
	}
	method, err := c.method()
	if err != nil {
		return nil, err
	}
	queue, err := c.queueTimeout(method)
	if err != nil {
		return nil, err
	}
	price, err := c.price()
	if err != nil {
		return nil, err
	}
	var out, over []cloudprovider.Found
	var missing string
	for _, zone := range c.zones() {
		reserved, err := d.reservation(ctx, t, zone)
		if err != nil {
			return nil, err
		}
		if reserved.refused != "" {
			if missing = reserved.refused; !reserved.leavesMachines(t) {
				continue
			}
		}
		for _, machineType := range c.machineTypes() {
			shape, err := d.templates.MachineType(ctx, id.Project, zone, machineType)
			if errors.Is(err, api.ErrNotFound) {
				return nil, template.Unusable("zone %s has no machine type %s, which the group requests: change the instance template or the zones",
					zone, machineType)
			}
			if err != nil {
				return nil, err
			}
			levels, err := t.Levels(machineType)
			if err != nil {
				return nil, err
			}
			spec := v1alpha1.NodeGroupSpec{
				Provider: v1alpha1.ProviderGCP, MinNodes: least, MaxNodes: most, CapacityType: t.CapacityType(), Zone: zone,
				PricePerHour: cmp.Or(price, d.prices.Of(prices.Offering{Region: api.Region(zone), Shape: shape, Model: t.Model(),
					Reserved: t.CapacityType() == v1alpha1.Reserved && !reserved.over})),
				QueueTimeout: queue, EndsAt: reserved.endsAt,
				Template: t.Node(shape, zone), Topology: levels,
				GCP: &v1alpha1.GCPGroup{
					Project: id.Project, Location: id.Location, InstanceGroupManager: id.Name, MachineType: machineType, LaunchMethod: method,
				},
			}
			found := cloudprovider.Found{
				Name: cloudprovider.GroupName(id.Name+"-"+zone, string(v1alpha1.ProviderGCP), id.String(), zone, machineType,
					string(spec.CapacityType)),
				Spec: spec, Warnings: slices.Concat(c.warnings(method, shape), reserved.warnings(t), d.policies.Warnings(t, mig, &spec)),
			}
			if reserved.over {
				found.Spec.MinNodes, found.Spec.MaxNodes = 0, 0
				over = append(over, found)
			} else {
				out = append(out, found)
			}
		}
	}
	if len(out) == 0 {
		out = over // else the other zones are those that have never had the reservation
	}
	if len(out) == 0 && missing != "" {
		return nil, template.Unusable("%s", missing)
	}
	return out, nil
}
