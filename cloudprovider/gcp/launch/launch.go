// Package launch makes machines, all or nothing, by the launch method of their NodeGroup: a bulk insert, a resize request, or instances of
// given names. Each has a file. It refuses what a limit does not allow, or what would not join this cluster.
package launch

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/cloudprovider/gcp/placement"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what a Launcher works with.
type Config struct {
	Inventory *inventory.Inventory
	Templates *template.Reader
	Policies  *placement.Policies
	Dense     *placement.Dense
}

// Launcher launches machines.
type Launcher struct {
	cloud     *api.Client
	inventory *inventory.Inventory
	templates *template.Reader
	policies  *placement.Policies
	dense     *placement.Dense
	// turns of the launches into a managed instance group: no other one runs between the check of a limit and the launch within it.
	turns calls.Turns
}

// New returns a Launcher. It makes no call.
func New(cloud *api.Client, c Config) *Launcher {
	return &Launcher{cloud: cloud, inventory: c.Inventory, templates: c.Templates, policies: c.Policies, dense: c.Dense}
}

// launch is one launch in the making.
type launch struct {
	cloudprovider.LaunchRequest
	spec  *v1alpha1.GCPGroup
	id    api.Manager
	names []string
}

// Launch implements cloudprovider.Launcher, by the group's launch method.
func (k *Launcher) Launch(ctx context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	k.inventory.SetGroups(req.Group)
	defer k.inventory.SetGroups(req.Group)
	l, err := k.newLaunch(req)
	if err != nil {
		return nil, err
	}
	if l.spec.LaunchMethod != v1alpha1.GCPBulkInsert {
		k.inventory.Touch(l.id)
		defer k.inventory.Touch(l.id)
	}
	var machines []cloudprovider.Machine
	switch l.spec.LaunchMethod {
	case v1alpha1.GCPResizeRequest:
		machines, err = k.resize(ctx, l)
	case v1alpha1.GCPCreateInstances:
		machines, err = k.create(ctx, l)
	default:
		machines, err = k.bulkInsert(ctx, l)
	}
	poll.EndWith(machines, req.Group)
	if err != nil && cloudprovider.Refusal(err) == nil {
		err = fmt.Errorf("launching %d machines in NodeGroup %s by %s: %w", req.Count, req.Group.Name, l.spec.LaunchMethod, err)
	}
	return machines, err
}

func (k *Launcher) newLaunch(req cloudprovider.LaunchRequest) (*launch, error) {
	spec := req.Group.Spec.GCP
	if spec == nil {
		return nil, config("NoGroup", "NodeGroup %s has no spec.gcp: name the managed instance group there", req.Group.Name)
	}
	names, err := k.inventory.Names.Machines(req)
	if err != nil {
		return nil, err
	}
	l := &launch{LaunchRequest: req, spec: spec, id: inventory.ManagerOf(req.Group), names: names}
	if inventory.ZoneOf(l.Group) == "" {
		return nil, config("NoZone", "NodeGroup %s has no spec.zone, and its managed instance group is of region %s: set the zone of its "+
			"machines", req.Group.Name, spec.Location)
	}
	return l, nil
}

// config refuses a launch for what its NodeGroup says.
func config(code, format string, args ...any) error {
	return &cloudprovider.Error{Class: v1alpha1.Config, Code: code, Message: fmt.Sprintf(format, args...)}
}

// read reads the managed instance group.
func (k *Launcher) read(ctx context.Context, l *launch) (*computepb.InstanceGroupManager, error) {
	mig, err := k.cloud.Manager(ctx, l.id)
	if errors.Is(err, api.ErrNotFound) {
		return nil, config("notFound", "there is no managed instance group %s in %s of project %s: check spec.gcp of NodeGroup %s, or delete it",
			l.id.Name, l.id.Location, l.id.Project, l.Group.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading managed instance group %s: %w", l.id.Name, err)
	}
	if err := k.join(ctx, l, mig); err != nil {
		return nil, err
	}
	zones := len(mig.GetDistributionPolicy().GetZones())
	if owns := l.spec.LaunchMethod == v1alpha1.GCPResizeRequest || l.spec.LaunchMethod == v1alpha1.GCPCreateInstances; owns &&
		l.id.Regional() && zones != 1 {
		return nil, config("SeveralZones", "managed instance group %s spreads machines over %d zones by itself, so that %s cannot make them in "+
			"%s: use the launch method BulkInsert, or a group of one zone",
			l.id.Name, zones, l.spec.LaunchMethod, l.Group.Spec.Zone)
	}
	return mig, nil
}

// join refuses a launch whose machines would not join this cluster.
func (k *Launcher) join(ctx context.Context, l *launch, mig *computepb.InstanceGroupManager) error {
	t, err := k.templates.Of(ctx, l.id.Project, template.LinkOf(mig))
	if errors.Is(err, api.ErrNotFound) || err == nil && t == nil {
		return config("noTemplate", "managed instance group %s has no instance template: set one", l.id.Name)
	}
	if err != nil {
		return fmt.Errorf("reading the instance template of managed instance group %s: %w", l.id.Name, err)
	}
	ours, err := k.templates.Claim(t)
	if err == nil && ours && t.IsFlexStart() {
		err = template.NoFlexStart()
	}
	k.policies.Request(l.LaunchRequest, t, mig)
	switch {
	case err != nil:
		return config("Unusable", "managed instance group %s: %v", l.id.Name, err)
	case !ours:
		return config("OtherCluster", "the machines of managed instance group %s join another cluster, as its instance template says: delete "+
			"NodeGroup %s", l.id.Name, l.Group.Name)
	}
	return nil
}

// within refuses a launch that the group's limit does not allow. There is a number
// of machines beside those that the managed instance group has or is to have.
func (l *launch) within(mig *computepb.InstanceGroupManager, beside, missing int) error {
	there := int(mig.GetTargetSize()) + beside
	if limit := int(l.Group.Spec.MaxNodes); there+missing > limit {
		return &cloudprovider.Error{Class: v1alpha1.Quota, Code: "MaxNodesExceeded",
			Message: fmt.Sprintf("managed instance group %s may have %d machines, has %d and %d more were requested: raise its limit "+
				"(spec.maxNodes)",
				l.id.Name, limit, there, missing)}
	}
	return nil
}

// lost refuses a launch some of whose machines have been there and have gone.
func (l *launch) lost(left int) error {
	return &cloudprovider.Error{Class: v1alpha1.Lost, Code: "MachinesGone",
		Message: fmt.Sprintf("the cloud made the %d machines of launch %s, and %d of them are left", l.Count, l.Token, left)}
}
