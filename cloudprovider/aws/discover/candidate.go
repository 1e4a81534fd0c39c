package discover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// methodTag says how the machines of a group are launched, where Muster is not
// to choose.
const methodTag = "muster.dev/launch-method"

// priceTag says what an hour of a machine of a group costs in USD, in place of the list price. With / and an instance type behind it, it is
// the price of that type alone.
const priceTag = "muster.dev/price-per-hour"

// candidate is a group that may be used.
type candidate struct {
	name          string
	ours          bool
	group         *asgtypes.AutoScalingGroup
	tags          map[string]string
	method        v1alpha1.AWSLaunchMethod
	kinds         []string
	capacityTypes []v1alpha1.CapacityType
	subnets       []string
	// source names the launch template and its version.
	source string
	// reservation that the launch template goes into; empty for none.
	reservation string
	// block: the launch template is for a Capacity Block.
	block     bool
	volumeGiB int32
	// keeps are the devices of volumes that outlive their machines.
	keeps []string
	// efas is how many Elastic Fabric Adapters the launch template attaches.
	efas int32
	// labels and taints of a managed node group, and why they could not be read; empty if they
	// were.
	labels map[string]string
	taints []corev1.Taint
	unread string
	// repaired is true if EKS replaces unhealthy nodes of the managed node group.
	repaired bool
}

// read reads a group and its launch template, or says why it cannot be used.
func (d *discovery) read(ctx context.Context, g *asgtypes.AutoScalingGroup) (c *candidate, refused string, err error) {
	c = &candidate{name: api.Deref(g.AutoScalingGroupName), group: g, tags: map[string]string{}}
	for _, t := range g.Tags {
		c.tags[api.Deref(t.Key)] = api.Deref(t.Value)
	}
	_, c.ours = c.tags[inventory.ClusterTag+d.inventory.Name]
	if !c.ours {
		for k := range c.tags {
			if strings.HasPrefix(k, inventory.ClusterTag) {
				return c, "", nil // another cluster's
			}
		}
		return c, fmt.Sprintf("it has no tag of a cluster: tag it %s%s=%s", inventory.ClusterTag, d.inventory.Name, inventory.Owned), nil
	}
	if uid := inventory.ClaimedBy(g); uid != "" && uid != d.inventory.UID {
		return c, d.inventory.OtherCluster(uid), nil
	}
	if refused := c.choose(); refused != "" {
		return c, refused, nil
	}
	template := asg.TemplateOf(g, "")
	if template == nil {
		return c, "it has no launch template: move it from its launch configuration to a launch template", nil
	}
	version, err := d.templateVersion(ctx, template)
	if cause := cloudprovider.CauseOf(err); cause != nil && cause.Class == v1alpha1.Config {
		return c, fmt.Sprintf("its launch template %s, version %s, cannot be found: name one that exists", api.Deref(template.LaunchTemplateName),
			*asg.VersionOf(template)), nil
	}
	if err != nil {
		return c, "", err
	}
	c.source = sourceOf(template, version.VersionNumber)
	if refused := c.readTemplate(version.LaunchTemplateData); refused != "" {
		return c, refused, nil
	}
	return c, "", nil
}

// sourceOf names what machines of the type are made from.
func (c *candidate) sourceOf(kind string) string {
	if own := asg.TemplateOf(c.group, kind); own != asg.TemplateOf(c.group, "") {
		return sourceOf(own, nil)
	}
	return c.source
}

// choose takes the launch method from the tags.
func (c *candidate) choose() (refused string) {
	c.method = v1alpha1.AWSFleet
	_, managed := c.tags[asg.ManagedTag]
	if managed {
		c.method = v1alpha1.AWSLaunchInstances
	}
	switch m := v1alpha1.AWSLaunchMethod(cmp.Or(c.tags[methodTag], string(c.method))); m {
	case v1alpha1.AWSFleet, v1alpha1.AWSReservation, v1alpha1.AWSLaunchInstances:
		if c.method = m; managed && m != v1alpha1.AWSLaunchInstances {
			return fmt.Sprintf("it belongs to an EKS managed node group, which must own its machines: remove the tag %s", methodTag)
		}
		return ""
	default:
		return fmt.Sprintf("its tag %s is %q: it must be Fleet, Reservation or LaunchInstances", methodTag, string(m))
	}
}

// price of an hour of a machine by the tags of the group; nil without one.
func (c *candidate) price(kind string) (price *resource.Quantity, refused string) {
	for _, tag := range []string{priceTag + "/" + kind, priceTag} {
		s := c.tags[tag]
		if s == "" {
			continue
		}
		q, err := resource.ParseQuantity(s)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Sprintf("its tag %s is %q: it must be an amount of USD, for example 55.04", tag, s)
		}
		return &q, ""
	}
	return nil, ""
}

// readTemplate reads what the launch template and the group's policy allow.
func (c *candidate) readTemplate(t *ec2types.ResponseLaunchTemplateData) (refused string) {
	if c.method == v1alpha1.AWSLaunchInstances && asg.Rebalances(c.group) {
		return asg.Unbalanced(c.group)
	}
	if c.method != v1alpha1.AWSLaunchInstances && api.Deref(t.DisableApiTermination) {
		return asg.Protects
	}
	c.subnets = strings.Split(api.Deref(c.group.VPCZoneIdentifier), ",")
	if api.Deref(c.group.VPCZoneIdentifier) == "" {
		return "it has no subnets: name at least one"
	}
	c.kinds, c.capacityTypes = []string{string(t.InstanceType)}, []v1alpha1.CapacityType{v1alpha1.OnDemand}
	if m := t.InstanceMarketOptions; m != nil {
		switch {
		case m.MarketType == ec2types.MarketTypeCapacityBlock:
			c.block = true
		case m.MarketType != ec2types.MarketTypeSpot:
			return fmt.Sprintf("its launch template has the market type %s, which is not supported: remove its market options", m.MarketType)
		case c.method != v1alpha1.AWSLaunchInstances:
			return "its launch template requests Spot, which a fleet does not accept: remove its market options and use a " +
				"mixed instances policy"
		}
		if !c.block {
			c.capacityTypes = []v1alpha1.CapacityType{v1alpha1.Spot}
		}
	}
	if mixed := c.group.MixedInstancesPolicy; mixed != nil {
		if refused := c.readPolicy(mixed); refused != "" {
			return refused
		}
	}
	if slices.Contains(c.kinds, "") {
		return "it chooses instance types by their attributes: name the types, since a gang is planned for known machines"
	}
	if r := t.CapacityReservationSpecification; r != nil && r.CapacityReservationTarget != nil {
		if c.reservation = api.Deref(r.CapacityReservationTarget.CapacityReservationId); c.reservation == "" {
			return "its launch template targets a resource group of reservations: name one reservation by its ID"
		}
		// A managed node group must own its machines, which go into the reservation by its launch template.
		if _, managed := c.tags[asg.ManagedTag]; c.method != v1alpha1.AWSFleet && !managed {
			return fmt.Sprintf("its launch template already targets reservation %s: remove the tag %s", c.reservation, methodTag)
		}
		c.capacityTypes = []v1alpha1.CapacityType{v1alpha1.Reserved}
	}
	switch {
	case c.block && c.reservation == "":
		return "its launch template has the market type capacity-block and targets no reservation: name the Capacity Block by its ID"
	case c.method == v1alpha1.AWSLaunchInstances && (len(c.kinds) > 1 || len(c.capacityTypes) > 1):
		return "with LaunchInstances the group chooses the instance type and the capacity type: allow one of each, or make a group for each"
	case c.method == v1alpha1.AWSReservation:
		if !slices.Contains(c.capacityTypes, v1alpha1.OnDemand) {
			return "only on-demand machines can be reserved first, but it uses only Spot: use the launch method Fleet"
		}
		c.capacityTypes = []v1alpha1.CapacityType{v1alpha1.OnDemand}
	}
	for _, i := range t.NetworkInterfaces {
		if strings.HasPrefix(api.Deref(i.InterfaceType), "efa") { // efa-only carries no IP traffic
			c.efas++
		}
	}
	for _, b := range t.BlockDeviceMappings {
		if b.Ebs != nil {
			c.volumeGiB = max(c.volumeGiB, api.Deref(b.Ebs.VolumeSize))
			if b.Ebs.DeleteOnTermination != nil && !*b.Ebs.DeleteOnTermination {
				c.keeps = append(c.keeps, api.Deref(b.DeviceName))
			}
		}
	}
	return ""
}

func (c *candidate) readPolicy(mixed *asgtypes.MixedInstancesPolicy) (refused string) {
	if mixed.LaunchTemplate != nil && len(mixed.LaunchTemplate.Overrides) > 0 {
		c.kinds = nil
		for _, o := range mixed.LaunchTemplate.Overrides {
			if !slices.Contains(c.kinds, api.Deref(o.InstanceType)) {
				c.kinds = append(c.kinds, api.Deref(o.InstanceType))
			}
			if api.Deref(o.WeightedCapacity) != "" && api.Deref(o.WeightedCapacity) != "1" {
				return "its types are weighted: remove the weights, since Muster counts machines"
			}
		}
	}
	if d := mixed.InstancesDistribution; d != nil {
		percent := int32(100)
		if d.OnDemandPercentageAboveBaseCapacity != nil {
			percent = *d.OnDemandPercentageAboveBaseCapacity
		}
		switch {
		case percent == 0 && api.Deref(d.OnDemandBaseCapacity) == 0:
			c.capacityTypes = []v1alpha1.CapacityType{v1alpha1.Spot}
		case percent < 100:
			c.capacityTypes = []v1alpha1.CapacityType{v1alpha1.OnDemand, v1alpha1.Spot}
		}
	}
	return ""
}
