package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// createFleet launches all machines or none, by an instant fleet in one pool. A fleet
// that fails is a success to HTTP: its errors are in the answer.
func (p *Provider) createFleet(ctx context.Context, l *launch) ([]string, error) {
	template := templateOf(l.group, l.spec.InstanceType)
	count := aws.Int32(int32(l.Count))
	in := &ec2.CreateFleetInput{
		Type:        ec2types.FleetTypeInstant,
		ClientToken: l.clientToken("fleet"),
		LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateId: template.LaunchTemplateId, Version: versionOf(template.Version),
			},
			Overrides: []ec2types.FleetLaunchTemplateOverridesRequest{{
				InstanceType: ec2types.InstanceType(l.spec.InstanceType), SubnetId: aws.String(l.spec.Subnet),
			}},
		}},
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: count},
		TagSpecifications: specification(p.tagsOf(l), ec2types.ResourceTypeFleet, ec2types.ResourceTypeInstance,
			ec2types.ResourceTypeVolume),
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
	out, err := p.ec2.CreateFleet(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("CreateFleet: %w", refusal(err))
	}
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, i.InstanceIds...)
	}
	if len(ids) < l.Count {
		return ids, blame(causes(out.Errors))
	}
	return ids, nil
}

// versionOf is the version of a launch template that a group means.
func versionOf(version *string) *string {
	if deref(version) == "" {
		return aws.String("$Default")
	}
	return version
}

// runInto launches all machines or none into a reservation.
func (p *Provider) runInto(ctx context.Context, l *launch, reservation string) ([]string, error) {
	template := templateOf(l.group, l.spec.InstanceType)
	out, err := p.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
		ClientToken: l.clientToken("run"),
		MinCount:    aws.Int32(int32(l.Count)), MaxCount: aws.Int32(int32(l.Count)),
		LaunchTemplate: &ec2types.LaunchTemplateSpecification{
			LaunchTemplateId: template.LaunchTemplateId, Version: versionOf(template.Version),
		},
		InstanceType: ec2types.InstanceType(l.spec.InstanceType), SubnetId: aws.String(l.spec.Subnet),
		CapacityReservationSpecification: &ec2types.CapacityReservationSpecification{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: aws.String(reservation)},
		},
		TagSpecifications: specification(p.tagsOf(l), ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume),
	})
	if err != nil {
		return nil, fmt.Errorf("RunInstances: %w", refusal(err))
	}
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, deref(i.InstanceId))
	}
	return ids, nil
}
