package gcp_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// catalog has the parts of an H100 machine under every consumption model: the words
// are nearly the same, the prices are not.
func catalog() []gcpsim.SKU {
	here, there := []string{region}, []string{"us-east4"}
	return []gcpsim.SKU{
		{Description: "A3 Instance Core running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 29_000_000},
		{Description: "A3 Instance Ram running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 2_500_000},
		{Description: "Nvidia H100 80GB GPU running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 9_796_000_000},
		{Description: "A3 Instance Core running in Virginia", UsageType: "OnDemand", Regions: there, Nanos: 1},
		{Description: "Spot Preemptible A3 Instance Core running in Americas", UsageType: "Preemptible", Regions: here, Nanos: 10_000_000},
		{Description: "Spot Preemptible A3 Instance Ram running in Americas", UsageType: "Preemptible", Regions: here, Nanos: 1_000_000},
		{Description: "Nvidia H100 80GB GPU attached to Spot Preemptible VMs running in Americas", UsageType: "Preemptible", Regions: here, Nanos: 2_000_000_000},
		{Description: "DWS Defined Duration A3 Instance Core running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 14_000_000},
		{Description: "Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 4_200_000_000},
		{Description: "Reserved A3 Instance Core running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 3},
		{Description: "A3 Instance Core running in Americas", UsageType: "Commit1Yr", Regions: here, Nanos: 4},
		{Description: "Nvidia H100 80GB Mega GPU running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 5},
		{Description: "A4 Nvidia B200 (1 gpu slice) running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 16_110_000_000},
		{Description: "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 4_719_000_000},
		{Description: "A4X Nvidia GB200 (1 gpu slice) running in Americas", UsageType: "OnDemand", Regions: here, Nanos: 18_000_000_000},
		{Description: "G4 Instance Core running in Iowa", UsageType: "OnDemand", Regions: here, Nanos: 48_910_000},
		{Description: "G4 Instance Ram running in Iowa", UsageType: "OnDemand", Regions: here, Nanos: 5_000_000},
		{Description: "RTX 6000 96GB running in Iowa", UsageType: "OnDemand", Regions: here, Nanos: 1_250_000_000},
		{Description: "H4D Instance Core running in Iowa", UsageType: "OnDemand", Regions: here, Nanos: 30_000_000},
		{Description: "H4D Instance Ram running in Iowa", UsageType: "OnDemand", Regions: here, Nanos: 3_000_000},
		{Description: "DWS Calendar Mode H4D Instance Core running in Iowa", UsageType: "OnDemand", Regions: here, Nanos: 7},
		{Description: "Commitment v1: A3 Ram in Americas for 1 Year", UsageType: "Commit1Yr", Regions: here, Nanos: 6},
	}
}

// TestPrices: an offering has the price of exactly one consumption model.
func TestPrices(t *testing.T) {
	for name, tc := range map[string]struct {
		template gcpsim.Template
		skus     []gcpsim.SKU
		lost     bool
		want     string // empty for none
	}{
		// 208 × 0.029 + 1872 × 0.0025 + 8 × 9.796
		"on demand": {skus: catalog(), want: "89.08"},
		"Spot":      {template: gcpsim.Template{ProvisioningModel: "SPOT"}, skus: catalog(), want: "19.952"},
		"flex-start costs no more than the floor": {template: gcpsim.Template{ProvisioningModel: "FLEX_START"}, skus: catalog(), want: "87.83"},
		"a reservation is paid for already":       {template: gcpsim.Template{ProvisioningModel: "RESERVATION_BOUND"}, skus: catalog(), want: "0"},
		"so is a reservation of standard VMs":     {template: gcpsim.Template{Reservation: "ours"}, skus: catalog(), want: "0"},
		"neither knows what it costs":             {template: gcpsim.Template{MachineType: "g2-standard-96", ProvisioningModel: "SPOT"}, skus: catalog()},
		"a catalog that lacks a part":             {skus: catalog()[:2], want: "87.83"},
		"a catalog out of reach":                  {skus: catalog(), lost: true, want: "87.83"},
		"A4 by the slice":                         {template: gcpsim.Template{MachineType: "a4-highgpu-8g"}, skus: catalog(), want: "128.88"},
		"Spot A4 by the slice":                    {template: gcpsim.Template{MachineType: "a4-highgpu-8g", ProvisioningModel: "SPOT"}, skus: catalog(), want: "37.752"},
		"A4X by the slice":                        {template: gcpsim.Template{MachineType: "a4x-highgpu-4g"}, skus: catalog(), want: "72"},
		// 48 × 0.04891 + 180 × 0.005 + 1.25
		"G4": {template: gcpsim.Template{MachineType: "g4-standard-48"}, skus: catalog(), want: "4.49768"},
		// 192 × 0.03 + 720 × 0.003
		"H4D, which has no GPU":             {template: gcpsim.Template{MachineType: "h4d-standard-192"}, skus: catalog(), want: "7.92"},
		"a price of the group's own":        {template: gcpsim.Template{Metadata: enabled("muster-dev-price-per-hour", "64.44")}, skus: catalog(), want: "64.44"},
		"Spot, and a catalog that lacks it": {template: gcpsim.Template{ProvisioningModel: "SPOT"}, want: "47.87"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := single(tc.template, gcpsim.Group{})
			sim.Project, sim.SKUs, sim.PageSize = project, tc.skus, 4
			sim.MachineTypes = append(simulated().MachineTypes,
				gcpsim.MachineType{Name: "a4-highgpu-8g", VCPUs: 224, MemoryMB: 3968 * 1024, GPUs: 8, GPUType: "nvidia-b200"},
				gcpsim.MachineType{Name: "a4x-highgpu-4g", VCPUs: 140, MemoryMB: 884 * 1024, GPUs: 4, GPUType: "nvidia-gb200"},
				gcpsim.MachineType{Name: "g4-standard-48", VCPUs: 48, MemoryMB: 180 * 1024, GPUs: 1, GPUType: "nvidia-rtx-pro-6000"},
				gcpsim.MachineType{Name: "h4d-standard-192", VCPUs: 192, MemoryMB: 720 * 1024})
			world := cloudsim.Config{}
			if tc.lost {
				world.Calls = []cloudsim.CallFault{{
					Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused, Action: "services.skus.list", Error: &cloudsim.Error{Code: "forbidden"},
					Until: metav1.Duration{Duration: 4 * time.Minute},
				}}
			}
			l := newLab(t, world, sim)
			p := l.provider()
			for _, want := range []string{tc.want, map[bool]string{true: "89.08", false: tc.want}[tc.lost]} {
				found, err := p.Discover(context.Background())
				if err != nil || len(found.Groups) != 1 {
					t.Fatalf("got %+v, %v", found, err)
				}
				got := ""
				if q := found.Groups[0].Spec.PricePerHour; q != nil {
					got = q.AsDec().String()
				}
				if !samePrice(got, want) {
					t.Errorf("got %s USD per hour, want %s", got, want)
				}
				l.clock.Step(5 * time.Minute)
			}
		})
	}
}

// TestPricesOutOfReach: in a network from which the catalog cannot be reached, discovery goes
// on with the prices that it knows.
func TestPricesOutOfReach(t *testing.T) {
	sim := single(gcpsim.Template{}, gcpsim.Group{})
	sim.Project, sim.MachineTypes = project, simulated().MachineTypes
	l := newLab(t, cloudsim.Config{Calls: []cloudsim.CallFault{{
		Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallUnanswered, Action: "services.skus.list",
	}}}, sim)
	p, done := l.provider(), make(chan cloudprovider.Discovery)
	go func() {
		found, err := p.Discover(context.Background())
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	l.untilAsleep()
	l.clock.Step(10 * time.Second)
	if found := <-done; len(found.Groups) != 1 || found.Groups[0].Spec.PricePerHour == nil {
		t.Errorf("got %+v, want a group with the price of the floor", found)
	}
}

func samePrice(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	x, y := resource.MustParse(a), resource.MustParse(b)
	return x.Cmp(y) == 0
}
