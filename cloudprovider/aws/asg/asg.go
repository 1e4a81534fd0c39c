// Package asg reads Auto Scaling groups: by which launch template a group makes machines, in which subnets, and whether it lets
// the machines of a gang be. Discovery judges a group by it, and each launch again.
package asg

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
)

const (
	// Terminating begins the lifecycle states of machines that their group is terminating. A lifecycle hook may hold them for hours.
	Terminating = "Terminating"
	// Retained is the state of machines that the lifecycle policy of their group retains. The group no longer counts them.
	Retained = string(asgtypes.LifecycleStateTerminatingRetained)
)

// ManagedTag marks the groups of EKS managed node groups.
const ManagedTag = "eks:nodegroup-name"

// ZoneRebalancing is the reason of a warning, and the code of a refusal: the group moves machines between its zones.
const ZoneRebalancing = "ZoneRebalancing"

// Find describes the groups of those names that exist.
func Find(ctx context.Context, client *api.Client, names ...string) ([]asgtypes.AutoScalingGroup, error) {
	return client.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names})
}

// Tag is a tag of the group of that name, which its machines do not get.
func Tag(group, key, value string) asgtypes.Tag {
	return asgtypes.Tag{
		Key: aws.String(key), Value: aws.String(value), PropagateAtLaunch: aws.Bool(false),
		ResourceId: aws.String(group), ResourceType: aws.String("auto-scaling-group"),
	}
}

// Subnets returns subnets by ID; those that do not exist are missing.
func Subnets(ctx context.Context, client *api.Client, ids []string) (map[string]ec2types.Subnet, error) {
	out := map[string]ec2types.Subnet{}
	for names := range slices.Chunk(ids, api.MostNames) {
		list, err := client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{api.Filter("subnet-id", names...)}})
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			out[api.Deref(s.SubnetId)] = s
		}
	}
	return out, nil
}

// Rebalances reports whether a group moves machines between its zones.
func Rebalances(g *asgtypes.AutoScalingGroup) bool {
	return len(g.AvailabilityZones) > 1 && !Suspends(g, "AZRebalance")
}

// Unbalanced returns why a group that rebalances is of no use to LaunchInstances, which puts a
// gang in one zone.
func Unbalanced(g *asgtypes.AutoScalingGroup) string {
	fix := "make a group for each zone, or suspend its process AZRebalance"
	if slices.ContainsFunc(g.Tags, func(t asgtypes.TagDescription) bool { return api.Deref(t.Key) == ManagedTag }) {
		fix = "make a managed node group for each zone, since EKS does not let AZRebalance be suspended"
	}
	return fmt.Sprintf("it spans %d zones and terminates machines of a gang, which is in one zone, to balance them: %s",
		len(g.AvailabilityZones), fix)
}

// Suspends reports whether a process of the group is suspended.
func Suspends(g *asgtypes.AutoScalingGroup, process string) bool {
	return slices.ContainsFunc(g.SuspendedProcesses, func(p asgtypes.SuspendedProcess) bool { return api.Deref(p.ProcessName) == process })
}
