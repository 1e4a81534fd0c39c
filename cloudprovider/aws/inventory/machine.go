package inventory

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Instance is a machine as EC2 lists it.
type Instance struct {
	cloudprovider.Machine
	Tags map[string]string
	// Type of the instance, such as p5.48xlarge.
	Type         string
	Subnet       string
	Zone         string
	CapacityType v1alpha1.CapacityType
	// Reservation that it is in; empty for none.
	Reservation string
	// PlacementGroup that it is in; empty for none.
	PlacementGroup string
	// Launched is when it was launched, or started last.
	Launched time.Time
}

// Alive reports whether it has not ended.
func (i *Instance) Alive() bool { return i.State < cloudprovider.Terminated }

// Instances lists the instances that match all filters, by ID.
func (v *Inventory) Instances(ctx context.Context, filters ...ec2types.Filter) (map[string]*Instance, error) {
	list, err := v.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filters})
	if err != nil {
		return nil, err
	}
	out := make(map[string]*Instance, len(list))
	for i := range list {
		in := seen(&list[i])
		out[in.Name] = in
	}
	return out, nil
}

func seen(in *ec2types.Instance) *Instance {
	tags := tagMap(in.Tags)
	out := &Instance{
		Tags: tags, Type: string(in.InstanceType), Subnet: api.Deref(in.SubnetId), CapacityType: v1alpha1.OnDemand,
		Reservation: api.Deref(in.CapacityReservationId), Launched: api.Deref(in.LaunchTime),
	}
	if in.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot {
		out.CapacityType = v1alpha1.Spot
	}
	if in.Placement != nil {
		out.Zone, out.PlacementGroup = api.Deref(in.Placement.AvailabilityZone), api.Deref(in.Placement.GroupName)
	}
	out.Machine = cloudprovider.Machine{
		Name: api.Deref(in.InstanceId), Group: tags[NodeGroupTag], Launch: tags[LaunchTag],
		ProviderID: providerID(out.Zone, api.Deref(in.InstanceId)), Started: out.Launched,
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
			if in.StateReason != nil && api.Deref(in.StateReason.Message) != "" {
				out.Reason, out.Class = *in.StateReason.Message, endings[api.Deref(in.StateReason.Code)]
				if api.Deref(in.StateReason.Code) == clientError {
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

// Returned are machines that a call has just returned.
func Returned(nodeGroup, launch, zone string, ids []string) (out []cloudprovider.Machine) {
	for _, id := range ids {
		out = append(out, cloudprovider.Machine{Name: id, Group: nodeGroup, Launch: launch, ProviderID: providerID(zone, id)})
	}
	return out
}
