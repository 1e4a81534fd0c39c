package aws

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// listedQuotas are the names that Service Quotas has for EC2.
var listedQuotas = []simaws.Quota{
	{Code: "L-0263D0A3", Name: "EC2-VPC Elastic IPs", Value: 5},
	{Code: "L-1216C47A", Name: "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", Value: 640},
	{Code: "L-DB2E81BA", Name: "Running On-Demand G and VT instances", Value: 96},
	{Code: "L-417A185B", Name: "Running On-Demand P instances", Value: 384},
	{Code: "L-43DA4232", Name: "Running On-Demand High Memory instances", Value: 0},
	{Code: "L-2C3B7624", Name: "Running On-Demand Trn instances", Value: 128},
	{Code: "L-34B43A08", Name: "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", Value: 1},
	{Code: "L-7212CCBC", Name: "All P4, P3 and P2 Spot Instance Requests", Value: 64},
	{Code: "L-C4BD4855", Name: "All P5 Spot Instance Requests", Value: 192},
	{Code: "L-3819A6DF", Name: "All G and VT Spot Instance Requests", Value: 2},
}

// TestQuotasOfInstanceTypes: each instance type counts against the quota that names its generation, or else its family.
func TestQuotasOfInstanceTypes(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Quotas, c.PageSize = listedQuotas, 3 }))
	for _, tc := range []struct {
		instanceType string
		capacityType v1alpha1.CapacityType
		want         string
		limit        int64
	}{
		{"p5.48xlarge", v1alpha1.OnDemand, "L-417A185B", 384},
		{"p5en.48xlarge", v1alpha1.Spot, "L-C4BD4855", 192},
		{"p4de.24xlarge", v1alpha1.Spot, "L-7212CCBC", 64},
		{"p6-b200.48xlarge", v1alpha1.OnDemand, "L-417A185B", 384},
		{"g6e.12xlarge", v1alpha1.OnDemand, "L-DB2E81BA", 96},
		{"g6e.12xlarge", v1alpha1.Spot, "L-3819A6DF", 2},
		{"vt1.3xlarge", v1alpha1.OnDemand, "L-DB2E81BA", 96},
		{"trn1n.32xlarge", v1alpha1.OnDemand, "L-2C3B7624", 128},
		{"m7i-flex.large", v1alpha1.Spot, "L-34B43A08", 1},
		{"c7g.16xlarge", v1alpha1.OnDemand, "L-1216C47A", 640},
		{"u-6tb1.56xlarge", v1alpha1.OnDemand, "L-43DA4232", 0},
		{"u7i-12tb.224xlarge", v1alpha1.OnDemand, "L-43DA4232", 0},
		{"p6-b200.48xlarge", v1alpha1.Spot, "Spot instances of type p6-b200.48xlarge", -1},
		{"dl1.24xlarge", v1alpha1.OnDemand, "OnDemand instances of type dl1.24xlarge", -1},
	} {
		g := cloudprovider.Found{Name: "gpu", Spec: nodeGroup(v1alpha1.AWSFleet, tc.capacityType).Spec}
		g.Spec.AWS.InstanceType = tc.instanceType
		list, err := s.provider().Quotas(context.Background(), []cloudprovider.Found{g})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || !strings.Contains(list[0].Name, tc.want) || list[0].Limit != tc.limit {
			t.Errorf("%s %s counts against %+v, want %s with %d", tc.capacityType, tc.instanceType, list, tc.want, tc.limit)
		}
	}
}

// TestQuotasAreSharedByGroups of one family and capacity type, and reservations need none.
func TestQuotasAreSharedByGroups(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Quotas = listedQuotas }))
	of := func(name string, capacityType v1alpha1.CapacityType, machines int32) cloudprovider.Found {
		g := cloudprovider.Found{Name: name, Spec: nodeGroup(v1alpha1.AWSFleet, capacityType).Spec}
		g.Spec.MaxNodes, g.Spec.Template.Capacity = machines, corev1.ResourceList{"cpu": resource.MustParse("192")}
		return g
	}
	groups := []cloudprovider.Found{of("a", v1alpha1.OnDemand, 2), of("b", v1alpha1.OnDemand, 1), of("spot", v1alpha1.Spot, 4),
		of("block", v1alpha1.Reserved, 64)}
	got, err := s.provider().Quotas(context.Background(), groups)
	if err != nil {
		t.Fatal(err)
	}
	want := []cloudprovider.Quota{
		{Name: "Running On-Demand P instances (L-417A185B)", Unit: "vCPUs", Limit: 384, Used: -1,
			Needs: []cloudprovider.QuotaNeed{{Group: "a", Each: 192, Machines: 2}, {Group: "b", Each: 192, Machines: 1}}},
		{Name: "All P5 Spot Instance Requests (L-C4BD4855)", Unit: "vCPUs", Limit: 192, Used: -1,
			Needs: []cloudprovider.QuotaNeed{{Group: "spot", Each: 192, Machines: 4}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("quotas (-want +got):\n%s", diff)
	}
	if got[0].Needed() != 576 || got[0].Allows(got[0].Needs[0]) != 2 || got[1].Allows(got[1].Needs[0]) != 1 {
		t.Errorf("%d are needed, %d and %d machines allowed", got[0].Needed(), got[0].Allows(got[0].Needs[0]), got[1].Allows(got[1].Needs[0]))
	}
}

// TestQuotasThatAreNotAnswered are unknown.
func TestQuotasThatAreNotAnswered(t *testing.T) {
	s := newSim(t, plenty(fault("ListServiceQuotas", cloudsim.CallLost)), account())
	groups := []cloudprovider.Found{{Name: "gpu", Spec: nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand).Spec}}
	if list, err := s.provider().Quotas(context.Background(), groups); err == nil || cloudprovider.IsRefused(err) {
		t.Errorf("the quotas are %v, and the error is %v", list, err)
	}
}
