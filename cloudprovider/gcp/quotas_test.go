package gcp_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestQuotas: a group counts against the quotas of its region for its GPUs and its family's CPUs, Spot and flex-start against the
// preemptible ones where the project has any, and all against the GPUs of all regions.
func TestQuotas(t *testing.T) {
	need := func(each int64, groups ...string) (out []cloudprovider.QuotaNeed) {
		for _, g := range groups {
			out = append(out, cloudprovider.QuotaNeed{Group: g + ".h100", Each: each, Machines: 100})
		}
		return out
	}
	const a100 = "a2-highgpu-8g"
	standard := gcpsim.Quota{Region: region, Metric: "NVIDIA_A100_GPUS", Limit: 16, Usage: 8}
	spot := gcpsim.Quota{Region: region, Metric: "PREEMPTIBLE_NVIDIA_A100_GPUS", Limit: 64}
	none := gcpsim.Quota{Region: region, Metric: "PREEMPTIBLE_NVIDIA_A100_GPUS"}
	all := gcpsim.Quota{Metric: "GPUS_ALL_REGIONS", Limit: 8}
	for _, tc := range []struct {
		name        string
		machineType string
		quotas      []gcpsim.Quota
		groups      []string
		want        []cloudprovider.Quota
	}{
		{name: "on demand", machineType: a100, quotas: []gcpsim.Quota{standard, spot, all}, groups: []string{"bulk"}, want: []cloudprovider.Quota{
			{Name: "NVIDIA_A100_GPUS in us-central1", Unit: "GPUs", Limit: 16, Used: 8, Needs: need(8, "bulk")},
			{Name: "GPUS_ALL_REGIONS", Unit: "GPUs", Limit: 8, Needs: need(8, "bulk")}}},
		{name: "Spot and flex-start", machineType: a100, quotas: []gcpsim.Quota{standard, spot}, groups: []string{"spot", "flex"}, want: []cloudprovider.Quota{
			{Name: "PREEMPTIBLE_NVIDIA_A100_GPUS in us-central1", Unit: "GPUs", Limit: 64, Needs: need(8, "spot", "flex")}}},
		{name: "Spot of a project that has no preemptible quota", machineType: a100, quotas: []gcpsim.Quota{standard, none}, groups: []string{"spot", "bulk"},
			want: []cloudprovider.Quota{
				{Name: "NVIDIA_A100_GPUS in us-central1", Unit: "GPUs", Limit: 16, Used: 8, Needs: need(8, "spot", "bulk")}}},
		{name: "GPUs whose quota the region lists for Spot alone", groups: []string{"bulk", "spot"}, quotas: []gcpsim.Quota{
			{Region: region, Metric: "PREEMPTIBLE_NVIDIA_H100_GPUS", Limit: 32}}, want: []cloudprovider.Quota{
			{Name: "GPUS_PER_GPU_FAMILY of nvidia-h100-80gb in us-central1", Unit: "GPUs", Limit: -1, Used: -1, Needs: need(8, "bulk")},
			{Name: "PREEMPTIBLE_NVIDIA_H100_GPUS in us-central1", Unit: "GPUs", Limit: 32, Needs: need(8, "spot")}}},
		{name: "another GPU", machineType: "g2-standard-96", groups: []string{"bulk"}, quotas: []gcpsim.Quota{standard,
			{Region: region, Metric: "NVIDIA_L4_GPUS", Limit: 800}}, want: []cloudprovider.Quota{
			{Name: "NVIDIA_L4_GPUS in us-central1", Unit: "GPUs", Limit: 800, Needs: need(8, "bulk")}}},
		{name: "a larger memory", machineType: "a2-ultragpu-8g", groups: []string{"bulk"}, quotas: []gcpsim.Quota{
			{Region: region, Metric: "NVIDIA_A100_GPUS", Limit: 1}, {Region: region, Metric: "NVIDIA_A100_80GB_GPUS", Limit: 2},
			{Region: region, Metric: "A2_CPUS", Limit: 3}}, want: []cloudprovider.Quota{
			{Name: "NVIDIA_A100_80GB_GPUS in us-central1", Unit: "GPUs", Limit: 2, Needs: need(8, "bulk")},
			{Name: "A2_CPUS in us-central1", Unit: "vCPUs", Limit: 3, Needs: need(96, "bulk")}}},
		{name: "machines without GPUs", machineType: "n1-standard-32", groups: []string{"bulk", "spot"}, quotas: []gcpsim.Quota{all,
			{Region: region, Metric: "CPUS", Limit: 72}, {Region: region, Metric: "PREEMPTIBLE_CPUS", Limit: 24}}, want: []cloudprovider.Quota{
			{Name: "CPUS in us-central1", Unit: "vCPUs", Limit: 72, Needs: need(32, "bulk")},
			{Name: "PREEMPTIBLE_CPUS in us-central1", Unit: "vCPUs", Limit: 24, Needs: need(32, "spot")}}},
		{name: "machines of a family with its own quota", machineType: "c3-standard-88", groups: []string{"bulk"}, quotas: []gcpsim.Quota{
			{Region: region, Metric: "CPUS", Limit: 72}, {Region: region, Metric: "C3_CPUS", Limit: 500}}, want: []cloudprovider.Quota{
			{Name: "C3_CPUS in us-central1", Unit: "vCPUs", Limit: 500, Needs: need(88, "bulk")}}},
		{name: "a reservation", quotas: []gcpsim.Quota{standard}, groups: []string{"reserved"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := simulated()
			sim.Quotas = tc.quotas
			sim.MachineTypes = append(sim.MachineTypes,
				gcpsim.MachineType{Name: a100, VCPUs: 96, MemoryMB: 1 << 20, GPUs: 8, GPUType: "nvidia-tesla-a100"},
				gcpsim.MachineType{Name: "a2-ultragpu-8g", VCPUs: 96, MemoryMB: 1 << 20, GPUs: 8, GPUType: "nvidia-a100-80gb"},
				gcpsim.MachineType{Name: "n1-standard-32", VCPUs: 32, MemoryMB: 1 << 17},
				gcpsim.MachineType{Name: "c3-standard-88", VCPUs: 88, MemoryMB: 1 << 18})
			l := newLab(t, cloudsim.Config{}, sim)
			var groups []cloudprovider.Found
			for _, name := range tc.groups {
				g := l.nodeGroup(name)
				if tc.machineType != "" {
					g.Spec.GCP.MachineType = tc.machineType
				}
				if name == "reserved" {
					g.Spec.CapacityType = v1alpha1.Reserved
				}
				groups = append(groups, cloudprovider.Found{Name: g.Name, Spec: g.Spec})
			}
			got, err := l.provider().Quotas(context.Background(), groups)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("quotas (-want +got):\n%s", diff)
			}
		})
	}
}

// TestQuotasThatAreNotAnswered are unknown.
func TestQuotasThatAreNotAnswered(t *testing.T) {
	for _, permission := range []string{"compute.regions.get", "compute.projects.get"} {
		sim := simulated()
		sim.Denied = []string{permission}
		l := newLab(t, cloudsim.Config{}, sim)
		if list, err := l.provider().Quotas(context.Background(), []cloudprovider.Found{{Spec: l.nodeGroup("bulk").Spec}}); err == nil {
			t.Errorf("without %s the quotas are %+v", permission, list)
		}
	}
}
