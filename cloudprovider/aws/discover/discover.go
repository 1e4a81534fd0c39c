// Package discover finds which groups there are, and what their machines are like. An Auto Scaling group that is opted in is a candidate:
// its launch template, types, subnets and markets make offerings, each a NodeGroup; what else may change the group is a warning, and what
// makes it useless a refusal.
//
// Discovery takes place every minute, so it keeps the facts that change seldom.
package discover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/cloudprovider/aws/prices"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// methodTag says how the machines of a group are launched, where Muster is not
	// to choose.
	methodTag = "muster.dev/launch-method"
)

// Discoverer finds the groups of a cluster in one region.
type Discoverer struct {
	region     string
	api        *api.Client
	inventory  *inventory.Inventory
	placements *placement.Groups
	prices     *prices.Table
	clock      clock.PassiveClock
	facts      facts
}

// Config of a Discoverer.
type Config struct {
	Region     string
	Inventory  *inventory.Inventory
	Placements *placement.Groups
	Prices     *prices.Table
	Clock      clock.PassiveClock
}

// New returns a Discoverer.
func New(client *api.Client, c Config) *Discoverer {
	return &Discoverer{
		region: c.Region, api: client, inventory: c.Inventory, placements: c.Placements, prices: c.Prices, clock: c.Clock,
	}
}

// Discover does what a cloudprovider.Discoverer does: one group for each type, subnet and
// market that an Auto Scaling group with the tag allows.
func (f *Discoverer) Discover(ctx context.Context) (cloudprovider.Discovery, error) {
	f.facts.mu.Lock()
	defer f.facts.mu.Unlock()
	var out cloudprovider.Discovery
	d := &discovery{
		Discoverer: f, current: map[string]*ec2types.LaunchTemplateVersion{}, versions: map[string]*ec2types.LaunchTemplateVersion{},
	}
	groups, err := f.api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []asgtypes.Filter{{Name: aws.String("tag-key"), Values: []string{cloudprovider.Enabled}}},
	})
	if err != nil {
		return out, fmt.Errorf("discover Auto Scaling groups in %s: %w", f.region, err)
	}
	if err := d.readCurrent(ctx, groups); err != nil {
		return out, fmt.Errorf("discover Auto Scaling groups in %s: %w", f.region, err)
	}
	for i := range groups {
		c, refused, err := d.read(ctx, &groups[i])
		if err != nil {
			return cloudprovider.Discovery{}, fmt.Errorf("discover Auto Scaling group %s: %w", api.Deref(groups[i].AutoScalingGroupName), err)
		}
		if refused == "" && c.ours {
			d.candidates = append(d.candidates, c)
			if err := f.inventory.Claim(ctx, c.group); err != nil {
				// The first launch claims it at the latest. Until then the machines that it launches by itself are not listed.
				log.FromContext(ctx).Error(err, "An Auto Scaling group cannot be claimed for the cluster", "group", c.name)
			}
		} else if refused != "" {
			out.Refused = append(out.Refused, cloudprovider.Refused{Group: api.Deref(groups[i].AutoScalingGroupName), Reason: refused})
		}
	}
	f.facts.versions = d.versions
	d.readNodegroups(ctx)
	if err := d.describe(ctx); err != nil {
		return cloudprovider.Discovery{}, fmt.Errorf("discover Auto Scaling groups in %s: %w", f.region, err)
	}
	f.prices.Refresh(ctx, d.kinds())
	for _, c := range d.candidates {
		found, refused := d.offerings(c)
		if refused != "" {
			out.Refused = append(out.Refused, cloudprovider.Refused{Group: c.name, Reason: refused})
			continue
		}
		out.Groups = append(out.Groups, found...)
	}
	slices.SortFunc(out.Groups, func(a, b cloudprovider.Found) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Refused, func(a, b cloudprovider.Refused) int { return strings.Compare(a.Group, b.Group) })
	return out, nil
}

// discovery is a look at the cloud: the groups, and what they speak of.
type discovery struct {
	*Discoverer
	candidates []*candidate
	offered
	// current are the versions of launch templates by ID and what groups call them, such as $Latest, and versions those by number.
	current, versions map[string]*ec2types.LaunchTemplateVersion
	reservations      map[string]ec2types.CapacityReservation
	disturbed         disturbances
}

// zone of a subnet; empty where there is no such subnet.
func (d *discovery) zone(subnet string) string { return api.Deref(d.where[subnet].AvailabilityZone) }

// candidate is a group that may be used.
type candidate struct {
	name    string
	ours    bool
	group   *asgtypes.AutoScalingGroup
	tags    map[string]string
	method  v1alpha1.AWSLaunchMethod
	kinds   []string
	markets []v1alpha1.CapacityType
	subnets []string
	// source names the launch template and its version.
	source string
	// reservation that the launch template goes into; empty for none.
	reservation string
	// block tells that the launch template is for a Capacity Block.
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
			api.Deref(asg.VersionOf(template))), nil
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

// sourceOf names the launch template and its version; number is nil where only what the group says of it is known, such as $Latest.
func sourceOf(t *asgtypes.LaunchTemplateSpecification, number *int64) string {
	version := api.Deref(asg.VersionOf(t))
	if number != nil {
		version = strconv.FormatInt(*number, 10)
	}
	return cmp.Or(api.Deref(t.LaunchTemplateId), api.Deref(t.LaunchTemplateName)) + "/" + version
}

// sourceOf names what machines of the type are made from.
func (c *candidate) sourceOf(kind string) string {
	if own := asg.TemplateOf(c.group, kind); own != asg.TemplateOf(c.group, "") {
		return sourceOf(own, nil)
	}
	return c.source
}

// readCurrent reads what the current versions of all launch templates contain, unless few groups follow them.
func (d *discovery) readCurrent(ctx context.Context, groups []asgtypes.AutoScalingGroup) error {
	following := 0
	for i := range groups {
		if t := asg.TemplateOf(&groups[i], ""); t != nil && strings.HasPrefix(*asg.VersionOf(t), "$") {
			following++
		}
	}
	if following <= fewAtATime {
		return nil
	}
	list, err := d.api.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		Versions: []string{asg.LatestVersion, asg.DefaultVersion}, MaxResults: aws.Int32(200),
	})
	if err != nil {
		return err
	}
	for i := range list {
		v := &list[i]
		latest := api.Deref(v.LaunchTemplateId) + "/" + asg.LatestVersion
		if d.current[latest] == nil || api.Deref(d.current[latest].VersionNumber) < api.Deref(v.VersionNumber) {
			d.current[latest] = v
		}
		if api.Deref(v.DefaultVersion) {
			d.current[api.Deref(v.LaunchTemplateId)+"/"+asg.DefaultVersion] = v
		}
	}
	return nil
}

// templateVersion returns a version of a launch template, with its data. One that is named by its number is read once.
func (d *discovery) templateVersion(ctx context.Context, t *asgtypes.LaunchTemplateSpecification) (
	v *ec2types.LaunchTemplateVersion, err error) {
	key := api.Deref(t.LaunchTemplateId) + "/" + *asg.VersionOf(t)
	if v = d.current[key]; v != nil && v.LaunchTemplateData != nil {
		return v, nil
	}
	if v = d.facts.versions[key]; v == nil {
		if v, err = asg.ReadTemplate(ctx, d.api, t); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(*asg.VersionOf(t), "$") {
		d.versions[key] = v
	}
	return v, nil
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
	c.kinds, c.markets = []string{string(t.InstanceType)}, []v1alpha1.CapacityType{v1alpha1.OnDemand}
	if m := t.InstanceMarketOptions; m != nil {
		switch {
		case m.MarketType == ec2types.MarketTypeCapacityBlock:
			c.block = true
		case m.MarketType != ec2types.MarketTypeSpot:
			return fmt.Sprintf("its launch template has the market %s, which is not supported: remove its market options", m.MarketType)
		case c.method != v1alpha1.AWSLaunchInstances:
			return "its launch template requests Spot, which a fleet does not accept: remove its market options and use a " +
				"mixed instances policy"
		}
		if !c.block {
			c.markets = []v1alpha1.CapacityType{v1alpha1.Spot}
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
		c.markets = []v1alpha1.CapacityType{v1alpha1.Reserved}
	}
	switch {
	case c.block && c.reservation == "":
		return "its launch template has the market capacity-block and targets no reservation: name the Capacity Block by its ID"
	case c.method == v1alpha1.AWSLaunchInstances && (len(c.kinds) > 1 || len(c.markets) > 1):
		return "with LaunchInstances the group chooses type and market: allow one of each, or make a group for each"
	case c.method == v1alpha1.AWSReservation:
		if c.markets = slices.DeleteFunc(c.markets, func(m v1alpha1.CapacityType) bool { return m != v1alpha1.OnDemand }); len(c.markets) == 0 {
			return "only on-demand machines can be reserved first, but it uses only Spot: use the launch method Fleet"
		}
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
			c.markets = []v1alpha1.CapacityType{v1alpha1.Spot}
		case percent < 100:
			c.markets = []v1alpha1.CapacityType{v1alpha1.OnDemand, v1alpha1.Spot}
		}
	}
	return ""
}

// kinds are the instance types that candidates allow.
func (d *discovery) kinds() (out []string) {
	for _, c := range d.candidates {
		out = append(out, c.kinds...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
