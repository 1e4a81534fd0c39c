package asg

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// What a group may call a version of its launch template, instead of its number.
const (
	LatestVersion  = "$Latest"
	DefaultVersion = "$Default"
)

// Protects returns why machines of a launch template may not be launched beside their group, which
// would end them all the same.
const Protects = "its launch template protects machines from termination, and Muster has to end what it launches: turn off " +
	"DisableApiTermination"

// TemplateOf is the launch template by which a group makes machines of a type.
func TemplateOf(g *asgtypes.AutoScalingGroup, instanceType string) *asgtypes.LaunchTemplateSpecification {
	if g.MixedInstancesPolicy == nil || g.MixedInstancesPolicy.LaunchTemplate == nil {
		return g.LaunchTemplate
	}
	for _, o := range g.MixedInstancesPolicy.LaunchTemplate.Overrides {
		if api.Deref(o.InstanceType) == instanceType && o.LaunchTemplateSpecification != nil {
			return o.LaunchTemplateSpecification
		}
	}
	return g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification
}

// VersionOf is the version of a launch template that a group means.
func VersionOf(t *asgtypes.LaunchTemplateSpecification) *string {
	if api.Deref(t.Version) == "" {
		return aws.String(DefaultVersion)
	}
	return t.Version
}

// ReadTemplate returns a version of a launch template, with its data.
func ReadTemplate(ctx context.Context, client *api.Client, t *asgtypes.LaunchTemplateSpecification) (
	*ec2types.LaunchTemplateVersion, error) {
	version := *VersionOf(t)
	list, err := client.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateId: t.LaunchTemplateId, Versions: []string{version},
	})
	if cause := cloudprovider.CauseOf(err); cause != nil && cause.Class == v1alpha1.Config {
		return nil, fmt.Errorf("DescribeLaunchTemplateVersions: %w", cause) // the answer is that there is no such version
	}
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].LaunchTemplateData == nil {
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "NoLaunchTemplateVersion",
			Message: fmt.Sprintf("launch template %s has no version %s", api.Deref(t.LaunchTemplateName), version)}
	}
	return &list[0], nil
}
