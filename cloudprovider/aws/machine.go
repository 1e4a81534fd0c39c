package aws

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Tags of all that Muster makes.
const (
	launchTag = "muster.dev/launch"
	// requestTag is for humans and their bills.
	requestTag   = "muster.dev/request"
	nodeGroupTag = "muster.dev/node-group"
	// groupTag names the Auto Scaling group that a machine counts against.
	groupTag = "muster.dev/auto-scaling-group"
	// clusterTag, followed by the cluster's name, and clusterUIDTag are how clusters in one
	// account tell their machines apart: names are not unique. An Auto Scaling group bears
	// both, too, so that what it launches by itself is one cluster's.
	clusterTag    = "kubernetes.io/cluster/"
	clusterUIDTag = "muster.dev/cluster-uid"
	owned         = "owned"
	// ownerTag is how Auto Scaling marks the machines of a group.
	ownerTag = "aws:autoscaling:groupName"
)

// longestTag is how long the value of a tag may be.
const longestTag = 256

// tags of what a launch makes.
func (p *Provider) tags(launch, request, nodeGroup, autoScalingGroup string) map[string]string {
	return map[string]string{
		launchTag: launch, requestTag: request[:min(len(request), longestTag)], nodeGroupTag: nodeGroup, groupTag: autoScalingGroup,
		clusterTag + p.config.Cluster: owned,
		clusterUIDTag:                 p.config.ClusterUID,
	}
}

func (p *Provider) tagsOf(l *launch) map[string]string {
	return p.tags(l.Token, l.Request, l.Group.Name, l.spec.AutoScalingGroup)
}

// instanceTags are those of machines: the tags that their Auto Scaling group propagates, which
// it does only to what it launches itself, and the launch's.
func (p *Provider) instanceTags(l *launch) map[string]string {
	out := map[string]string{}
	for _, t := range l.group.Tags {
		if deref(t.PropagateAtLaunch) && !strings.HasPrefix(deref(t.Key), "aws:") {
			out[deref(t.Key)] = deref(t.Value)
		}
	}
	maps.Copy(out, p.tagsOf(l))
	return out
}

func tagList(tags map[string]string) (out []ec2types.Tag) {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return out
}

func tagMap(tags []ec2types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[deref(t.Key)] = deref(t.Value)
	}
	return out
}

// specification puts the tags onto things of the given types.
func specification(tags map[string]string, types ...ec2types.ResourceType) (out []ec2types.TagSpecification) {
	for _, t := range types {
		out = append(out, ec2types.TagSpecification{ResourceType: t, Tags: tagList(tags)})
	}
	return out
}

func tagFilter(key string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String("tag:" + key), Values: values}
}

// ours are the filters of what Muster has made for the cluster.
func (p *Provider) ours() []ec2types.Filter {
	return []ec2types.Filter{
		tagFilter(clusterTag+p.config.Cluster, owned), tagFilter(clusterUIDTag, p.config.ClusterUID),
		{Name: aws.String("tag-key"), Values: []string{launchTag}},
	}
}

// instance is a machine as EC2 lists it.
type instance struct {
	cloudprovider.Machine
	tags        map[string]string
	kind        string
	subnet      string
	zone        string
	market      v1alpha1.CapacityType
	reservation string
	// placementGroup that it is in; empty for none.
	placementGroup string
	// launched is when it was launched, or started last.
	launched time.Time
}

func (i *instance) alive() bool { return i.State < cloudprovider.Terminated }

// instances lists those that match all filters, by ID.
func (p *Provider) instances(ctx context.Context, filters ...ec2types.Filter) (map[string]*instance, error) {
	list, err := p.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filters})
	if err != nil {
		return nil, err
	}
	out := make(map[string]*instance, len(list))
	for i := range list {
		in := seen(&list[i])
		out[in.Name] = in
	}
	return out, nil
}

func seen(in *ec2types.Instance) *instance {
	tags := tagMap(in.Tags)
	out := &instance{
		tags: tags, kind: string(in.InstanceType), subnet: deref(in.SubnetId), market: v1alpha1.OnDemand,
		reservation: deref(in.CapacityReservationId), launched: deref(in.LaunchTime),
	}
	if in.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot {
		out.market = v1alpha1.Spot
	}
	if in.Placement != nil {
		out.zone, out.placementGroup = deref(in.Placement.AvailabilityZone), deref(in.Placement.GroupName)
	}
	out.Machine = cloudprovider.Machine{
		Name: deref(in.InstanceId), Group: tags[nodeGroupTag], Launch: tags[launchTag],
		ProviderID: providerID(out.zone, deref(in.InstanceId)), Started: out.launched,
	}
	if in.State != nil {
		switch in.State.Name {
		case ec2types.InstanceStateNamePending:
		case ec2types.InstanceStateNameRunning:
			out.State = cloudprovider.Running
		default:
			out.State = cloudprovider.Terminated
			out.Kept = in.State.Name == ec2types.InstanceStateNameStopped || in.State.Name == ec2types.InstanceStateNameStopping
			out.Reason = string(in.State.Name)
			if in.StateReason != nil && deref(in.StateReason.Message) != "" {
				out.Reason, out.Class = *in.StateReason.Message, endings[deref(in.StateReason.Code)]
				if deref(in.StateReason.Code) == clientError {
					out.Reason += "; machines with encrypted volumes end so where Muster lacks the rights on the key, see deploy/clouds"
				}
			}
		}
	}
	return out
}

// clientError is the code of machines that the caller has kept from starting: nearly always by
// rights that it lacks on the key of their volumes.
const clientError = "Client.InternalError"

// endings are the classes of those codes of reasons that another machine in the place of one
// that ended would meet, too.
var endings = map[string]v1alpha1.ErrorClass{
	clientError:                           v1alpha1.Config,
	"Client.InvalidSnapshot.NotFound":     v1alpha1.Config,
	"Client.VolumeLimitExceeded":          v1alpha1.Quota,
	"Server.InsufficientInstanceCapacity": v1alpha1.Stockout,
}

// providerID is what the node will carry in spec.providerID.
func providerID(zone, id string) string { return "aws:///" + zone + "/" + id }

// launched are machines that a call has just returned.
func launched(req cloudprovider.LaunchRequest, ids []string) (out []cloudprovider.Machine) {
	for _, id := range ids {
		out = append(out, cloudprovider.Machine{
			Name: id, Group: req.Group.Name, Launch: req.Token, ProviderID: providerID(req.Group.Spec.Zone, id),
		})
	}
	return out
}

// union is the machines that were listed, and those that a call has returned beside
// them, by name.
func union(listed map[string]*instance, returned []cloudprovider.Machine) []cloudprovider.Machine {
	var out []cloudprovider.Machine
	for _, in := range listed {
		out = append(out, in.Machine)
	}
	for _, m := range returned {
		if listed[m.Name] == nil {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b cloudprovider.Machine) int { return strings.Compare(a.Name, b.Name) })
	return out
}
