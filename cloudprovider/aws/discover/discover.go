// Package discover finds node groups and describes their machines. An Auto Scaling group that is opted in is a candidate. Each
// combination of its instance types, subnets and capacity types is an offering, and each offering becomes a NodeGroup. A setting that lets
// others change the group makes a warning; a setting that makes the group unusable makes a refusal.
//
// Discovery takes place every minute, so it keeps the facts that change seldom.
package discover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/cloudprovider/aws/prices"
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
// capacity type that an Auto Scaling group with the tag allows.
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

// discovery is one read of the cloud: the groups, and the objects that they refer to.
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

// kinds are the instance types that candidates allow.
func (d *discovery) kinds() (out []string) {
	for _, c := range d.candidates {
		out = append(out, c.kinds...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
