package gcp

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// computeService is Compute Engine in the billing catalog.
const computeService = "6F81-5844-456A"

// reservationKey is the key of the affinity for reservations by name.
const reservationKey = "compute.googleapis.com/reservation-name"

// getTemplate answers for global templates, and in a region for those of the region.
func (f *Front) getTemplate(c *call) (any, *cloudsim.Error) {
	t, refused := f.templateOf(c.PathValue("template"))
	if refused == nil && t.Region != c.PathValue("region") {
		refused = notFound("projects/" + f.config.Project + "/instanceTemplates/" + t.Name)
	}
	if refused != nil {
		return nil, refused
	}
	properties := map[string]any{
		"machineType": t.MachineType,
		"scheduling":  schedulingJSON{ProvisioningModel: cmp.Or(t.ProvisioningModel, modelStandard), OnHostMaintenance: f.onHostMaintenance(t)},
	}
	if len(t.Labels) > 0 {
		properties["labels"] = t.Labels
	}
	if t.PlacementPolicy != "" {
		properties["resourcePolicies"] = []string{t.PlacementPolicy}
	}
	items := []metadataItem{}
	for _, key := range slices.Sorted(maps.Keys(t.Metadata)) {
		items = append(items, metadataItem{key, t.Metadata[key]})
	}
	properties["metadata"] = metadataJSON{items}
	if t.DiskGB > 0 {
		properties["disks"] = []any{map[string]any{"boot": true, "initializeParams": map[string]any{"diskSizeGb": fmt.Sprint(t.DiskGB)}}}
	}
	if t.Reservation != "" {
		properties["reservationAffinity"] = map[string]any{
			"consumeReservationType": "SPECIFIC_RESERVATION", "key": reservationKey, "values": []string{t.Reservation},
		}
	}
	return map[string]any{"kind": "compute#instanceTemplate", "name": t.Name, "properties": properties}, nil
}

func (f *Front) getMachineType(c *call) (any, *cloudsim.Error) {
	t := f.machineType(c.PathValue("type"))
	if t == nil {
		return nil, notFound("projects/" + f.config.Project + "/zones/" + c.PathValue("zone") + "/machineTypes/" + c.PathValue("type"))
	}
	out := map[string]any{"kind": "compute#machineType", "name": t.Name, "guestCpus": t.VCPUs, "memoryMb": t.MemoryMB}
	if t.GPUs > 0 {
		out["accelerators"] = []any{map[string]any{"guestAcceleratorType": cmp.Or(t.GPUType, "nvidia-h100-80gb"),
			"guestAcceleratorCount": t.GPUs}}
	}
	return out, nil
}

func (f *Front) getRegion(c *call) (any, *cloudsim.Error) {
	name := c.PathValue("region")
	if !slices.Contains(f.scopes(), "regions/"+name) {
		return nil, notFound("projects/" + f.config.Project + "/regions/" + name)
	}
	return map[string]any{"kind": "compute#region", "name": name, "status": "UP", "quotas": f.quotasOf(name)}, nil
}

func (f *Front) getProject(*call) (any, *cloudsim.Error) {
	return map[string]any{"kind": "compute#project", "name": f.config.Project, "quotas": f.quotasOf("")}, nil
}

func (f *Front) quotasOf(region string) []any {
	out := []any{}
	for _, q := range f.config.Quotas {
		if q.Region == region {
			out = append(out, map[string]any{"metric": q.Metric, "limit": q.Limit, "usage": q.Usage})
		}
	}
	return out
}

// listAutoscalers answers for all zones and regions together.
func (f *Front) listAutoscalers(c *call) (any, *cloudsim.Error) {
	var having []*group
	for _, g := range f.groups {
		if g.Autoscaler != nil {
			having = append(having, g)
		}
	}
	cut, next, refused := page(f, c, having)
	if refused != nil {
		return nil, refused
	}
	items := map[string]map[string][]any{}
	for _, g := range cut {
		if items[g.scope()] == nil {
			items[g.scope()] = map[string][]any{}
		}
		items[g.scope()]["autoscalers"] = append(items[g.scope()]["autoscalers"], map[string]any{
			"name": g.Name + "-autoscaler", "target": f.link(g.scope() + "/instanceGroupManagers/" + g.Name),
			"autoscalingPolicy": map[string]any{"mode": g.Autoscaler.Mode, "minNumReplicas": g.Autoscaler.Min, "maxNumReplicas": g.Autoscaler.Max},
		})
	}
	return aggregated(f, c, "compute#autoscalerAggregatedList", items, next)
}

// advise returns how likely Spot VMs are available. It supports no other VMs, and only the beta of the API supports Spot.
func (f *Front) advise(c *call, version string) (any, *cloudsim.Error) {
	var in struct {
		Size         int              `json:"size"`
		Distribution distributionJSON `json:"distributionPolicy"`
		Flexibility  struct {
			Selections map[string]typesJ `json:"instanceSelections"`
		} `json:"instanceFlexibilityPolicy"`
		Properties struct {
			Scheduling schedulingJSON `json:"scheduling"`
		} `json:"instanceProperties"`
	}
	if refused := c.read(&in); refused != nil {
		return nil, refused
	}
	switch {
	case in.Size < 1:
		return nil, invalid("size", fmt.Sprint(in.Size), "Must be greater than 0.")
	case in.Properties.Scheduling.ProvisioningModel == modelSpot && version != "beta":
		return nil, invalid("instanceProperties.scheduling.provisioningModel", modelSpot, "SPOT is not supported.")
	case in.Properties.Scheduling.ProvisioningModel != modelSpot:
		return nil, invalid("instanceProperties.scheduling.provisioningModel", in.Properties.Scheduling.ProvisioningModel,
			"Only SPOT is supported.")
	case len(in.Distribution.Zones) != 1 || len(in.Flexibility.Selections) != 1:
		return nil, invalid("instanceFlexibilityPolicy", "", "Give one zone and one selection.")
	}
	zone := in.Distribution.Zones[0].Zone
	zone = zone[strings.LastIndexByte(zone, '/')+1:]
	for _, o := range f.config.Obtainability {
		for _, selection := range in.Flexibility.Selections {
			if o.Zone == zone && slices.Contains(selection.MachineTypes, o.MachineType) {
				return map[string]any{"recommendations": []any{map[string]any{
					"scores": map[string]any{"obtainability": float64(o.Milli) / 1000, "estimatedUptime": "3600s"},
				}}}, nil
			}
		}
	}
	return map[string]any{}, nil
}

// listSKUs answers as the Billing Catalog does.
func (f *Front) listSKUs(c *call) (any, *cloudsim.Error) {
	if c.PathValue("service") != computeService {
		return nil, notFound("services/" + c.PathValue("service"))
	}
	cut, next, refused := page(f, c, f.config.SKUs)
	if refused != nil {
		return nil, refused
	}
	skus := []any{}
	for _, s := range cut {
		skus = append(skus, map[string]any{
			"description": s.Description, "serviceRegions": s.Regions, "category": map[string]string{"usageType": s.UsageType},
			"pricingInfo": []any{map[string]any{"pricingExpression": map[string]any{"usageUnit": "h", "tieredRates": []any{map[string]any{
				"startUsageAmount": 0,
				"unitPrice":        map[string]any{"currencyCode": "USD", "units": fmt.Sprint(s.Nanos / 1e9), "nanos": s.Nanos % 1e9},
			}}}}},
		})
	}
	return map[string]any{"skus": skus, "nextPageToken": next}, nil
}

// testPermissions answers with those of the permissions that the caller has.
func (f *Front) testPermissions(c *call) (any, *cloudsim.Error) {
	var in struct {
		Permissions []string `json:"permissions"`
	}
	if refused := c.read(&in); refused != nil {
		return nil, refused
	}
	if len(in.Permissions) > 100 {
		return nil, refusal(http.StatusBadRequest, "invalid", "At most 100 permissions can be tested at once.")
	}
	return map[string]any{"permissions": slices.DeleteFunc(in.Permissions, func(p string) bool {
		return slices.Contains(f.config.Denied, p)
	})}, nil
}
