package inventory

import (
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
)

// Tags of all that Muster makes.
const (
	// LaunchTag holds the token of the launch.
	LaunchTag = "muster.dev/launch"
	// RequestTag names the ProvisioningRequest, for humans and their bills.
	RequestTag   = "muster.dev/request"
	NodeGroupTag = "muster.dev/node-group"
	// GroupTag names the Auto Scaling group that a machine counts against.
	GroupTag = "muster.dev/auto-scaling-group"
	// ClusterTag, followed by the cluster's name, and ClusterUIDTag are how clusters in one
	// account distinguish their machines: names are not unique. An Auto Scaling group bears
	// both, too, so that what it launches by itself is one cluster's.
	ClusterTag    = "kubernetes.io/cluster/"
	ClusterUIDTag = "muster.dev/cluster-uid"
	// Owned is the value of ClusterTag.
	Owned = "owned"
	// OwnerTag is how Auto Scaling marks the machines of a group.
	OwnerTag = "aws:autoscaling:groupName"
)

// Cluster is the one that machines are launched for. What Muster makes bears its tags.
type Cluster struct {
	Name string
	// UID distinguishes clusters of one name.
	UID string
}

// longestTag is how long the value of a tag may be.
const longestTag = 256

// Tags of what a launch makes.
func (c Cluster) Tags(launch, request, nodeGroup, autoScalingGroup string) map[string]string {
	return map[string]string{
		LaunchTag: launch, RequestTag: request[:min(len(request), longestTag)], NodeGroupTag: nodeGroup, GroupTag: autoScalingGroup,
		ClusterTag + c.Name: Owned,
		ClusterUIDTag:       c.UID,
	}
}

// TagsOf returns the tags of everything that the launch creates.
func (c Cluster) TagsOf(req cloudprovider.LaunchRequest) map[string]string {
	return c.Tags(req.Token, req.Request, req.Group.Name, req.Group.Spec.AWS.AutoScalingGroup)
}

// TagList is tags in the order of their keys.
func TagList(tags map[string]string) (out []ec2types.Tag) {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return out
}

func tagMap(tags []ec2types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[api.Deref(t.Key)] = api.Deref(t.Value)
	}
	return out
}

// TagSpecifications puts the tags onto things of the given types.
func TagSpecifications(tags map[string]string, types ...ec2types.ResourceType) (out []ec2types.TagSpecification) {
	for _, t := range types {
		out = append(out, ec2types.TagSpecification{ResourceType: t, Tags: TagList(tags)})
	}
	return out
}

// TagFilter selects what has a tag with one of the values.
func TagFilter(key string, values ...string) ec2types.Filter {
	return api.Filter("tag:"+key, values...)
}

// Ours are the filters of what Muster has made for the cluster.
func (c Cluster) Ours() []ec2types.Filter {
	return []ec2types.Filter{
		TagFilter(ClusterTag+c.Name, Owned), TagFilter(ClusterUIDTag, c.UID),
		api.Filter("tag-key", LaunchTag),
	}
}

// owns reports whether something with these tags passes the filters of Ours.
func (c Cluster) owns(tags map[string]string) bool {
	return tags[ClusterTag+c.Name] == Owned && tags[ClusterUIDTag] == c.UID && tags[LaunchTag] != ""
}
