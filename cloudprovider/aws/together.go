package aws

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// unknownPlacementGroup is the code of calls about a placement group that does not exist.
const unknownPlacementGroup = "InvalidPlacementGroup.Unknown"

// placementGroup is one of the strategy cluster.
type placementGroup struct{ name, arn string }

// placementGroupName is that of a launch. Parts of it in several groups of a zone share one, since a placement group is of one
// zone.
func (p *Provider) placementGroupName(l *launch) string {
	sum := sha256.Sum256([]byte(p.config.ClusterUID + "\x00" + l.Token + "\x00" + l.Group.Spec.Zone))
	return "muster-" + hex.EncodeToString(sum[:16])
}

// gather finds the placement group that a launch needs to know: the owner's, which a reservation must be made in, or else one of
// Muster's own where its machines must be together. It leaves reservations alone that were bought: those of their places that
// are not in the placement group would be left out. A launch that gets none goes on: its machines may be near each other all the
// same, and are judged by the labels of their nodes.
func (p *Provider) gather(ctx context.Context, l *launch) (err error) {
	own, placed := ownPlacement(l)
	switch {
	case l.Group.Spec.CapacityType == v1alpha1.Reserved || len(l.reserved) > 0:
		return nil
	case own != "" && l.spec.LaunchMethod == v1alpha1.AWSReservation:
		l.gathered, err = p.findPlacementGroup(ctx, api.Filter("group-name", own),
			api.Filter("strategy", string(ec2types.PlacementStrategyCluster)))
	case placed || l.Together.Level == "" || l.Together.Value != "" && l.neighbours == "":
		return nil
	default:
		l.gathered, err = p.placementGroup(ctx, l)
		p.placements.tell(err)
	}
	if api.IsRefused(err) {
		return nil
	}
	return err
}

// ownPlacement is where the owner of the Auto Scaling group has said that its machines are: the name of a placement group, if
// that is what it is. Whatever else it is, a call that names a placement group might undo it.
func ownPlacement(l *launch) (group string, placed bool) {
	at := l.template.Placement
	if at == nil {
		at = &ec2types.LaunchTemplatePlacement{}
	}
	group = cmp.Or(api.Deref(l.group.PlacementGroup), api.Deref(at.GroupName))
	shared := at.Tenancy == "" || at.Tenancy == ec2types.TenancyDefault
	return group, group != "" || at.GroupId != nil || at.HostResourceGroupArn != nil || !shared
}

// placement of the machines of a launch; nil where it is left to the launch template.
func (l *launch) placement() *ec2types.Placement {
	switch {
	case l.group.PlacementGroup != nil:
		return &ec2types.Placement{GroupName: l.group.PlacementGroup}
	case l.gathered != nil:
		return &ec2types.Placement{GroupName: aws.String(l.gathered.name)}
	default:
		return nil
	}
}

// placementGroup returns one of Muster's for a launch: that of the machines that it is to join, if that is Muster's, or else its
// own, which is made. It is nil where there can be none.
func (p *Provider) placementGroup(ctx context.Context, l *launch) (*placementGroup, error) {
	if clustered, err := p.clustered(ctx, l.spec.InstanceType); err != nil || !clustered {
		return nil, err
	}
	name, joins := l.neighbours, l.Together.Value != ""
	if !joins {
		name = p.placementGroupName(l)
		p.placements.need(name, p.config.Clock.Now())
		if err := p.createPlacementGroup(ctx, l, name); err != nil {
			return nil, err
		}
	}
	found, err := p.findPlacementGroup(ctx, append(p.inventory.Ours(), api.Filter("group-name", name))...)
	switch {
	case err != nil:
		return nil, err
	case found != nil:
		p.placements.need(name, p.config.Clock.Now())
	case !joins:
		// As long as it is not listed it may be unknown where machines are launched, too.
		return nil, fmt.Errorf("placement group %s is not available yet", name)
	}
	return found, nil
}

// createPlacementGroup makes one, unless an earlier call has.
func (p *Provider) createPlacementGroup(ctx context.Context, l *launch, name string) error {
	err := p.api.CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{
		GroupName: aws.String(name), Strategy: ec2types.PlacementStrategyCluster,
		TagSpecifications: inventory.TagSpecifications(p.inventory.TagsOf(l.LaunchRequest), ec2types.ResourceTypePlacementGroup),
	})
	if api.HasCode(err, "InvalidPlacementGroup.Duplicate") {
		return nil
	}
	return err
}

// clustered reports whether machines of an instance type can be in a cluster placement group.
func (p *Provider) clustered(ctx context.Context, kind string) (bool, error) {
	p.placements.mu.Lock()
	is, known := p.placements.clustered[kind]
	p.placements.mu.Unlock()
	if known {
		return is, nil
	}
	found, err := p.api.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
		Filters: []ec2types.Filter{api.Filter("instance-type", kind)},
	})
	if err != nil {
		return false, err
	}
	for _, t := range found {
		is = t.PlacementGroupInfo != nil &&
			slices.Contains(t.PlacementGroupInfo.SupportedStrategies, ec2types.PlacementGroupStrategyCluster)
	}
	p.placements.mu.Lock()
	defer p.placements.mu.Unlock()
	p.placements.clustered[kind] = is
	return is, nil
}

// describePlacementGroups lists those that match the filters.
func (p *Provider) describePlacementGroups(ctx context.Context, filters ...ec2types.Filter) ([]ec2types.PlacementGroup, error) {
	return p.api.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{Filters: filters})
}

// findPlacementGroup returns one that matches the filters and can be used; nil for none.
func (p *Provider) findPlacementGroup(ctx context.Context, filters ...ec2types.Filter) (*placementGroup, error) {
	found, err := p.describePlacementGroups(ctx, append(filters, api.Filter("state", string(ec2types.PlacementGroupStateAvailable)))...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &placementGroup{name: api.Deref(found[0].GroupName), arn: api.Deref(found[0].GroupArn)}, nil
}

// neighbours is the placement group that most of the machines of the launch's request are in; empty for none.
func (p *Provider) neighbours(l *launch, all map[string]*inventory.Instance) string {
	if l.Together.Value == "" {
		return ""
	}
	request, count := p.inventory.TagsOf(l.LaunchRequest)[inventory.RequestTag], map[string]int{}
	for _, in := range all {
		if in.Alive() && in.PlacementGroup != "" && in.Zone == l.Group.Spec.Zone && in.Tags[inventory.RequestTag] == request {
			count[in.PlacementGroup]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	return slices.MinFunc(slices.Collect(maps.Keys(count)), func(a, b string) int {
		return cmp.Or(-cmp.Compare(count[a], count[b]), strings.Compare(a, b))
	})
}

// isElsewhere refuses to launch into a reservation that AWS tells to be in another domain than the machines must be in. It may
// tell less than that: then nothing is known.
func (p *Provider) isElsewhere(ctx context.Context, l *launch, reservation string) error {
	number, ok := strings.CutPrefix(l.Together.Level, networkLayerLabel)
	layer, err := strconv.Atoi(number)
	if !ok || err != nil || layer < 1 || l.Together.Value == "" {
		return nil
	}
	out, err := p.api.DescribeCapacityReservationTopology(ctx, &ec2.DescribeCapacityReservationTopologyInput{
		CapacityReservationIds: []string{reservation},
	})
	switch {
	case api.IsRefused(err) && !api.HasCode(err, unknownReservation):
		return nil
	case err != nil:
		return err
	}
	for _, t := range out.CapacityReservations {
		if len(t.NetworkNodes) < layer || t.NetworkNodes[layer-1] == l.Together.Value {
			continue
		}
		return &cloudprovider.Error{Class: v1alpha1.Scattered, Code: "OtherDomain",
			Message: fmt.Sprintf("capacity reservation %s is in %s of %s, and the %d machines must join those in %s: none was launched",
				reservation, t.NetworkNodes[layer-1], l.Together.Level, l.Count, l.Together.Value)}
	}
	return nil
}
