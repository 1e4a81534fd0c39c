package aws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	makeGroup   = ec2Call + "CreatePlacementGroup&Strategy=cluster&GroupName=gang"
	deleteGroup = ec2Call + "DeletePlacementGroup&GroupName=gang"
	reserveIn   = ec2Call + "CreateCapacityReservation&InstanceType=p5.48xlarge&AvailabilityZone=us-east-1a&InstanceCount=2" +
		"&InstancePlatform=Linux/UNIX&InstanceMatchCriteria=targeted&PlacementGroupArn=arn:aws:ec2:us-east-1:000000000000:placement-group/gang"
	topologyOf = ec2Call + "DescribeCapacityReservationTopology&CapacityReservationId.1=cr-00000000000000001"
)

// What a placement group forbids, by the codes of the EC2 API reference.
func TestPlacementGroups(t *testing.T) {
	runIn := run + "&Placement.GroupName=gang"
	blocksOnly := func(c *Config) { c.Types[0].Sold = []string{"capacity-block"} }
	for name, c := range map[string]struct {
		change func(*Config)
		before []string
		form   string
		want   string
	}{
		"made":                     {form: makeGroup, want: "<groupArn>arn:aws:ec2:us-east-1:000000000000:placement-group/gang</groupArn>"},
		"made twice":               {before: []string{makeGroup}, form: makeGroup, want: "<Code>InvalidPlacementGroup.Duplicate</Code>"},
		"a name that is too long":  {form: makeGroup + strings.Repeat("x", 252), want: "<Code>InvalidParameterValue</Code>"},
		"listed":                   {before: []string{makeGroup}, form: ec2Call + "DescribePlacementGroups&GroupName.1=gang", want: "<groupName>gang</groupName>"},
		"listed, and not there":    {form: ec2Call + "DescribePlacementGroups&GroupName.1=gang", want: "<Code>InvalidPlacementGroup.Unknown</Code>"},
		"filtered, and not there":  {form: ec2Call + "DescribePlacementGroups&Filter.1.Name=group-name&Filter.1.Value.1=gang", want: "<placementGroupSet></placementGroupSet>"},
		"launched into":            {before: []string{makeGroup}, form: runIn, want: "<groupName>gang</groupName>"},
		"launched, and not there":  {form: runIn, want: "<Code>InvalidPlacementGroup.Unknown</Code>"},
		"of a type that it is for": {before: []string{makeGroup}, form: ec2Call + "DescribeInstanceTypes", want: "<item>cluster</item>"},
		"what a type is sold as": {form: ec2Call + "DescribeInstanceTypes",
			want: "<supportedUsageClasses><item>on-demand</item><item>spot</item><item>capacity-block</item></supportedUsageClasses>"},
		"launched by a type that is sold in blocks only": {change: blocksOnly, form: run, want: "<Code>Unsupported</Code>"},
		"reserved for a type that is sold in blocks only": {change: blocksOnly, form: strings.Split(reserveIn, "&PlacementGroupArn")[0],
			want: "<Code>Unsupported</Code>"},
		"launched by a type without clusters": {
			change: func(c *Config) { c.Types[0].NotClustered = true }, before: []string{makeGroup}, form: runIn,
			want: "<Code>InvalidParameterCombination</Code><Message>Cluster placement groups are not supported by the &#39;p5.48xlarge&#39; " +
				"instance type.",
		},
		"deleted":                   {before: []string{makeGroup}, form: deleteGroup, want: "<return>true</return>"},
		"deleted, and not there":    {form: deleteGroup, want: "<Code>InvalidPlacementGroup.Unknown</Code>"},
		"deleted with a machine":    {before: []string{makeGroup, runIn}, form: deleteGroup, want: "<Code>InvalidPlacementGroup.InUse</Code>"},
		"reserved in":               {before: []string{makeGroup}, form: reserveIn, want: "<placementGroupArn>arn:aws:ec2:us-east-1:000000000000:placement-group/gang<"},
		"reserved in, not there":    {form: reserveIn, want: "<Code>InvalidPlacementGroup.Unknown</Code>"},
		"deleted with reservations": {before: []string{makeGroup, reserveIn}, form: deleteGroup, want: "<Code>InvalidPlacementGroup.InUse</Code>"},
		"in another zone": {
			change: func(c *Config) { c.Subnets = append(c.Subnets, Subnet{ID: "subnet-b", Zone: "us-east-1b"}) },
			before: []string{makeGroup, runIn}, form: strings.NewReplacer("subnet-a", "subnet-b", "ClientToken=t", "ClientToken=t2").Replace(runIn),
			want: "<Code>InvalidPlacementGroup.InUse</Code><Message>The placement group &#39;gang&#39; is in use in another availability zone: " +
				"us-east-1a",
		},
		"looked at": {
			before: []string{makeGroup, reserveIn}, form: topologyOf,
			want: "<networkNodeSet><item>nn-us-east-1a-1</item><item>nn-2a</item><item>nn-3a</item></networkNodeSet>",
		},
		"looked at, and less is told": {
			change: func(c *Config) { c.NetworkNodes = 2 }, before: []string{makeGroup, reserveIn}, form: topologyOf,
			want: "<networkNodeSet><item>nn-us-east-1a-1</item><item>nn-2a</item></networkNodeSet>",
		},
		"looked at, and scattered": {
			before: []string{strings.Split(reserveIn, "&PlacementGroupArn")[0]}, form: topologyOf,
			want: "<networkNodeSet><item>nn-us-east-1a-1</item></networkNodeSet>",
		},
		"looked at, and ended": {
			before: []string{makeGroup, reserveIn, ec2Call + "CancelCapacityReservation&CapacityReservationId=cr-00000000000000001"},
			form:   topologyOf,
			want:   "<networkNodeSet></networkNodeSet>",
		},
		"looked at, and not there": {form: topologyOf, want: "<Code>InvalidCapacityReservationId.NotFound</Code>"},
	} {
		t.Run(name, func(t *testing.T) {
			account := config()
			if c.change != nil {
				c.change(&account)
			}
			_, to := serve(t, account)
			for _, form := range c.before {
				if status, body := post(t, to, form); status != 200 {
					t.Fatalf("%s got %d %s", form, status, body)
				}
			}
			if _, body := post(t, to, c.form); !strings.Contains(body, c.want) {
				t.Errorf("got %s, want %s", body, c.want)
			}
		})
	}
}

// An account has 500 placement groups in a region at most.
func TestPlacementGroupsAreLimited(t *testing.T) {
	_, to := serve(t, config())
	for i := range mostPlacementGroups {
		post(t, to, fmt.Sprint(makeGroup, i))
	}
	if status, body := post(t, to, makeGroup); status != 400 || !strings.Contains(body, "<Code>PlacementGroupLimitExceeded</Code>") {
		t.Errorf("one more got %d %s", status, body)
	}
}

// What comes into a placement group shares its network nodes, and what does not fit there is a lack of capacity.
func TestAPlacementGroupIsOneDomain(t *testing.T) {
	world, to := serve(t, config())
	post(t, to, makeGroup)
	runIn := strings.NewReplacer("MinCount=1", "MinCount=4", "MaxCount=1", "MaxCount=4").Replace(run) + "&Placement.GroupName=gang"
	if status, body := post(t, to, runIn); status != 200 {
		t.Fatal(body)
	}
	for _, in := range world.Instances(true) {
		if in.Domain() != "nn-3a" {
			t.Errorf("machine %s is in %s, want it with the others in nn-3a", in.ID, in.Domain())
		}
	}
	if _, body := post(t, to, strings.Replace(runIn, "ClientToken=t", "ClientToken=t2", 1)); !strings.Contains(body,
		"<Code>InsufficientInstanceCapacity</Code>") {
		t.Errorf("4 more got %s, and there is room for 2", body)
	}
}

// racks are the domains of the pool of the tests.
var racks = v1alpha1.KwokDomains{
	NodeLabel: networkLayer + "3", Placement: v1alpha1.PlacedScattered,
	Of: []v1alpha1.KwokDomain{
		{Name: "nn-3a", Machines: 6, Labels: map[string]string{networkLayer + "2": "nn-2a"}},
		{Name: "nn-3b", Machines: 600, Labels: map[string]string{networkLayer + "2": "nn-2b"}},
	},
}
