// Package quotas reads the quotas of a project that VMs count against: GPUs and CPUs by region, and GPUs of all regions together, see
// https://docs.cloud.google.com/compute/resource-usage.
package quotas

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// allRegions is the quota of a project for its GPUs, beside those of regions. It is zero in new projects.
	allRegions = "GPUS_ALL_REGIONS"
	// perFamily is the quota of the accelerators that regions do not list: the standard one of H100 and newer. Only the Cloud Quotas API
	// and the console have it.
	perFamily = "GPUS_PER_GPU_FAMILY"
	// preemptible quotas are those of Spot and flex-start VMs. Without one they count against the standard quota.
	preemptible = "PREEMPTIBLE_"
)

// Of returns the quotas that the groups of a project count against. Places of a reservation count from when it was made, so groups of
// capacity type Reserved need nothing.
func Of(ctx context.Context, cloud *api.Client, project string, groups []cloudprovider.Found) (out []cloudprovider.Quota, err error) {
	r := &reader{cloud: cloud, project: project, regions: map[string][]*computepb.Quota{}}
	for i := range groups {
		if g := &groups[i]; g.Spec.CapacityType != v1alpha1.Reserved && g.Spec.GCP != nil && g.Spec.GCP.Project == project {
			if err := r.add(ctx, g); err != nil {
				return nil, fmt.Errorf("reading the quotas of project %s: %w", project, err)
			}
		}
	}
	return r.quotas, nil
}

type reader struct {
	cloud   *api.Client
	project string
	// regions are the quotas by region. Those of the project have an empty name.
	regions map[string][]*computepb.Quota
	quotas  []cloudprovider.Quota
}

// add adds what a group needs.
func (r *reader) add(ctx context.Context, g *cloudprovider.Found) error {
	shape, err := r.cloud.MachineType(ctx, r.project, g.Spec.Zone, g.Spec.GCP.MachineType)
	if err != nil {
		return err
	}
	region := api.Region(g.Spec.Zone)
	regional, err := r.read(ctx, region)
	if err != nil {
		return err
	}
	need := cloudprovider.QuotaNeed{Group: g.Name, Machines: int64(g.Spec.MaxNodes)}
	spot := g.Spec.CapacityType == v1alpha1.Spot || g.Spec.GCP.LaunchMethod == v1alpha1.GCPResizeRequest
	var gpus int64
	for _, a := range shape.GetAccelerators() {
		need.Each = int64(a.GetGuestAcceleratorCount())
		gpus += need.Each
		r.need(region, a.GetGuestAcceleratorType(), "GPUs", find(regional, spot, metricOf(a.GetGuestAcceleratorType())), need)
	}
	family, _, _ := strings.Cut(g.Spec.GCP.MachineType, "-")
	cpus := find(regional, spot, strings.ToUpper(family)+"_CPUS")
	if cpus == nil && gpus == 0 {
		cpus = find(regional, spot, "CPUS")
	}
	if need.Each = int64(shape.GetGuestCpus()); cpus != nil {
		r.need(region, "", "vCPUs", cpus, need)
	}
	if gpus == 0 {
		return nil
	}
	whole, err := r.read(ctx, "")
	if err != nil {
		return err
	}
	if all := find(whole, false, allRegions); all != nil {
		need.Each = gpus
		r.need("", "", "GPUs", all, need)
	}
	return nil
}

// read reads the quotas of a region, or of the project.
func (r *reader) read(ctx context.Context, region string) ([]*computepb.Quota, error) {
	if known, ok := r.regions[region]; ok {
		return known, nil
	}
	var err error
	if region == "" {
		r.regions[region], err = r.cloud.ProjectQuotas(ctx, r.project)
	} else {
		r.regions[region], err = r.cloud.RegionQuotas(ctx, r.project, region)
	}
	return r.regions[region], err
}

// need adds a need to a quota. It is nil for an accelerator that the region does not list.
func (r *reader) need(region, accelerator, unit string, q *computepb.Quota, need cloudprovider.QuotaNeed) {
	out := cloudprovider.Quota{Name: q.GetMetric(), Unit: unit, Limit: int64(q.GetLimit()), Used: int64(q.GetUsage())}
	if q == nil {
		out = cloudprovider.Quota{Name: perFamily + " of " + accelerator, Unit: unit, Limit: -1, Used: -1}
	}
	if region != "" {
		out.Name += " in " + region
	}
	i := slices.IndexFunc(r.quotas, func(o cloudprovider.Quota) bool { return o.Name == out.Name })
	if i < 0 {
		i = len(r.quotas)
		r.quotas = append(r.quotas, out)
	}
	r.quotas[i].Needs = append(r.quotas[i].Needs, need)
}

// find returns the quota of a metric, for Spot the preemptible one if the project has one.
func find(list []*computepb.Quota, spot bool, metric string) *computepb.Quota {
	of := func(metric string) *computepb.Quota {
		if i := slices.IndexFunc(list, func(q *computepb.Quota) bool { return q.GetMetric() == metric }); i >= 0 {
			return list[i]
		}
		return nil
	}
	if q := of(preemptible + metric); spot && q.GetLimit() > 0 {
		return q
	}
	return of(metric)
}

// memory is the size that the name of an accelerator ends in. Only that of the larger A100 is part of its metric.
var memory = regexp.MustCompile(`-[0-9]+gb$`)

// metricOf returns the metric of an accelerator: NVIDIA_A100_80GB_GPUS of nvidia-a100-80gb, NVIDIA_T4_GPUS of nvidia-tesla-t4.
func metricOf(accelerator string) string {
	name := strings.Replace(accelerator, "-tesla-", "-", 1)
	if name != "nvidia-a100-80gb" {
		name = memory.ReplaceAllString(name, "")
	}
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_GPUS"
}
