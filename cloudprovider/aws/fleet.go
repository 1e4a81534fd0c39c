package aws

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

// createFleet launches all machines or none, by an instant fleet in one pool: a type in a zone, of which EC2 takes one subnet. A fleet
// that fails is a success to HTTP: its errors are in the answer.
func (p *Provider) createFleet(ctx context.Context, l *launch) ([]string, error) {
	return l.inSubnets("fleet", func(subnet string, token *string) ([]string, error) { return p.createFleetIn(ctx, l, subnet, token) })
}

func (p *Provider) createFleetIn(ctx context.Context, l *launch, subnet string, token *string) ([]string, error) {
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
			inventory.TagSpecifications(p.inventory.TagsOf(l.LaunchRequest), ec2types.ResourceTypeFleet, ec2types.ResourceTypeVolume),
			inventory.TagSpecifications(p.instanceTags(l), ec2types.ResourceTypeInstance)...),
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
	out, err := p.api.CreateFleet(ctx, in)
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

// runInto launches all machines or none into a reservation.
func (p *Provider) runInto(ctx context.Context, l *launch, reservation string) ([]string, error) {
	return l.inSubnets("run", func(subnet string, token *string) ([]string, error) {
		return p.runIntoSubnet(ctx, l, reservation, subnet, token)
	})
}

func (p *Provider) runIntoSubnet(ctx context.Context, l *launch, reservation, subnet string, token *string) ([]string, error) {
	template := asg.TemplateOf(l.group, l.spec.InstanceType)
	in := &ec2.RunInstancesInput{
		ClientToken: token,
		MinCount:    aws.Int32(int32(l.Count)), MaxCount: aws.Int32(int32(l.Count)),
		LaunchTemplate: &ec2types.LaunchTemplateSpecification{
			LaunchTemplateId: template.LaunchTemplateId, Version: asg.VersionOf(template),
		},
		InstanceType: ec2types.InstanceType(l.spec.InstanceType), Placement: l.placement(),
		CapacityReservationSpecification: &ec2types.CapacityReservationSpecification{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: aws.String(reservation)},
		},
		TagSpecifications: append(inventory.TagSpecifications(p.inventory.TagsOf(l.LaunchRequest), ec2types.ResourceTypeVolume),
			inventory.TagSpecifications(p.instanceTags(l), ec2types.ResourceTypeInstance)...),
	}
	// A subnet must not stand beside network interfaces, such as those of EFA: it goes into them.
	if in.NetworkInterfaces = interfaces(l.template.NetworkInterfaces, subnet); len(in.NetworkInterfaces) == 0 {
		in.SubnetId = aws.String(subnet)
	}
	out, err := p.api.RunInstances(ctx, in)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, api.Deref(i.InstanceId))
	}
	return ids, nil
}

// interfaces are the network interfaces of a launch template, in a subnet. What machines cannot
// share, such as an address, is no part of a template for many.
func interfaces(list []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecification, subnet string) (
	out []ec2types.InstanceNetworkInterfaceSpecification) {
	for i := range list {
		t := &list[i]
		n := ec2types.InstanceNetworkInterfaceSpecification{
			AssociateCarrierIpAddress: t.AssociateCarrierIpAddress, AssociatePublicIpAddress: t.AssociatePublicIpAddress,
			DeleteOnTermination: t.DeleteOnTermination, Description: t.Description, DeviceIndex: t.DeviceIndex, EnaQueueCount: t.EnaQueueCount,
			Groups: t.Groups, InterfaceType: t.InterfaceType, Ipv4PrefixCount: t.Ipv4PrefixCount, Ipv6AddressCount: t.Ipv6AddressCount,
			Ipv6PrefixCount: t.Ipv6PrefixCount, NetworkCardIndex: t.NetworkCardIndex, PrimaryIpv6: t.PrimaryIpv6,
			SecondaryPrivateIpAddressCount: t.SecondaryPrivateIpAddressCount, SubnetId: aws.String(subnet),
		}
		if c := t.ConnectionTrackingSpecification; c != nil {
			n.ConnectionTrackingSpecification = &ec2types.ConnectionTrackingSpecificationRequest{
				TcpEstablishedTimeout: c.TcpEstablishedTimeout, UdpStreamTimeout: c.UdpStreamTimeout, UdpTimeout: c.UdpTimeout,
			}
		}
		if e := t.EnaSrdSpecification; e != nil {
			n.EnaSrdSpecification = &ec2types.EnaSrdSpecificationRequest{EnaSrdEnabled: e.EnaSrdEnabled}
			if u := e.EnaSrdUdpSpecification; u != nil {
				n.EnaSrdSpecification.EnaSrdUdpSpecification = &ec2types.EnaSrdUdpSpecificationRequest{EnaSrdUdpEnabled: u.EnaSrdUdpEnabled}
			}
		}
		out = append(out, n)
	}
	return out
}
