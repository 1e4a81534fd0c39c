package discover

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
)

// readCurrent reads what the current versions of all launch templates contain, unless few groups follow them.
func (d *discovery) readCurrent(ctx context.Context, groups []asgtypes.AutoScalingGroup) error {
	following := 0
	for i := range groups {
		if t := asg.TemplateOf(&groups[i], ""); t != nil && strings.HasPrefix(*asg.VersionOf(t), "$") {
			following++
		}
	}
	if following <= fewAtATime {
		return nil
	}
	list, err := d.api.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		Versions: []string{asg.LatestVersion, asg.DefaultVersion}, MaxResults: aws.Int32(200),
	})
	if err != nil {
		return err
	}
	for i := range list {
		v := &list[i]
		latest := api.Deref(v.LaunchTemplateId) + "/" + asg.LatestVersion
		if d.current[latest] == nil || api.Deref(d.current[latest].VersionNumber) < api.Deref(v.VersionNumber) {
			d.current[latest] = v
		}
		if api.Deref(v.DefaultVersion) {
			d.current[api.Deref(v.LaunchTemplateId)+"/"+asg.DefaultVersion] = v
		}
	}
	return nil
}

// templateVersion returns a version of a launch template, with its data. One that is named by its number is read once.
func (d *discovery) templateVersion(ctx context.Context, t *asgtypes.LaunchTemplateSpecification) (
	v *ec2types.LaunchTemplateVersion, err error) {
	key := api.Deref(t.LaunchTemplateId) + "/" + *asg.VersionOf(t)
	if v = d.current[key]; v != nil && v.LaunchTemplateData != nil {
		return v, nil
	}
	if v = d.facts.versions[key]; v == nil {
		if v, err = asg.ReadTemplate(ctx, d.api, t); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(*asg.VersionOf(t), "$") {
		d.versions[key] = v
	}
	return v, nil
}

// sourceOf names the launch template and its version; number is nil where only what the group says of it is known, such as $Latest.
func sourceOf(t *asgtypes.LaunchTemplateSpecification, number *int64) string {
	version := *asg.VersionOf(t)
	if number != nil {
		version = strconv.FormatInt(*number, 10)
	}
	return cmp.Or(api.Deref(t.LaunchTemplateId), api.Deref(t.LaunchTemplateName)) + "/" + version
}
