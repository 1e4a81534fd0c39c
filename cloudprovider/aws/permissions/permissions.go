// Package permissions has what IAM must grant Muster: the list of actions, the policy that grants no more, and tries that change nothing,
// by which missing ones are found.
package permissions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/cloudprovider/aws/prices"
)

// nowhere is a name that does not exist, for calls that have no dry run: a caller with the
// permission gets a not-found error.
const (
	nowhere         = "muster-permission-check"
	nowhereInstance = "i-00000000000000000"
	nowhereTemplate = "lt-00000000000000000"
)

// Examiner finds out which permissions the caller lacks.
type Examiner struct {
	region     string
	api        *api.Client
	inventory  *inventory.Inventory
	placements *placement.Groups
	prices     *prices.Table
}

// Config of an Examiner.
type Config struct {
	Region     string
	Inventory  *inventory.Inventory
	Placements *placement.Groups
	Prices     *prices.Table
}

// New returns an Examiner.
func New(client *api.Client, c Config) *Examiner {
	return &Examiner{region: c.Region, api: client, inventory: c.Inventory, placements: c.Placements, prices: c.Prices}
}

// permission is what a call needs, where the policy grants it, and a try of the call that changes
// nothing. Those in the scopes of what bears the cluster's tag can be tried only on something
// there; nil is for those that cannot be tried at all.
type permission struct {
	name  string
	scope scope
	try   func(context.Context, *Examiner, *target) error
}

// target is what there is to try permissions on; empty for nothing.
type target struct {
	// group of the cluster, a machine in it, and a machine, a reservation and a placement group of Muster's.
	group                                   *asgtypes.AutoScalingGroup
	member, machine, reservation, placement string
}

var permissions = []permission{
	{"autoscaling:CreateOrUpdateTags", ofGroups, func(ctx context.Context, e *Examiner, t *target) error {
		if t.group == nil || inventory.ClaimedBy(t.group) == "" {
			return nil
		}
		// The group has this tag.
		return e.api.CreateOrUpdateTags(ctx, asg.Tag(*t.group.AutoScalingGroupName, inventory.ClusterUIDTag, e.inventory.UID))
	}},
	{"autoscaling:DeleteTags", ofGroups, func(ctx context.Context, e *Examiner, t *target) error {
		if t.group == nil {
			return nil
		}
		return e.api.DeleteTags(ctx, asg.Tag(*t.group.AutoScalingGroupName, inventory.IntentTag+nowhere, ""))
	}},
	{"autoscaling:DescribeAutoScalingGroups", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := asg.Find(ctx, e.api, nowhere)
		return err
	}},
	{"autoscaling:DescribeAutoScalingInstances", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeAutoScalingInstances(ctx, []string{nowhereInstance})
		return err
	}},
	{"autoscaling:DescribeInstanceRefreshes", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeInstanceRefreshes(ctx, nowhere)
		return err
	}},
	{"autoscaling:DescribePolicies", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribePolicies(ctx, &autoscaling.DescribePoliciesInput{AutoScalingGroupName: aws.String(nowhere)})
		return err
	}},
	{"autoscaling:DescribeScheduledActions", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeScheduledActions(ctx, &autoscaling.DescribeScheduledActionsInput{AutoScalingGroupName: aws.String(nowhere)})
		return err
	}},
	{"autoscaling:LaunchInstances", ofGroups, func(ctx context.Context, e *Examiner, t *target) error {
		if t.group == nil {
			return nil
		}
		_, err := e.api.LaunchInstances(ctx, &autoscaling.LaunchInstancesInput{
			AutoScalingGroupName: t.group.AutoScalingGroupName, AvailabilityZones: []string{nowhere}, ClientToken: aws.String(nowhere),
			RequestedCapacity: aws.Int32(1), RetryStrategy: asgtypes.RetryStrategyNone,
		})
		return err
	}},
	{"autoscaling:TerminateInstanceInAutoScalingGroup", ofGroups, func(ctx context.Context, e *Examiner, t *target) error {
		if t.group == nil {
			return nil
		}
		err := e.api.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
			AutoScalingGroupName: t.group.AutoScalingGroupName, InstanceIds: []string{nowhereInstance},
			ShouldDecrementDesiredCapacity: aws.Bool(true),
		})
		return err
	}},
	{"ec2:CancelCapacityReservation", ofLaunches, func(ctx context.Context, e *Examiner, t *target) error {
		if t.reservation == "" {
			return nil
		}
		err := e.api.CancelCapacityReservation(ctx, &ec2.CancelCapacityReservationInput{DryRun: aws.Bool(true),
			CapacityReservationId: aws.String(t.reservation)})
		return err
	}},
	{"ec2:CreateCapacityReservation", launches, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.CreateCapacityReservation(ctx, &ec2.CreateCapacityReservationInput{
			DryRun: aws.Bool(true), InstanceCount: aws.Int32(1), InstanceType: aws.String("g6.xlarge"),
			InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, AvailabilityZone: aws.String(e.region + "a"),
		})
		return err
	}},
	{"ec2:CreateFleet", launches, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.CreateFleet(ctx, &ec2.CreateFleetInput{
			DryRun: aws.Bool(true), Type: ec2types.FleetTypeInstant,
			LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateId: aws.String(nowhereTemplate),
					Version: aws.String("1")},
			}},
			TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: aws.Int32(1)},
		})
		return err
	}},
	{"ec2:CreatePlacementGroup", launches, func(ctx context.Context, e *Examiner, _ *target) error {
		err := e.api.CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{DryRun: aws.Bool(true), GroupName: aws.String(nowhere),
			Strategy: ec2types.PlacementStrategyCluster})
		return err
	}},
	{"ec2:CreateTags", ofMembers, func(ctx context.Context, e *Examiner, t *target) error {
		if t.member == "" {
			return nil
		}
		err := e.api.CreateTags(ctx, &ec2.CreateTagsInput{
			DryRun: aws.Bool(true), Resources: []string{t.member}, Tags: inventory.TagList(e.inventory.Tags(nowhere, nowhere, nowhere, nowhere)),
		})
		return err
	}},
	{"ec2:DeletePlacementGroup", ofLaunches, func(ctx context.Context, e *Examiner, t *target) error {
		if t.placement == "" {
			return nil
		}
		err := e.api.DeletePlacementGroup(ctx, &ec2.DeletePlacementGroupInput{DryRun: aws.Bool(true), GroupName: aws.String(t.placement)})
		return err
	}},
	{"ec2:DescribeCapacityReservationTopology", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeCapacityReservationTopology(ctx, &ec2.DescribeCapacityReservationTopologyInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeCapacityReservations", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeInstanceTypeOfferings", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeInstanceTypes", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeInstances", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeLaunchTemplateVersions", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{DryRun: aws.Bool(true),
			LaunchTemplateId: aws.String(nowhereTemplate)})
		return err
	}},
	{"ec2:DescribePlacementGroups", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeSpotPriceHistory", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeSpotPriceHistory(ctx, &ec2.DescribeSpotPriceHistoryInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeSubnets", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:GetSpotPlacementScores", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.GetSpotPlacementScores(ctx, &ec2.GetSpotPlacementScoresInput{DryRun: aws.Bool(true), TargetCapacity: aws.Int32(1),
			InstanceTypes: []string{"g6.xlarge"}})
		return err
	}},
	{"ec2:RunInstances", launches, func(ctx context.Context, e *Examiner, _ *target) error { return e.tryRun(ctx, nowhereTemplate, nil) }},
	{"ec2:TerminateInstances", ofLaunches, func(ctx context.Context, e *Examiner, t *target) error {
		if t.machine == "" {
			return nil
		}
		err := e.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{DryRun: aws.Bool(true), InstanceIds: []string{t.machine}})
		return err
	}},
	{"eks:DescribeNodegroup", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.DescribeNodegroup(ctx, nowhere, nowhere)
		if api.HasCode(err, api.NoAnswer) {
			return nil // out of reach: a warning of the group says so
		}
		return err
	}},
	{"iam:CreateServiceLinkedRole", ofSpot, nil},
	{"iam:PassRole", ofNodes, func(ctx context.Context, e *Examiner, t *target) error {
		if t.group == nil || asg.TemplateOf(t.group, "") == nil || api.IsDenied(e.tryRun(ctx, nowhereTemplate, nil)) {
			return nil // a caller that may not launch at all gets that error
		}
		template := asg.TemplateOf(t.group, "")
		return e.tryRun(ctx, api.Deref(template.LaunchTemplateId), asg.VersionOf(template))
	}},
	{"kms:CreateGrant", ofKeys, nil},
	{"kms:Decrypt", ofKeys, nil},
	{"kms:DescribeKey", ofKeys, nil},
	{"kms:GenerateDataKeyWithoutPlaintext", ofKeys, nil},
	{"kms:ReEncryptFrom", ofKeys, nil},
	{"kms:ReEncryptTo", ofKeys, nil},
	{"pricing:GetProducts", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.prices.OnDemand(ctx, nowhere)
		return err
	}},
	{"servicequotas:ListServiceQuotas", reads, func(ctx context.Context, e *Examiner, _ *target) error {
		_, err := e.api.ListServiceQuotas(ctx)
		return err
	}},
}

// tryRun is a dry run of a launch by a template.
func (e *Examiner) tryRun(ctx context.Context, template string, version *string) error {
	_, err := e.api.RunInstances(ctx, &ec2.RunInstancesInput{
		DryRun: aws.Bool(true), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(template), Version: version},
	})
	return err
}

// Names are the actions of IAM that the calls of the adapter need, in order.
func Names() []string {
	out := make([]string, len(permissions))
	for i, p := range permissions {
		out[i] = p.name
	}
	return out
}

// Missing returns the permissions that the caller lacks. It uses dry runs of EC2 and, for calls without a dry run, calls that have no
// effect. It does not cover permissions on encryption keys and on the role of Spot, nor on groups, machines and reservations of the
// cluster before they exist. An error means that AWS gave no answer.
func (e *Examiner) Missing(ctx context.Context) (missing []string, err error) {
	t := e.target(ctx)
	for _, need := range permissions {
		if need.try == nil {
			continue
		}
		err := need.try(ctx, e, t)
		if err == nil || api.HasCode(err, "DryRunOperation") {
			continue
		}
		if api.HasCode(err, "UnauthorizedOperation", "AccessDenied", "AccessDeniedException") {
			missing = append(missing, lacks(err, need.name))
			continue
		}
		// With invalid credentials nothing is permitted, and one such answer stands for all.
		if !cloudprovider.IsRefused(err) || api.IsDenied(err) {
			return nil, fmt.Errorf("try %s: %w", need.name, err)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), nil
}

// lacks is the permission that a denied call lacks: a call may need others beside its own, and AWS names the one that is missing,
// unless it has encoded its message.
func lacks(err error, own string) string {
	for _, name := range Names() {
		if strings.Contains(err.Error(), "not authorized to perform: "+name+" ") {
			return name
		}
	}
	return own
}

// target finds something to try permissions on. What cannot be listed is not there: the
// permission to list it is tried, too.
func (e *Examiner) target(ctx context.Context) *target {
	t := &target{}
	list, _ := e.api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []asgtypes.Filter{{Name: aws.String("tag-key"), Values: []string{inventory.ClusterTag + e.inventory.Name}}},
	})
	for i := range list {
		if uid := inventory.ClaimedBy(&list[i]); (uid == "" && t.group == nil) || uid == e.inventory.UID {
			t.group = &list[i]
		}
	}
	if t.group != nil && len(t.group.Instances) > 0 {
		t.member = api.Deref(t.group.Instances[0].InstanceId)
	}
	machines, _ := e.inventory.Instances(ctx, e.inventory.Ours()...)
	for id := range machines {
		t.machine = max(t.machine, id)
	}
	reservations, _ := e.inventory.Reservations(ctx)
	for _, r := range reservations {
		t.reservation = r.Hold.Name
	}
	placements, _ := e.placements.List(ctx, e.inventory.Ours()...)
	for _, g := range placements {
		t.placement = api.Deref(g.GroupName)
	}
	return t
}
