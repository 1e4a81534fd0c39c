package launch

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
)

// runInto launches all machines or none into a reservation.
func (r *Launcher) runInto(ctx context.Context, l *launch, reservation string) ([]string, error) {
	return l.inSubnets("run", func(subnet string, token *string) ([]string, error) {
		return r.runIntoSubnet(ctx, l, reservation, subnet, token)
	})
}

func (r *Launcher) runIntoSubnet(ctx context.Context, l *launch, reservation, subnet string, token *string) ([]string, error) {
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
		TagSpecifications: append(inventory.TagSpecifications(r.inventory.TagsOf(l.LaunchRequest), ec2types.ResourceTypeVolume),
			inventory.TagSpecifications(r.instanceTags(l), ec2types.ResourceTypeInstance)...),
	}
	// A subnet must not stand beside network interfaces, such as those of EFA: it goes into them.
	if in.NetworkInterfaces = interfaces(l.template.NetworkInterfaces, subnet); len(in.NetworkInterfaces) == 0 {
		in.SubnetId = aws.String(subnet)
	}
	out, err := r.api.RunInstances(ctx, in)
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
