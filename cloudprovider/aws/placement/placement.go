// Package placement puts the machines of a launch near each other. It makes cluster placement groups, finds the one that others of a gang
// are in, deletes those that nothing needs any more, and checks where AWS has put a reservation.
package placement

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/collocation"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Group is a placement group of the strategy cluster.
type Group struct{ Name, ARN string }

// NetworkLayerLabel begins the labels by which the cloud controller manager of AWS reports where an instance is: layers of the
// network from the top. It reports no UltraServer: topology.k8s.aws/ultraserver-id is set by SageMaker HyperPod alone, whose
// machines are in no Auto Scaling group of the account, so that a gang would wait for it in vain.
const NetworkLayerLabel = "topology.k8s.aws/network-node-layer-"

// LookAgain is how often it is looked for placement groups that this process does not know of.
const LookAgain = 10 * time.Minute

// Config of Groups.
type Config struct {
	Cluster inventory.Cluster
	Clock   clock.PassiveClock
	// MayAct returns an error while another process may act in place of this one: nothing is deleted then.
	MayAct func() error
}

// Groups are the placement groups of a cluster.
type Groups struct {
	api     *api.Client
	cluster inventory.Cluster
	// tracker has their names: all of a region are of one scope.
	tracker *collocation.Tracker[string]

	mu sync.Mutex
	// clustered reports whether machines of an instance type can be in one.
	clustered map[string]bool
}

// region is the scope of all placement groups.
const region = ""

// New returns Groups.
func New(client *api.Client, c Config) *Groups {
	return &Groups{api: client, cluster: c.Cluster, clustered: map[string]bool{},
		tracker: collocation.NewTracker[string](collocation.Config{Clock: c.Clock, MayAct: c.MayAct, LookAgain: LookAgain})}
}

// Refused returns the error of the last launch that had to do without a placement group; empty if it has one.
func (g *Groups) Refused() string { return g.tracker.Refused() }

// Sweep deletes the placement groups that no launch needs any more, given the names of the groups that are in use.
func (g *Groups) Sweep(ctx context.Context, used map[string]bool) {
	g.tracker.Use(region, slices.Collect(maps.Keys(used))...)
	g.tracker.Sweep(ctx, collocation.Scope[string]{
		Name: region,
		List: func(ctx context.Context) (names []string, err error) {
			found, err := g.List(ctx, g.cluster.Ours()...)
			for i := range found {
				names = append(names, api.Deref(found[i].GroupName))
			}
			return names, err
		},
		Delete: func(ctx context.Context, name string) (gone bool, err error) {
			err = g.api.DeletePlacementGroup(ctx, &ec2.DeletePlacementGroupInput{GroupName: aws.String(name)})
			switch {
			case api.HasCode(err, "InvalidPlacementGroup.InUse"):
				return false, nil
			case api.HasCode(err, api.UnknownPlacementGroup):
				return true, nil
			default:
				return err == nil, err
			}
		},
	})
}

// nameOf is the name of that of a launch. Parts of it in several groups of a zone share one, since a placement group is of one
// zone.
func (g *Groups) nameOf(req cloudprovider.LaunchRequest) string {
	sum := sha256.Sum256([]byte(g.cluster.UID + "\x00" + req.Token + "\x00" + req.Group.Spec.Zone))
	return "muster-" + hex.EncodeToString(sum[:16])
}

// Find returns the owner's of that name; nil for none.
func (g *Groups) Find(ctx context.Context, name string) (*Group, error) {
	return g.find(ctx, api.Filter("group-name", name), api.Filter("strategy", string(ec2types.PlacementStrategyCluster)))
}

// For returns one of Muster's for a launch: that of the machines that it is to join, if that is Muster's, or else its
// own, which is made. It is nil where there can be none. Neighbours names the one that the machines to join are in; empty for none.
func (g *Groups) For(ctx context.Context, req cloudprovider.LaunchRequest, neighbours string) (*Group, error) {
	found, err := g.findOrMake(ctx, req, neighbours)
	g.tracker.Fared(err)
	return found, err
}

func (g *Groups) findOrMake(ctx context.Context, req cloudprovider.LaunchRequest, neighbours string) (*Group, error) {
	if can, err := g.canCluster(ctx, req.Group.Spec.AWS.InstanceType); err != nil || !can {
		return nil, err
	}
	name, joins := neighbours, req.Together.Value != ""
	if !joins {
		name = g.nameOf(req)
		g.tracker.Need(region, name)
		if err := g.create(ctx, req, name); err != nil {
			return nil, err
		}
	}
	found, err := g.find(ctx, append(g.cluster.Ours(), api.Filter("group-name", name))...)
	switch {
	case err != nil:
		return nil, err
	case found != nil:
		g.tracker.Need(region, name)
	case !joins:
		// As long as it is not listed it may be unknown where machines are launched, too.
		return nil, fmt.Errorf("placement group %s is not available yet", name)
	}
	return found, nil
}

// create makes one, unless an earlier call has.
func (g *Groups) create(ctx context.Context, req cloudprovider.LaunchRequest, name string) error {
	err := g.api.CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{
		GroupName: aws.String(name), Strategy: ec2types.PlacementStrategyCluster,
		TagSpecifications: inventory.TagSpecifications(g.cluster.TagsOf(req), ec2types.ResourceTypePlacementGroup),
	})
	if api.HasCode(err, "InvalidPlacementGroup.Duplicate") {
		return nil
	}
	return err
}

// canCluster reports whether machines of an instance type can be in a cluster placement group.
func (g *Groups) canCluster(ctx context.Context, kind string) (bool, error) {
	g.mu.Lock()
	is, known := g.clustered[kind]
	g.mu.Unlock()
	if known {
		return is, nil
	}
	found, err := g.api.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
		Filters: []ec2types.Filter{api.Filter("instance-type", kind)},
	})
	if err != nil {
		return false, err
	}
	for _, t := range found {
		is = t.PlacementGroupInfo != nil &&
			slices.Contains(t.PlacementGroupInfo.SupportedStrategies, ec2types.PlacementGroupStrategyCluster)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clustered[kind] = is
	return is, nil
}

// List lists the placement groups that match the filters.
func (g *Groups) List(ctx context.Context, filters ...ec2types.Filter) ([]ec2types.PlacementGroup, error) {
	return g.api.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{Filters: filters})
}

// find returns a placement group that matches the filters and can be used; nil for none.
func (g *Groups) find(ctx context.Context, filters ...ec2types.Filter) (*Group, error) {
	found, err := g.List(ctx, append(filters, api.Filter("state", string(ec2types.PlacementGroupStateAvailable)))...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &Group{Name: api.Deref(found[0].GroupName), ARN: api.Deref(found[0].GroupArn)}, nil
}

// Neighbours is the placement group that most of the machines of the launch's request are in; empty for none.
func (g *Groups) Neighbours(req cloudprovider.LaunchRequest, all map[string]*inventory.Instance) string {
	if req.Together.Value == "" {
		return ""
	}
	request, count := g.cluster.TagsOf(req)[inventory.RequestTag], map[string]int{}
	for _, in := range all {
		if in.Alive() && in.PlacementGroup != "" && in.Zone == req.Group.Spec.Zone && in.Tags[inventory.RequestTag] == request {
			count[in.PlacementGroup]++
		}
	}
	return collocation.Most(count)
}

// CheckDomain refuses a launch into a reservation if AWS reports it in another domain than the required one. AWS may report less than
// the required level; then CheckDomain returns nil.
func (g *Groups) CheckDomain(ctx context.Context, req cloudprovider.LaunchRequest, reservation string) error {
	number, ok := strings.CutPrefix(req.Together.Level, NetworkLayerLabel)
	layer, err := strconv.Atoi(number)
	if !ok || err != nil || layer < 1 || req.Together.Value == "" {
		return nil
	}
	out, err := g.api.DescribeCapacityReservationTopology(ctx, &ec2.DescribeCapacityReservationTopologyInput{
		CapacityReservationIds: []string{reservation},
	})
	switch {
	case cloudprovider.IsRefused(err) && !api.HasCode(err, api.UnknownReservation):
		return nil
	case err != nil:
		return err
	}
	for _, t := range out.CapacityReservations {
		if len(t.NetworkNodes) < layer || t.NetworkNodes[layer-1] == req.Together.Value {
			continue
		}
		return &cloudprovider.Error{Class: v1alpha1.Scattered, Code: "OtherDomain",
			Message: fmt.Sprintf("capacity reservation %s is in %s of %s, and the %d machines must join those in %s: none was launched",
				reservation, t.NetworkNodes[layer-1], req.Together.Level, req.Count, req.Together.Value)}
	}
	return nil
}
