package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// nowhere is a name that does not exist, for calls that have no dry run: a caller with the
// permission gets a not-found error.
const (
	nowhere         = "muster-permission-check"
	nowhereInstance = "i-00000000000000000"
	nowhereTemplate = "lt-00000000000000000"
)

// permission is what a call needs, and a try of the call that changes nothing.
type permission struct {
	name string
	try  func(context.Context, *Provider) error
}

var permissions = []permission{
	{"autoscaling:CreateOrUpdateTags", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.CreateOrUpdateTags(ctx, &autoscaling.CreateOrUpdateTagsInput{Tags: nowhereTags})
		return err
	}},
	{"autoscaling:DeleteTags", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.DeleteTags(ctx, &autoscaling.DeleteTagsInput{Tags: nowhereTags})
		return err
	}},
	{"autoscaling:DescribeAutoScalingGroups", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.DescribeAutoScalingGroups(ctx,
			&autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{nowhere}})
		return err
	}},
	{"autoscaling:DescribeAutoScalingInstances", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.DescribeAutoScalingInstances(ctx,
			&autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: []string{nowhereInstance}})
		return err
	}},
	{"autoscaling:DescribeInstanceRefreshes", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.DescribeInstanceRefreshes(ctx,
			&autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: aws.String(nowhere)})
		return err
	}},
	{"autoscaling:DescribePolicies", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.DescribePolicies(ctx, &autoscaling.DescribePoliciesInput{MaxRecords: aws.Int32(1)})
		return err
	}},
	{"autoscaling:DescribeScheduledActions", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.DescribeScheduledActions(ctx, &autoscaling.DescribeScheduledActionsInput{MaxRecords: aws.Int32(1)})
		return err
	}},
	{"autoscaling:LaunchInstances", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.LaunchInstances(ctx, &autoscaling.LaunchInstancesInput{
			AutoScalingGroupName: aws.String(nowhere), RequestedCapacity: aws.Int32(1), RetryStrategy: asgtypes.RetryStrategyNone,
		})
		return err
	}},
	{"autoscaling:TerminateInstanceInAutoScalingGroup", func(ctx context.Context, p *Provider) error {
		_, err := p.autoscaling.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(nowhere), InstanceIds: []string{nowhereInstance}, ShouldDecrementDesiredCapacity: aws.Bool(true),
		})
		return err
	}},
	{"ec2:CancelCapacityReservation", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.CancelCapacityReservation(ctx, &ec2.CancelCapacityReservationInput{DryRun: aws.Bool(true),
			CapacityReservationId: aws.String("cr-00000000000000000")})
		return err
	}},
	{"ec2:CreateCapacityReservation", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.CreateCapacityReservation(ctx, &ec2.CreateCapacityReservationInput{
			DryRun: aws.Bool(true), InstanceCount: aws.Int32(1), InstanceType: aws.String("g6.xlarge"),
			InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, AvailabilityZone: aws.String(p.config.Region + "a"),
		})
		return err
	}},
	{"ec2:CreateFleet", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.CreateFleet(ctx, &ec2.CreateFleetInput{
			DryRun: aws.Bool(true), Type: ec2types.FleetTypeInstant,
			LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateId: aws.String(nowhereTemplate),
					Version: aws.String("1")},
			}},
			TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: aws.Int32(1)},
		})
		return err
	}},
	{"ec2:CreateTags", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.CreateTags(ctx, &ec2.CreateTagsInput{
			DryRun: aws.Bool(true), Resources: []string{nowhereInstance}, Tags: tagList(map[string]string{launchTag: nowhere}),
		})
		return err
	}},
	{"ec2:DescribeCapacityReservations", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeInstanceTypeOfferings", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeInstanceTypes", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeInstances", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeLaunchTemplateVersions", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{DryRun: aws.Bool(true),
			LaunchTemplateId: aws.String(nowhereTemplate)})
		return err
	}},
	{"ec2:DescribeSpotPriceHistory", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.DescribeSpotPriceHistory(ctx, &ec2.DescribeSpotPriceHistoryInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:DescribeSubnets", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{DryRun: aws.Bool(true)})
		return err
	}},
	{"ec2:GetSpotPlacementScores", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.GetSpotPlacementScores(ctx, &ec2.GetSpotPlacementScoresInput{DryRun: aws.Bool(true), TargetCapacity: aws.Int32(1),
			InstanceTypes: []string{"g6.xlarge"}})
		return err
	}},
	{"ec2:RunInstances", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
			DryRun: aws.Bool(true), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
			LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(nowhereTemplate)},
		})
		return err
	}},
	{"ec2:TerminateInstances", func(ctx context.Context, p *Provider) error {
		_, err := p.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{DryRun: aws.Bool(true), InstanceIds: []string{nowhereInstance}})
		return err
	}},
	{"pricing:GetProducts", func(ctx context.Context, p *Provider) error {
		_, err := p.pricing.GetProducts(ctx, &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(1)})
		return err
	}},
}

var nowhereTags = []asgtypes.Tag{{
	Key: aws.String(intentTag + nowhere), Value: aws.String(""), PropagateAtLaunch: aws.Bool(false),
	ResourceId: aws.String(nowhere), ResourceType: aws.String("auto-scaling-group"),
}}

// Permissions are the actions of IAM that the calls of this package need, in order.
// Launch templates with an instance profile need iam:PassRole for its role, too.
func Permissions() []string {
	out := make([]string, len(permissions))
	for i, p := range permissions {
		out[i] = p.name
	}
	return out
}

// MissingPermissions implements cloudprovider.Examiner, by the dry runs of EC2, and by
// calls about things that do not exist where there is none. An error means that AWS
// was not asked in the end.
func (p *Provider) MissingPermissions(ctx context.Context) (missing []string, err error) {
	for _, need := range permissions {
		err := need.try(ctx, p)
		if err == nil || hasCode(err, "DryRunOperation") {
			continue
		}
		if hasCode(err, "UnauthorizedOperation", "AccessDenied", "AccessDeniedException") {
			missing = append(missing, need.name)
			continue
		}
		// With invalid credentials nothing is permitted, and one bad answer tells it for all.
		refused := cloudprovider.Refusal(refusal(err))
		if refused == nil && !isAboutNothing(err) || refused != nil && refused.Class == v1alpha1.Auth {
			return nil, fmt.Errorf("try %s: %w", need.name, refusal(err))
		}
	}
	slices.Sort(missing)
	return missing, nil
}
