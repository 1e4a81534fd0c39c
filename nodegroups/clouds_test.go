package nodegroups

import (
	"testing"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestProviderOf(t *testing.T) {
	for id, want := range map[string]v1alpha1.Provider{
		"aws:///us-east-1a/i-1":  v1alpha1.ProviderAWS,
		"gce://project/zone/a":   v1alpha1.ProviderGCP,
		"kwok://a":               v1alpha1.ProviderKwok,
		"moon://a":               "moon",
		"an ID without a scheme": "an ID without a scheme",
	} {
		if got := ProviderOf(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

func onAWS(change func(*v1alpha1.NodeGroupSpec)) *v1alpha1.NodeGroupSpec {
	spec := &v1alpha1.NodeGroupSpec{Provider: v1alpha1.ProviderAWS, CapacityType: v1alpha1.Spot, Zone: "a", MaxNodes: 8,
		AWS: &v1alpha1.AWSGroup{AutoScalingGroup: "gpus", InstanceType: "p5.48xlarge", Subnet: "subnet-1"}}
	change(spec)
	return spec
}

func onGCP(change func(*v1alpha1.NodeGroupSpec)) *v1alpha1.NodeGroupSpec {
	spec := &v1alpha1.NodeGroupSpec{Provider: v1alpha1.ProviderGCP, CapacityType: v1alpha1.Spot, Zone: "a", MaxNodes: 8,
		GCP: &v1alpha1.GCPGroup{InstanceGroupManager: "gpus", MachineType: "a3-highgpu-8g"}}
	change(spec)
	return spec
}

func TestMachineType(t *testing.T) {
	asIs := func(*v1alpha1.NodeGroupSpec) {}
	for want, spec := range map[string]*v1alpha1.NodeGroupSpec{
		"p5.48xlarge": onAWS(asIs), "a3-highgpu-8g": onGCP(asIs), "": {Provider: v1alpha1.ProviderKwok},
	} {
		if got := MachineType(spec); got != want {
			t.Errorf("%s: %q, want %q", spec.Provider, got, want)
		}
	}
}

func TestSameOffering(t *testing.T) {
	for name, tc := range map[string]struct {
		on     func(func(*v1alpha1.NodeGroupSpec)) *v1alpha1.NodeGroupSpec
		change func(*v1alpha1.NodeGroupSpec)
		want   bool
	}{
		"the size":                   {onAWS, func(s *v1alpha1.NodeGroupSpec) { s.MaxNodes = 2 }, true},
		"the launch method of AWS":   {onAWS, func(s *v1alpha1.NodeGroupSpec) { s.AWS.LaunchMethod = v1alpha1.AWSReservation }, true},
		"the reservation":            {onAWS, func(s *v1alpha1.NodeGroupSpec) { s.AWS.CapacityReservation = "cr-1" }, true},
		"the launch method of GCP":   {onGCP, func(s *v1alpha1.NodeGroupSpec) { s.GCP.LaunchMethod = v1alpha1.GCPResizeRequest }, true},
		"the zone":                   {onAWS, func(s *v1alpha1.NodeGroupSpec) { s.Zone = "b" }, false},
		"the capacity type":          {onGCP, func(s *v1alpha1.NodeGroupSpec) { s.CapacityType = v1alpha1.OnDemand }, false},
		"the type of instances":      {onAWS, func(s *v1alpha1.NodeGroupSpec) { s.AWS.InstanceType = "p4d.24xlarge" }, false},
		"the subnet":                 {onAWS, func(s *v1alpha1.NodeGroupSpec) { s.AWS.Subnet = "subnet-2" }, false},
		"the type of machines":       {onGCP, func(s *v1alpha1.NodeGroupSpec) { s.GCP.MachineType = "a2-highgpu-8g" }, false},
		"the cloud of the same zone": {onAWS, func(s *v1alpha1.NodeGroupSpec) { *s = *onGCP(func(*v1alpha1.NodeGroupSpec) {}) }, false},
	} {
		a, b := tc.on(func(*v1alpha1.NodeGroupSpec) {}), tc.on(tc.change)
		if got, back := SameOffering(a, b), SameOffering(b, a); got != tc.want || back != tc.want {
			t.Errorf("%s differs: same %t, the other way round %t, want %t", name, got, back, tc.want)
		}
	}
}
