package gcp

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what stands in the project before anyone calls.
type Config struct {
	// Project is its ID.
	Project string `json:"project"`
	// OperationTime is how long operations run before they are done.
	OperationTime metav1.Duration `json:"operationTime,omitempty"`
	// PageSize is the most items of an answer; 0 stands for the cloud's 500.
	PageSize int `json:"pageSize,omitempty"`
	// Unreachable zones and regions are away: calls to them fail, and lists of all zones and regions warn of it or fail.
	Unreachable []string `json:"unreachable,omitempty"`
	// Denied are the permissions that the caller lacks.
	Denied []string `json:"denied,omitempty"`

	MachineTypes []MachineType `json:"machineTypes,omitempty"`
	Templates    []Template    `json:"templates,omitempty"`
	Groups       []Group       `json:"groups,omitempty"`
	SKUs         []SKU         `json:"skus,omitempty"`
	Reservations []Reservation `json:"reservations,omitempty"`
	// Quotas of regions and of the project. They bound nothing: what can be had is by the pools.
	Quotas []Quota `json:"quotas,omitempty"`
	// Obtainability is what the advice says of Spot VMs.
	Obtainability []Obtainability `json:"obtainability,omitempty"`
}

// MachineType is a type that every zone has.
type MachineType struct {
	Name     string `json:"name"`
	VCPUs    int32  `json:"vcpus"`
	MemoryMB int32  `json:"memoryMb"`
	GPUs     int32  `json:"gpus,omitempty"`
	GPUType  string `json:"gpuType,omitempty"`
}

// Template is an instance template.
type Template struct {
	Name string `json:"name"`
	// Region of a regional template; empty for a global one.
	Region      string `json:"region,omitempty"`
	MachineType string `json:"machineType"`
	// ProvisioningModel is STANDARD where it is empty.
	ProvisioningModel string `json:"provisioningModel,omitempty"`
	// Reservation that the VMs are bound to.
	Reservation string            `json:"reservation,omitempty"`
	DiskGB      int64             `json:"diskGb,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// PlacementPolicy of the VMs, for which a launch needs a permission. The project has had it for long.
	PlacementPolicy string `json:"placementPolicy,omitempty"`
	// OnHostMaintenance is TERMINATE or MIGRATE; where it is empty, TERMINATE for Spot VMs and those with GPUs.
	OnHostMaintenance string `json:"onHostMaintenance,omitempty"`
	// GracefulShutdown is how long a VM that is deleted goes on, PENDING_STOP and billed, unless the
	// call says that it is not to.
	GracefulShutdown metav1.Duration `json:"gracefulShutdown,omitempty"`
	// Node is what registers once a VM runs, whatever the template promises.
	Node kwokv1alpha1.MachineNode `json:"node,omitempty"`
}

// Reservation is a reservation of VMs, which a future reservation makes where From is later than
// the beginning of the world.
type Reservation struct {
	Name  string `json:"name"`
	Zone  string `json:"zone"`
	Count int64  `json:"count"`
	// From and Until count from the beginning of the world; an Until of zero means for ever. VMs
	// that are bound to it end with it.
	From  metav1.Duration `json:"from,omitempty"`
	Until metav1.Duration `json:"until,omitempty"`
	// Blocks of a dense reservation. Machines in them fill the domains of their pool.
	Blocks []ReservationBlock `json:"blocks,omitempty"`
}

// ReservationBlock is a block of a dense reservation.
type ReservationBlock struct {
	Name      string                `json:"name"`
	SubBlocks []ReservationSubBlock `json:"subBlocks"`
}

// ReservationSubBlock is a sub-block, which is the domain of its name of the pool of the machines.
type ReservationSubBlock struct {
	Name string `json:"name"`
	// Hosts is how many hosts it has. Degraded is how many of them are degraded.
	Hosts    int32 `json:"hosts"`
	Degraded int32 `json:"degraded,omitempty"`
}

// Group is a managed instance group.
type Group struct {
	Name string `json:"name"`
	// Zone of a zonal group, or Region of a regional one with the Zones that it
	// spreads over.
	Zone   string   `json:"zone,omitempty"`
	Region string   `json:"region,omitempty"`
	Zones  []string `json:"zones,omitempty"`
	// Template is the name of the instance template.
	Template string `json:"template"`
	// MachineTypes of the group's flexibility policy, where it has one.
	MachineTypes []string `json:"machineTypes,omitempty"`
	TargetSize   int      `json:"targetSize,omitempty"`
	// TargetSizeMode is INDIVIDUAL where it is empty.
	TargetSizeMode string `json:"targetSizeMode,omitempty"`
	// ActionOnFailure of a VM is REPAIR where it is empty.
	ActionOnFailure string `json:"actionOnFailure,omitempty"`
	// WorkloadPolicy of the group; empty for none.
	WorkloadPolicy string `json:"workloadPolicy,omitempty"`
	// UpdateType is OPPORTUNISTIC and Redistribution NONE where they are empty.
	UpdateType     string `json:"updateType,omitempty"`
	Redistribution string `json:"redistribution,omitempty"`
	// HealthCheck of the group's autohealing; empty for none.
	HealthCheck string      `json:"healthCheck,omitempty"`
	Autoscaler  *Autoscaler `json:"autoscaler,omitempty"`
	// Undeletable are the places, at the end of their names, of instances for which a call that
	// deletes several is refused as a whole.
	Undeletable []string `json:"undeletable,omitempty"`
}

// Autoscaler is the cloud's own autoscaler of a group.
type Autoscaler struct {
	// Mode is ON, ONLY_SCALE_OUT or OFF.
	Mode string `json:"mode"`
	Min  int32  `json:"min,omitempty"`
	Max  int32  `json:"max"`
}

// SKU is a line of the billing catalog.
type SKU struct {
	Description string   `json:"description"`
	UsageType   string   `json:"usageType"`
	Regions     []string `json:"regions"`
	// Nanos are billionths of a USD per hour of the unit.
	Nanos int64 `json:"nanos"`
}

// Quota of a region, or of the project if that is empty.
type Quota struct {
	Region string `json:"region,omitempty"`
	// Metric, for example PREEMPTIBLE_NVIDIA_H100_GPUS.
	Metric string  `json:"metric"`
	Limit  float64 `json:"limit"`
	Usage  float64 `json:"usage,omitempty"`
}

// Obtainability of Spot VMs of a type in a zone, in parts per thousand.
type Obtainability struct {
	Zone        string `json:"zone"`
	MachineType string `json:"machineType"`
	Milli       int32  `json:"milli"`
}

const (
	modelStandard         = "STANDARD"
	modelSpot             = "SPOT"
	modelFlexStart        = "FLEX_START"
	modelReservationBound = "RESERVATION_BOUND"
)

var models = []string{"", modelStandard, modelSpot, modelFlexStart, modelReservationBound}

// Validate says what is wrong, with the path of the field.
func (c *Config) Validate() error {
	if c.Project == "" {
		return fmt.Errorf("project is missing: give the ID of a project, for example my-project")
	}
	types := map[string]bool{}
	for i, t := range c.MachineTypes {
		at := fmt.Sprintf("machineTypes[%d]", i)
		switch {
		case t.Name == "":
			return fmt.Errorf("%s.name is missing: give a machine type, for example a3-highgpu-8g", at)
		case types[t.Name]:
			return fmt.Errorf("%s.name is %q once more: a machine type is listed once", at, t.Name)
		case t.VCPUs <= 0 || t.MemoryMB <= 0:
			return fmt.Errorf("%s: vcpus is %d and memoryMb %d: both must be greater than 0", at, t.VCPUs, t.MemoryMB)
		}
		types[t.Name] = true
	}
	templates := map[string]bool{}
	for i, t := range c.Templates {
		at := fmt.Sprintf("templates[%d]", i)
		switch {
		case t.Name == "":
			return fmt.Errorf("%s.name is missing: groups name their template", at)
		case templates[t.Name]:
			return fmt.Errorf("%s.name is %q once more: a template is listed once", at, t.Name)
		case !types[t.MachineType]:
			return fmt.Errorf("%s.machineType is %q: it must be one of machineTypes", at, t.MachineType)
		case !slices.Contains(models, t.ProvisioningModel):
			return fmt.Errorf("%s.provisioningModel is %q: it must be STANDARD, SPOT, FLEX_START or RESERVATION_BOUND", at, t.ProvisioningModel)
		}
		templates[t.Name] = true
	}
	return c.validateGroups(types)
}

func (c *Config) validateGroups(types map[string]bool) error {
	seen := map[string]bool{}
	for i, g := range c.Groups {
		at := fmt.Sprintf("groups[%d]", i)
		key := g.location() + "/" + g.Name
		switch {
		case g.Name == "":
			return fmt.Errorf("%s.name is missing: give the name of a managed instance group", at)
		case (g.Zone == "") == (g.Region == ""):
			return fmt.Errorf("%s: zone is %q and region %q: a group has one of them", at, g.Zone, g.Region)
		case g.Region != "" && len(g.Zones) == 0:
			return fmt.Errorf("%s.zones is missing: list the zones that the group spreads over", at)
		case seen[key]:
			return fmt.Errorf("%s is the group %s once more: a group is listed once", at, key)
		case g.TargetSize < 0:
			return fmt.Errorf("%s.targetSize is %d: it must not be negative", at, g.TargetSize)
		}
		for j, t := range g.MachineTypes {
			if !types[t] {
				return fmt.Errorf("%s.machineTypes[%d] is %q: it must be one of machineTypes", at, j, t)
			}
		}
		seen[key] = true
	}
	return nil
}

func (g *Group) location() string { return g.Zone + g.Region }

// capacityType is the capacity type of a provisioning model.
func capacityType(model string) v1alpha1.CapacityType {
	switch model {
	case modelSpot:
		return v1alpha1.Spot
	case modelReservationBound:
		return v1alpha1.Reserved
	default:
		return v1alpha1.OnDemand
	}
}

// regionOf a zone: us-central1 for us-central1-a.
func regionOf(zone string) string {
	if i := strings.LastIndexByte(zone, '-'); i > 0 {
		return zone[:i]
	}
	return zone
}
