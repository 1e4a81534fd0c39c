// Package inventory lists which machines of a cluster there are in AWS, what else Muster has made there that costs money, and how
// each is found: by the tags that Muster gives, or by the Auto Scaling group that a machine is in.
//
// A list lags behind the calls of this process, so what they have returned is noted until lists show it. What LaunchInstances is about
// to make has no tags at first: an Intent on its group stands for it.
package inventory

import (
	"context"
	"fmt"

	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config of an Inventory.
type Config struct {
	Cluster Cluster
	Region  string
	// NodeGroups lists the NodeGroups of the cluster.
	NodeGroups func(context.Context) ([]*v1alpha1.NodeGroup, error)
	Clock      clock.PassiveClock
	// MayAct returns an error while another process may act in place of this one: nothing is changed then.
	MayAct func() error
	// Watch gets the machines that calls return, and has listed the scopes.
	Watch *poll.Poller
}

// Inventory of a cluster in one region.
type Inventory struct {
	Cluster
	config Config
	api    *api.Client

	// made has the machines and reservations that calls have returned, by ID. The cloud may not list them yet.
	made *poll.Recent[string, Made]
}

// New returns an Inventory.
func New(client *api.Client, c Config) *Inventory {
	return &Inventory{Cluster: c.Cluster, config: c, api: client, made: poll.NewRecent[string, Made](poll.Grace, c.Clock)}
}

// ClaimedBy is the UID of the cluster that has claimed the group; empty for none.
func ClaimedBy(g *asgtypes.AutoScalingGroup) string {
	for _, t := range g.Tags {
		if api.Deref(t.Key) == ClusterUIDTag {
			return api.Deref(t.Value)
		}
	}
	return ""
}

// Claim tags a group with the cluster's UID, unless another cluster has claimed it: what it
// launches by itself carries nothing that distinguishes clusters of one name.
func (v *Inventory) Claim(ctx context.Context, g *asgtypes.AutoScalingGroup) error {
	switch uid := ClaimedBy(g); uid {
	case v.UID:
		return nil
	case "":
		return v.api.CreateOrUpdateTags(ctx, asg.Tag(*g.AutoScalingGroupName, ClusterUIDTag, v.UID))
	default:
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "OtherCluster", Message: "Auto Scaling group " +
			api.Deref(g.AutoScalingGroupName) + " is not Muster's here: " + v.OtherCluster(uid)}
	}
}

// OtherCluster reports that a group was claimed by another cluster of the same name.
func (c Cluster) OtherCluster(uid string) string {
	return fmt.Sprintf("its tag %s is %s, the UID of another cluster, and that of this one is %s; if this cluster replaces that one, "+
		"remove the tag", ClusterUIDTag, uid, c.UID)
}
