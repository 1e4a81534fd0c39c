package discover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// offerings are the groups that a candidate stands for.
func (d *discovery) offerings(c *candidate) (out []cloudprovider.Found, refused string) {
	// Subnets of one zone sell the same machines: the first stands for all, and launches use all.
	var subnets []string
	taken := map[string]bool{}
	for _, s := range c.subnets {
		if zone := d.zone(s); zone != "" && !taken[zone] {
			taken[zone] = true
			subnets = append(subnets, s)
		}
	}
	if len(subnets) == 0 {
		return nil, fmt.Sprintf("none of its subnets %s exists", strings.Join(c.subnets, ", "))
	}
	if refused := d.reservationRefused(c); refused != "" {
		return nil, refused
	}
	warnings := d.disturbed.warnings(c)
	var missing, unsold []string
	for _, kind := range c.kinds {
		if d.types[kind] == nil {
			missing = append(missing, kind)
			continue
		}
		template, err := nodeTemplate(d.types[kind], c, d.region)
		if err != nil {
			return nil, err.Error()
		}
		template.Source = c.sourceOf(kind)
		levels, err := levelsOf(kind, c.tags)
		if err != nil {
			return nil, err.Error()
		}
		price, refused := c.price(kind)
		if refused != "" {
			return nil, refused
		}
		for _, subnet := range subnets {
			zone := d.zone(subnet)
			if !d.sold[kind][zone] || c.reservation != "" && !d.holds(c.reservation, kind, zone) {
				continue
			}
			for _, capacityType := range c.capacityTypes {
				if class := usageClass(c, capacityType); sells(d.types[kind], class) {
					f := d.found(c, kind, subnet, capacityType, template, levels, warnings)
					f.Spec.PricePerHour = cmp.Or(price, f.Spec.PricePerHour)
					out = append(out, f)
				} else {
					unsold = append(unsold, fmt.Sprintf("%s as %s, only as %s", kind, class, saySold(d.types[kind])))
				}
			}
		}
	}
	switch {
	case len(out) == 0 && len(missing) > 0:
		return nil, fmt.Sprintf("AWS has no instance type %s in %s", strings.Join(missing, ", "), d.region)
	case len(out) == 0 && len(unsold) > 0:
		return nil, fmt.Sprintf("AWS does not sell %s: change its capacity type, or have its launch template target a Capacity Block",
			strings.Join(slices.Compact(unsold), ", "))
	case len(out) == 0 && c.reservation != "":
		return nil, fmt.Sprintf("its reservation %s is not for its types in its zones", c.reservation)
	case len(out) == 0:
		return nil, fmt.Sprintf("none of its zones sells %s", strings.Join(c.kinds, ", "))
	}
	share(out, c.group)
	return out, ""
}

// share splits the minimum of the group among its offerings: the group refuses to let machines
// go below it, so no machine that it counts on must be taken for idle. Offerings that machines
// are of come first.
func share(out []cloudprovider.Found, g *asgtypes.AutoScalingGroup) {
	left := api.Deref(g.MinSize)
	if out[0].Spec.MaxNodes == 0 {
		return // it launches nothing any more, so that its idle machines go
	}
	for _, m := range g.Instances {
		i := slices.IndexFunc(out, func(f cloudprovider.Found) bool {
			return f.Spec.AWS.InstanceType == api.Deref(m.InstanceType) && f.Spec.Zone == api.Deref(m.AvailabilityZone)
		})
		if i >= 0 && left > 0 {
			out[i].Spec.MinNodes++
			left--
		}
	}
	for i := range left {
		out[int(i)%len(out)].Spec.MinNodes++
	}
}

// holds says that the reservation is for machines of the kind in the zone.
func (d *discovery) holds(reservation, kind, zone string) bool {
	r, ok := d.reservations[reservation]
	return ok && api.Deref(r.InstanceType) == kind && api.Deref(r.AvailabilityZone) == zone
}

func (d *discovery) found(c *candidate, kind, subnet string, capacityType v1alpha1.CapacityType, template v1alpha1.NodeTemplate,
	levels []v1alpha1.TopologyLevel, warnings []cloudprovider.Warning) cloudprovider.Found {
	zone := d.zone(subnet)
	f := cloudprovider.Found{
		Name: cloudprovider.GroupName(strings.Join([]string{c.name, kind, zone, capacityType.LabelValue()}, "-"),
			string(v1alpha1.ProviderAWS), d.region, c.name, kind, subnet, string(capacityType)),
		Spec: v1alpha1.NodeGroupSpec{
			Provider: v1alpha1.ProviderAWS, MaxNodes: api.Deref(c.group.MaxSize), CapacityType: capacityType, Zone: zone,
			Template: *template.DeepCopy(), Topology: slices.Clone(levels),
			AWS: &v1alpha1.AWSGroup{
				Region: d.region, AutoScalingGroup: c.name, InstanceType: kind, Subnet: subnet,
				CapacityReservation: c.reservation, LaunchMethod: c.method,
			},
		},
		Warnings: slices.Clone(warnings),
	}
	if r, ok := d.reservations[c.reservation]; ok {
		f.Spec.EndsAt, f.Spec.MaxNodes = blockEndsAt(&r), min(f.Spec.MaxNodes, api.Deref(r.TotalInstanceCount))
		if isOver(&r) {
			capacityType, f.Spec.MaxNodes = v1alpha1.OnDemand, 0
			f.Warnings = append(f.Warnings, cloudprovider.Warning{Reason: ReservationOver, Message: fmt.Sprintf(
				"its reservation %s is %s: nothing is launched, and machines that run go on at the on-demand price; name another reservation "+
					"in its launch template", c.reservation, r.State)})
		}
	}
	if micro, ok := d.prices.Of(kind, zone, capacityType); ok {
		f.Spec.PricePerHour = resource.NewScaledQuantity(micro, resource.Micro)
	}
	why := d.placements.Refused()
	if why != "" && len(levels) > 0 && c.method != v1alpha1.AWSLaunchInstances && capacityType != v1alpha1.Reserved {
		f.Warnings = append(f.Warnings, cloudprovider.Warning{Reason: NoPlacementGroup, Message: fmt.Sprintf(
			"machines that must be in one domain, such as a rack, are launched without a placement group, and may be scattered: %s", why)})
	}
	if template.Labels[cloudGroupLabel] == "" {
		f.Warnings = append(f.Warnings, cloudprovider.Warning{Reason: cloudprovider.BornOpen, Message: fmt.Sprintf(
			"its nodes are not known to register with the label %s, so other pods may be bound to them before Muster cordons them: "+
				"let the kubelet set it (--node-labels), and repeat it in the tag %s%s", cloudGroupLabel, labelTag, cloudGroupLabel)})
	}
	return f
}

// cloudGroupLabel is the node label by which nodes of a launch in flight are known
// when they register.
const cloudGroupLabel = "muster.dev/cloud-group"
