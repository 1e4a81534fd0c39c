package api

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	quotatypes "github.com/aws/aws-sdk-go-v2/service/servicequotas/types"
)

// Calls that make machines or hold places for them. Only their errors can be Refusals.

func (c *Client) CreateCapacityReservation(ctx context.Context, in *ec2.CreateCapacityReservationInput) (
	*ec2.CreateCapacityReservationOutput, error) {
	return launch(ctx, c, "CreateCapacityReservation", in.ClientToken, c.ec2.CreateCapacityReservation, in)
}

func (c *Client) CreateFleet(ctx context.Context, in *ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error) {
	return launch(ctx, c, "CreateFleet", in.ClientToken, c.ec2.CreateFleet, in)
}

func (c *Client) LaunchInstances(ctx context.Context, in *autoscaling.LaunchInstancesInput) (
	*autoscaling.LaunchInstancesOutput, error) {
	return launch(ctx, c, "LaunchInstances", in.ClientToken, c.autoscaling.LaunchInstances, in)
}

func (c *Client) RunInstances(ctx context.Context, in *ec2.RunInstancesInput) (*ec2.RunInstancesOutput, error) {
	return launch(ctx, c, "RunInstances", in.ClientToken, c.ec2.RunInstances, in)
}

// Other calls that change something.

func (c *Client) CancelCapacityReservation(ctx context.Context, in *ec2.CancelCapacityReservationInput) error {
	_, err := beside(ctx, c, "CancelCapacityReservation", c.ec2.CancelCapacityReservation, in)
	return err
}

func (c *Client) CreateOrUpdateTags(ctx context.Context, tags ...asgtypes.Tag) error {
	_, err := beside(ctx, c, "CreateOrUpdateTags", c.autoscaling.CreateOrUpdateTags, &autoscaling.CreateOrUpdateTagsInput{Tags: tags})
	return err
}

func (c *Client) CreatePlacementGroup(ctx context.Context, in *ec2.CreatePlacementGroupInput) error {
	_, err := beside(ctx, c, "CreatePlacementGroup", c.ec2.CreatePlacementGroup, in)
	return err
}

// CreateTags of machines that were just created is retried until they are visible everywhere in AWS.
func (c *Client) CreateTags(ctx context.Context, in *ec2.CreateTagsInput) error {
	_, err := beside(ctx, c, "CreateTags", c.ec2.CreateTags, in, c.untilFound)
	return err
}

func (c *Client) DeletePlacementGroup(ctx context.Context, in *ec2.DeletePlacementGroupInput) error {
	_, err := beside(ctx, c, "DeletePlacementGroup", c.ec2.DeletePlacementGroup, in)
	return err
}

func (c *Client) DeleteTags(ctx context.Context, tags ...asgtypes.Tag) error {
	_, err := beside(ctx, c, "DeleteTags", c.autoscaling.DeleteTags, &autoscaling.DeleteTagsInput{Tags: tags})
	return err
}

func (c *Client) TerminateInstanceInAutoScalingGroup(ctx context.Context, in *autoscaling.TerminateInstanceInAutoScalingGroupInput) error {
	_, err := beside(ctx, c, "TerminateInstanceInAutoScalingGroup", c.autoscaling.TerminateInstanceInAutoScalingGroup, in)
	return err
}

func (c *Client) TerminateInstances(ctx context.Context, in *ec2.TerminateInstancesInput) error {
	_, err := beside(ctx, c, "TerminateInstances", c.ec2.TerminateInstances, in)
	return err
}

// MostNames is how many values a filter or a list of names takes.
const MostNames = 100

// Filter selects what has one of the values.
func Filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}

// Deref returns what a field of an answer points to; zero where AWS has left it out.
func Deref[T any](v *T) (out T) {
	if v != nil {
		out = *v
	}
	return out
}

// Calls that change nothing. Lists are returned whole.

func (c *Client) DescribeAutoScalingGroups(ctx context.Context, in *autoscaling.DescribeAutoScalingGroupsInput) (
	[]asgtypes.AutoScalingGroup, error) {
	in.MaxRecords = aws.Int32(100)
	return all(ctx, c, "DescribeAutoScalingGroups", autoscaling.NewDescribeAutoScalingGroupsPaginator(c.autoscaling, in),
		func(out *autoscaling.DescribeAutoScalingGroupsOutput) []asgtypes.AutoScalingGroup {
			return out.AutoScalingGroups
		})
}

func (c *Client) DescribeAutoScalingInstances(ctx context.Context, ids []string) (
	[]asgtypes.AutoScalingInstanceDetails, error) {
	pages := autoscaling.NewDescribeAutoScalingInstancesPaginator(c.autoscaling,
		&autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: ids})
	return all(ctx, c, "DescribeAutoScalingInstances", pages,
		func(out *autoscaling.DescribeAutoScalingInstancesOutput) []asgtypes.AutoScalingInstanceDetails {
			return out.AutoScalingInstances
		})
}

func (c *Client) DescribeCapacityReservations(ctx context.Context, in *ec2.DescribeCapacityReservationsInput) (
	[]ec2types.CapacityReservation, error) {
	in.MaxResults = aws.Int32(1000)
	return all(ctx, c, "DescribeCapacityReservations", ec2.NewDescribeCapacityReservationsPaginator(c.ec2, in),
		func(out *ec2.DescribeCapacityReservationsOutput) []ec2types.CapacityReservation {
			return out.CapacityReservations
		})
}

func (c *Client) DescribeCapacityReservationTopology(ctx context.Context, in *ec2.DescribeCapacityReservationTopologyInput) (
	*ec2.DescribeCapacityReservationTopologyOutput, error) {
	return beside(ctx, c, "DescribeCapacityReservationTopology", c.ec2.DescribeCapacityReservationTopology, in)
}

// DescribeInstanceRefreshes returns the newest of a group.
func (c *Client) DescribeInstanceRefreshes(ctx context.Context, group string) ([]asgtypes.InstanceRefresh, error) {
	out, err := beside(ctx, c, "DescribeInstanceRefreshes",
		c.autoscaling.DescribeInstanceRefreshes, &autoscaling.DescribeInstanceRefreshesInput{
			AutoScalingGroupName: aws.String(group), MaxRecords: aws.Int32(10),
		})
	if err != nil {
		return nil, err
	}
	return out.InstanceRefreshes, nil
}

func (c *Client) DescribeInstances(ctx context.Context, in *ec2.DescribeInstancesInput) ([]ec2types.Instance, error) {
	in.MaxResults = aws.Int32(1000)
	return all(ctx, c, "DescribeInstances", ec2.NewDescribeInstancesPaginator(c.ec2, in),
		func(out *ec2.DescribeInstancesOutput) (list []ec2types.Instance) {
			for _, r := range out.Reservations {
				list = append(list, r.Instances...)
			}
			return list
		})
}

func (c *Client) DescribeInstanceTypeOfferings(ctx context.Context, in *ec2.DescribeInstanceTypeOfferingsInput) (
	[]ec2types.InstanceTypeOffering, error) {
	in.MaxResults = aws.Int32(1000)
	return all(ctx, c, "DescribeInstanceTypeOfferings", ec2.NewDescribeInstanceTypeOfferingsPaginator(c.ec2, in),
		func(out *ec2.DescribeInstanceTypeOfferingsOutput) []ec2types.InstanceTypeOffering {
			return out.InstanceTypeOfferings
		})
}

func (c *Client) DescribeInstanceTypes(ctx context.Context, in *ec2.DescribeInstanceTypesInput) (
	[]ec2types.InstanceTypeInfo, error) {
	in.MaxResults = aws.Int32(100)
	return all(ctx, c, "DescribeInstanceTypes", ec2.NewDescribeInstanceTypesPaginator(c.ec2, in),
		func(out *ec2.DescribeInstanceTypesOutput) []ec2types.InstanceTypeInfo { return out.InstanceTypes })
}

func (c *Client) DescribeLaunchTemplateVersions(ctx context.Context, in *ec2.DescribeLaunchTemplateVersionsInput) (
	[]ec2types.LaunchTemplateVersion, error) {
	return all(ctx, c, "DescribeLaunchTemplateVersions", ec2.NewDescribeLaunchTemplateVersionsPaginator(c.ec2, in),
		func(out *ec2.DescribeLaunchTemplateVersionsOutput) []ec2types.LaunchTemplateVersion {
			return out.LaunchTemplateVersions
		})
}

func (c *Client) DescribePlacementGroups(ctx context.Context, in *ec2.DescribePlacementGroupsInput) (
	[]ec2types.PlacementGroup, error) {
	out, err := beside(ctx, c, "DescribePlacementGroups", c.ec2.DescribePlacementGroups, in)
	if err != nil {
		return nil, err
	}
	return out.PlacementGroups, nil
}

func (c *Client) DescribePolicies(ctx context.Context, in *autoscaling.DescribePoliciesInput) (
	[]asgtypes.ScalingPolicy, error) {
	in.MaxRecords = aws.Int32(100)
	return all(ctx, c, "DescribePolicies", autoscaling.NewDescribePoliciesPaginator(c.autoscaling, in),
		func(out *autoscaling.DescribePoliciesOutput) []asgtypes.ScalingPolicy { return out.ScalingPolicies })
}

func (c *Client) DescribeScheduledActions(ctx context.Context, in *autoscaling.DescribeScheduledActionsInput) (
	[]asgtypes.ScheduledUpdateGroupAction, error) {
	in.MaxRecords = aws.Int32(100)
	return all(ctx, c, "DescribeScheduledActions", autoscaling.NewDescribeScheduledActionsPaginator(c.autoscaling, in),
		func(out *autoscaling.DescribeScheduledActionsOutput) []asgtypes.ScheduledUpdateGroupAction {
			return out.ScheduledUpdateGroupActions
		})
}

func (c *Client) DescribeSpotPriceHistory(ctx context.Context, in *ec2.DescribeSpotPriceHistoryInput) (
	[]ec2types.SpotPrice, error) {
	in.MaxResults = aws.Int32(1000)
	return all(ctx, c, "DescribeSpotPriceHistory", ec2.NewDescribeSpotPriceHistoryPaginator(c.ec2, in),
		func(out *ec2.DescribeSpotPriceHistoryOutput) []ec2types.SpotPrice { return out.SpotPriceHistory })
}

func (c *Client) DescribeSubnets(ctx context.Context, in *ec2.DescribeSubnetsInput) ([]ec2types.Subnet, error) {
	in.MaxResults = aws.Int32(1000)
	return all(ctx, c, "DescribeSubnets", ec2.NewDescribeSubnetsPaginator(c.ec2, in),
		func(out *ec2.DescribeSubnetsOutput) []ec2types.Subnet { return out.Subnets })
}

// GetProducts returns those of the price list, each as JSON.
func (c *Client) GetProducts(ctx context.Context, in *pricing.GetProductsInput) ([]string, error) {
	return all(ctx, c, "GetProducts", pricing.NewGetProductsPaginator(c.pricing, in),
		func(out *pricing.GetProductsOutput) []string { return out.PriceList })
}

func (c *Client) GetSpotPlacementScores(ctx context.Context, in *ec2.GetSpotPlacementScoresInput) (
	[]ec2types.SpotPlacementScore, error) {
	return all(ctx, c, "GetSpotPlacementScores", ec2.NewGetSpotPlacementScoresPaginator(c.ec2, in),
		func(out *ec2.GetSpotPlacementScoresOutput) []ec2types.SpotPlacementScore {
			return out.SpotPlacementScores
		})
}

// ListServiceQuotas lists the quotas of EC2 as they are applied to the account.
func (c *Client) ListServiceQuotas(ctx context.Context) ([]quotatypes.ServiceQuota, error) {
	in := &servicequotas.ListServiceQuotasInput{ServiceCode: aws.String("ec2"), MaxResults: aws.Int32(100)}
	return all(ctx, c, "ListServiceQuotas", servicequotas.NewListServiceQuotasPaginator(c.quotas, in),
		func(out *servicequotas.ListServiceQuotasOutput) []quotatypes.ServiceQuota { return out.Quotas })
}
