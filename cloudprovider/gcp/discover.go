package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/prices"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// cloudGroupLabel lets nodes of a group be born cordoned.
const cloudGroupLabel = "muster.dev/cloud-group"

// Discover implements cloudprovider.Discoverer. A zone or region that is away keeps the groups that it had.
func (p *Provider) Discover(ctx context.Context) (cloudprovider.Discovery, error) {
	managers, err := p.cloud.Managers(ctx, p.Project)
	if err != nil {
		return cloudprovider.Discovery{}, fmt.Errorf("listing the managed instance groups of project %s: %w", p.Project, err)
	}
	autoscalers, err := p.cloud.Autoscalers(ctx, p.Project)
	if err != nil {
		return cloudprovider.Discovery{}, fmt.Errorf("listing the autoscalers of project %s: %w", p.Project, err)
	}
	p.prices.Refresh(ctx)
	out := cloudprovider.Discovery{}
	for _, location := range slices.Concat(managers.Scopes(), slices.Sorted(maps.Keys(managers.Failed))) {
		found, err := p.discoverIn(ctx, location, managers, autoscalers)
		if err != nil {
			if found, err = p.undiscovered(ctx, location, err); err != nil {
				return cloudprovider.Discovery{}, fmt.Errorf("discovering the groups of %s in project %s: %w", location, p.Project, err)
			}
		}
		out.Groups, out.Refused = append(out.Groups, found.Groups...), append(out.Refused, found.Refused...)
	}
	slices.SortFunc(out.Groups, func(a, b cloudprovider.Found) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Refused, func(a, b cloudprovider.Refused) int { return cmp.Compare(a.Group, b.Group) })
	return out, nil
}

// discoverIn finds the groups of a zone or region.
func (p *Provider) discoverIn(ctx context.Context, location string, managers api.Aggregated[*computepb.InstanceGroupManager],
	autoscalers api.Aggregated[*computepb.Autoscaler]) (out cloudprovider.Discovery, err error) {
	if err := cmp.Or(managers.Failed[location], autoscalers.Failed[location]); err != nil {
		return out, err
	}
	scalers := map[string]*computepb.Autoscaler{}
	for _, a := range autoscalers.Items[location] {
		scalers[api.Base(a.GetTarget())] = a
	}
	for _, mig := range managers.Items[location] {
		id := api.Manager{Project: p.Project, Location: location, Name: mig.GetName()}
		found, err := p.offerings(ctx, id, mig, scalers[id.Name])
		var unusable *template.UnusableError
		switch {
		case errors.As(err, &unusable):
			out.Refused = append(out.Refused, cloudprovider.Refused{Group: id.Location + "/" + id.Name, Reason: unusable.Error()})
		case err != nil:
			return out, fmt.Errorf("reading managed instance group %s: %w", id, err)
		}
		out.Groups = append(out.Groups, found...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discovered[location] = out
	return out, nil
}

// undiscovered returns the groups that a zone or region had before the error. Where that is not known, and there are NodeGroups of it,
// the error stands: their groups must not seem to be gone. Errors other than the cloud's own stand, too.
func (p *Provider) undiscovered(ctx context.Context, location string, err error) (cloudprovider.Discovery, error) {
	if cause := cloudprovider.CauseOf(err); cause == nil || cause.Class != v1alpha1.Outage {
		return cloudprovider.Discovery{}, err
	}
	if err := p.inventory.Refresh(ctx); err != nil {
		return cloudprovider.Discovery{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.discovered[location]
	for _, g := range p.inventory.Known() {
		if !known && g.Spec.GCP.Project == p.Project && g.Spec.GCP.Location == location {
			return cloudprovider.Discovery{}, err
		}
	}
	log.FromContext(ctx).Error(err, "The groups of a part of Google Cloud cannot be discovered; those that it had stay", "location", location)
	return last, nil
}

// candidate is a managed instance group with all that is known of it.
type candidate struct {
	id         api.Manager
	mig        *computepb.InstanceGroupManager
	autoscaler *computepb.Autoscaler
	template   *template.Template
}

// offerings of a managed instance group: one for each of its zones and machine types.
func (p *Provider) offerings(ctx context.Context, id api.Manager, mig *computepb.InstanceGroupManager,
	autoscaler *computepb.Autoscaler) ([]cloudprovider.Found, error) {
	t, err := p.templates.Of(ctx, id.Project, template.LinkOf(mig))
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
	if ours, err := p.templates.Claim(t); !ours {
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
		reserved, err := p.reservation(ctx, t, zone)
		if err != nil {
			return nil, err
		}
		if reserved.refused != "" {
			if missing = reserved.refused; !reserved.leavesMachines(t) {
				continue
			}
		}
		for _, machineType := range c.machineTypes() {
			shape, err := p.templates.MachineType(ctx, id.Project, zone, machineType)
			if errors.Is(err, api.ErrNotFound) {
				return nil, template.Unusable("zone %s has no machine type %s, which the group asks for: change the instance template or the zones", zone,
					machineType)
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
				PricePerHour: cmp.Or(price, p.prices.Of(prices.Offering{Region: api.Region(zone), Shape: shape, Model: t.Model(),
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
				Spec: spec, Warnings: slices.Concat(c.warnings(method, shape), reserved.warnings(t), p.policies.warnings(c, &spec)),
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

// limits of the group: as its template says, else those of its autoscaler, which
// may be off.
func (c *candidate) limits() (least, most int32, err error) {
	policy := c.autoscaler.GetAutoscalingPolicy()
	least, most = policy.GetMinNumReplicas(), policy.GetMaxNumReplicas()
	for key, into := range map[string]*int32{template.KeyMin: &least, template.KeyMax: &most} {
		if s, ok := c.template.Keys[key]; ok {
			n, err := strconv.ParseInt(s, 10, 32)
			if err != nil || n < 0 || n > 100_000 {
				return 0, 0, template.Unusable("the instance template's %s is %q: it must be a number between 0 and 100000", key, s)
			}
			*into = int32(n)
		}
	}
	switch {
	case most == 0:
		return 0, 0, template.Unusable("the group has no limit: put %s with a number into the metadata of its instance template", template.KeyMax)
	case least > most:
		return 0, 0, template.Unusable("the group's minimum of %d machines exceeds its maximum of %d: correct %s or %s in its instance template",
			least, most, template.KeyMin, template.KeyMax)
	}
	return least, most, nil
}

// method is the launch method that the group asks for, else the one that fits.
func (c *candidate) method() (v1alpha1.GCPLaunchMethod, error) {
	method := v1alpha1.GCPBulkInsert
	switch {
	case c.template.Keys[template.KeyMethod] != "":
		method = v1alpha1.GCPLaunchMethod(c.template.Keys[template.KeyMethod])
	case c.template.Model() == template.FlexStart || c.template.Model() == template.ReservationBound:
		method = v1alpha1.GCPResizeRequest
	case c.template.IsGKE():
		method = v1alpha1.GCPCreateInstances
	}
	queues := method == v1alpha1.GCPResizeRequest
	switch {
	case c.template.IsGKE() && method != v1alpha1.GCPCreateInstances:
		return "", template.Unusable("a node pool of GKE must own its machines: set %s to CreateInstances, or leave it out", template.KeyMethod)
	case method != v1alpha1.GCPBulkInsert && method != v1alpha1.GCPResizeRequest && method != v1alpha1.GCPCreateInstances:
		return "", template.Unusable("the instance template's %s is %q: it must be BulkInsert, ResizeRequest or CreateInstances", template.KeyMethod, method)
	case method != v1alpha1.GCPBulkInsert && len(c.zones()) > 1:
		return "", template.Unusable("the group spreads machines over %d zones, so %s cannot make a gang's machines in one: use "+
			"BulkInsert, or a zonal group", len(c.zones()), method)
	case method != v1alpha1.GCPBulkInsert && len(c.machineTypes()) > 1:
		return "", template.Unusable("the group chooses from %d machine types, so %s cannot make machines of one type: use BulkInsert, or a single type",
			len(c.machineTypes()), method)
	case method != v1alpha1.GCPBulkInsert && c.mig.GetTargetSizePolicy().GetMode() == "BULK":
		return "", template.Unusable("the group has target size mode BULK, in which it grows only from size 0: use mode INDIVIDUAL, or BulkInsert")
	case queues && c.template.Model() != template.FlexStart && c.template.Model() != template.ReservationBound:
		return "", template.Unusable("resize requests need an instance template of provisioning model FLEX_START or RESERVATION_BOUND, and this one has "+
			"%s", c.template.Model())
	case queues && c.scales():
		return "", template.Unusable("the cloud rejects resize requests for a group with an autoscaler: delete the autoscaler")
	case !queues && c.template.Model() == template.FlexStart:
		return "", template.Unusable("machines of provisioning model FLEX_START are only available by resize requests: set %s to ResizeRequest", template.KeyMethod)
	}
	return method, nil
}

// queueTimeout is how long a launch may wait in the cloud's queue; nil where the group does
// not say.
func (c *candidate) queueTimeout(method v1alpha1.GCPLaunchMethod) (*metav1.Duration, error) {
	s := c.template.Keys[template.KeyQueue]
	if s == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || d <= 0:
		return nil, template.Unusable("the instance template's %s is %q: it must be a duration, for example 24h", template.KeyQueue, s)
	case method != v1alpha1.GCPResizeRequest:
		return nil, template.Unusable("the instance template has %s, and %s does not queue: remove it, or use ResizeRequest", template.KeyQueue, method)
	}
	return &metav1.Duration{Duration: d}, nil
}

// price of an hour of a machine by the metadata of the template; nil without it.
func (c *candidate) price() (*resource.Quantity, error) {
	s := c.template.Keys[template.KeyPrice]
	if s == "" {
		return nil, nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() < 0 {
		return nil, template.Unusable("the instance template's %s is %q: it must be an amount of USD, for example 64.44", template.KeyPrice, s)
	}
	return &q, nil
}

// scales says that the group's autoscaler is at work.
func (c *candidate) scales() bool {
	mode := c.autoscaler.GetAutoscalingPolicy().GetMode()
	return c.autoscaler != nil && mode != "OFF"
}

func (c *candidate) zones() (out []string) {
	if !c.id.Regional() {
		return []string{c.id.Location}
	}
	for _, z := range c.mig.GetDistributionPolicy().GetZones() {
		out = append(out, api.Base(z.GetZone()))
	}
	slices.Sort(out)
	return out
}

func (c *candidate) machineTypes() (out []string) {
	for _, s := range c.mig.GetInstanceFlexibilityPolicy().GetInstanceSelections() {
		out = append(out, s.GetMachineTypes()...)
	}
	if len(out) == 0 {
		return []string{c.template.MachineType}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Reasons of warnings that only this cloud has.
const (
	// Repairs: the group recreates a machine that has ended.
	Repairs = "Repairs"
	// Replaces: the group replaces machines by itself.
	Replaces = "Replaces"
	// ReservationUnread: the reservation of the group may not be read.
	ReservationUnread = "ReservationUnread"
	// ReservationOver: the reservation of the group is there no more.
	ReservationOver = "ReservationOver"
	// NoPlacementPolicy: machines that must be together are launched without a compact placement policy.
	NoPlacementPolicy = "NoPlacementPolicy"
	// NoWorkloadPolicy: machines that must be together are made by a group that puts them anywhere.
	NoWorkloadPolicy = "NoWorkloadPolicy"
	// DevicesUnknown: how many devices a machine offers is not known before there is a node.
	DevicesUnknown = "DevicesUnknown"
)

// warnings say what fights Muster over the group.
func (c *candidate) warnings(method v1alpha1.GCPLaunchMethod, shape *computepb.MachineType) (out []cloudprovider.Warning) {
	warn := func(reason, format string, args ...any) {
		out = append(out, cloudprovider.Warning{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if c.scales() {
		warn(cloudprovider.OtherAutoscaler, "the autoscaler of managed instance group %s is %s and changes its size: turn it off, or set its "+
			"mode to OFF", c.id.Name, c.autoscaler.GetAutoscalingPolicy().GetMode())
	}
	if c.template.IsAutoscaled() {
		warn(cloudprovider.OtherAutoscaler, "the node pool of managed instance group %s has GKE's autoscaler on, which may remove machines that "+
			"it considers idle: turn it off", c.id.Name)
	}
	if _, ok := c.template.Labels[cloudGroupLabel]; !ok {
		warn(cloudprovider.BornOpen, "the instance template of %s does not give its nodes the label %s: other pods may be bound to them before "+
			"they "+
			"are cordoned", c.id.Name, cloudGroupLabel)
	}
	if _, known := c.template.Devices(shape); !known {
		warn(DevicesUnknown, "how many %s the nodes of %s offer is not known before there is one, since their GPUs are partitioned or shared: "+
			"put extended_resources=%[1]s=<number> into AUTOSCALER_ENV_VARS of kube-env", template.GPU, c.id.Name)
	}
	if method == v1alpha1.GCPBulkInsert {
		return out // its machines stand beside the group, whatever that does to its own
	}
	if action := c.mig.GetInstanceLifecyclePolicy().GetDefaultActionOnFailure(); action != "DO_NOTHING" {
		warn(Repairs, "managed instance group %s recreates ended machines under the same name: set its default action on failure "+
			"to DO_NOTHING", c.id.Name)
	}
	if len(c.mig.GetAutoHealingPolicies()) > 0 {
		warn(Replaces, "managed instance group %s has autohealing, which replaces machines that fail its health check: remove the health check",
			c.id.Name)
	}
	update := c.mig.GetUpdatePolicy()
	if update.GetType() == "PROACTIVE" {
		warn(Replaces, "managed instance group %s replaces machines when its template changes: set its update type to OPPORTUNISTIC", c.id.Name)
	}
	if c.id.Regional() && update.GetInstanceRedistributionType() != "NONE" {
		warn(Replaces, "managed instance group %s moves machines between zones: set its instance redistribution type to NONE", c.id.Name)
	}
	return out
}
