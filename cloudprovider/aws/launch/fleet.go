package launch

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// inSubnets makes a call in one subnet of the zone after the other, until one has addresses for all machines. The order and the
// tokens are the same at each try of a launch, so that a call that is repeated is the same call, whatever addresses are free by then.
func (l *launch) inSubnets(call string, do func(subnet string, token *string) ([]string, error)) (ids []string, err error) {
	for _, subnet := range l.subnets {
		ids, err = do(subnet, l.clientToken(call+"\x00"+subnet))
		if refused := cloudprovider.Refusal(err); len(ids) > 0 || refused == nil || refused.Code != api.NoAddresses {
			return ids, err
		}
	}
	return ids, err
}

// createFleet launches all machines or none, by an instant fleet in one pool: a type in a zone, where EC2 chooses one subnet. A fleet
// that fails is a success to HTTP: its errors are in the answer.
func (r *Launcher) createFleet(ctx context.Context, l *launch) ([]string, error) {
	return l.inSubnets("fleet", func(subnet string, token *string) ([]string, error) { return r.createFleetIn(ctx, l, subnet, token) })
}

func (r *Launcher) createFleetIn(ctx context.Context, l *launch, subnet string, token *string) ([]string, error) {
	template := asg.TemplateOf(l.group, l.spec.InstanceType)
	count := aws.Int32(int32(l.Count))
	in := &ec2.CreateFleetInput{
		Type:        ec2types.FleetTypeInstant,
		ClientToken: token,
		LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateId: template.LaunchTemplateId, Version: asg.VersionOf(template),
			},
			Overrides: []ec2types.FleetLaunchTemplateOverridesRequest{{
				InstanceType: ec2types.InstanceType(l.spec.InstanceType), SubnetId: aws.String(subnet), Placement: l.placement(),
			}},
		}},
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: count},
		TagSpecifications: append(
			inventory.TagSpecifications(r.inventory.TagsOf(l.LaunchRequest), ec2types.ResourceTypeFleet, ec2types.ResourceTypeVolume),
			inventory.TagSpecifications(r.instanceTags(l), ec2types.ResourceTypeInstance)...),
	}
	if l.Group.Spec.CapacityType == v1alpha1.Spot {
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeSpot
		in.SpotOptions = &ec2types.SpotOptionsRequest{
			AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized,
			MinTargetCapacity:  count, SingleInstanceType: aws.Bool(true), SingleAvailabilityZone: aws.Bool(true),
		}
	} else {
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeOnDemand
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{
			AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice,
			MinTargetCapacity:  count, SingleInstanceType: aws.Bool(true), SingleAvailabilityZone: aws.Bool(true),
		}
	}
	out, err := r.api.CreateFleet(ctx, in)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, i.InstanceIds...)
	}
	if len(ids) < l.Count {
		return ids, api.Blame(api.Shortfalls(out.Errors))
	}
	return ids, nil
}
