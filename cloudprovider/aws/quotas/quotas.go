// Package quotas reads the quotas of EC2 in an account. They count vCPUs of running machines by families of instance types, apart for
// On-Demand and Spot: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html.
package quotas

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// names of the quotas, which list the families: "Running On-Demand P instances", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z)
// instances", "All P4, P3 and P2 Spot Instance Requests".
var names = map[v1alpha1.CapacityType]*regexp.Regexp{
	v1alpha1.OnDemand: regexp.MustCompile(`^Running On-Demand (?:Standard \()?(.+?)\)? instances$`),
	v1alpha1.Spot:     regexp.MustCompile(`^All (?:Standard \()?(.+?)\)? Spot Instance Requests$`),
}

// highMemory is the family of types such as u-6tb1.56xlarge and u7i-12tb.224xlarge.
const highMemory = "High Memory"

var separator = regexp.MustCompile(`, | and `)

// Of returns the quotas that the groups count against. What a reservation holds counts from when it was made, so groups of capacity type
// Reserved need nothing.
func Of(ctx context.Context, client *api.Client, groups []cloudprovider.Found) (out []cloudprovider.Quota, err error) {
	if len(groups) == 0 {
		return nil, nil
	}
	list, err := client.ListServiceQuotas(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the quotas of EC2: %w", err)
	}
	at := map[string]int{}
	for i := range groups {
		g := &groups[i]
		if names[g.Spec.CapacityType] == nil || g.Spec.AWS == nil {
			continue
		}
		q := quotaOf(list, g.Spec.CapacityType, g.Spec.AWS.InstanceType)
		if _, known := at[q.Name]; !known {
			at[q.Name] = len(out)
			out = append(out, q)
		}
		in := &out[at[q.Name]]
		in.Needs = append(in.Needs, cloudprovider.QuotaNeed{
			Group: g.Name, Each: g.Spec.Template.Capacity.Cpu().Value(), Machines: int64(g.Spec.MaxNodes),
		})
	}
	return out, nil
}

// typeName is the family and the generation that an instance type begins with: p and 5 of p5en.48xlarge.
var typeName = regexp.MustCompile(`^([a-z]+)([0-9]*)`)

// quotaOf returns the quota of an instance type. The one of a generation, such as P5, comes before that of the whole family.
func quotaOf(list []types.ServiceQuota, capacity v1alpha1.CapacityType, instanceType string) cloudprovider.Quota {
	part := typeName.FindStringSubmatch(instanceType)
	if part == nil {
		part = []string{instanceType, instanceType, ""}
	}
	family := part[1]
	if family == "u" {
		family = highMemory
	}
	for _, name := range []string{part[0], family} {
		for i := range list {
			q := &list[i]
			if match := names[capacity].FindStringSubmatch(aws.ToString(q.QuotaName)); match != nil && lists(match[1], name) {
				return cloudprovider.Quota{Name: fmt.Sprintf("%s (%s)", *q.QuotaName, aws.ToString(q.QuotaCode)), Unit: "vCPUs",
					Limit: int64(aws.ToFloat64(q.Value)), Used: -1}
			}
		}
	}
	return cloudprovider.Quota{Name: fmt.Sprintf("%s instances of type %s", capacity, instanceType), Unit: "vCPUs", Limit: -1, Used: -1}
}

// lists reports whether the families of a quota's name contain one.
func lists(families, name string) bool {
	return slices.ContainsFunc(separator.Split(families, -1), func(family string) bool { return strings.EqualFold(family, name) })
}
