package aws

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what an account has in a region, beside the machines of the World.
type Config struct {
	// Region, for example us-east-1.
	Region string `json:"region"`
	// Groups are the Auto Scaling groups.
	Groups []Group `json:"groups,omitempty"`
	// Templates are the launch templates.
	Templates []Template `json:"templates,omitempty"`
	Subnets   []Subnet   `json:"subnets,omitempty"`
	Types     []Type     `json:"types,omitempty"`
	// Blocks are the Capacity Blocks that the account has bought.
	Blocks []Block `json:"blocks,omitempty"`
	// Refreshes, Policies and Schedules are what else changes Auto Scaling groups.
	Refreshes []Refresh   `json:"refreshes,omitempty"`
	Policies  []GroupItem `json:"policies,omitempty"`
	Schedules []GroupItem `json:"schedules,omitempty"`
	// Scores of placement by instance type, 1 to 10.
	Scores []Score `json:"scores,omitempty"`

	// Quotas of EC2 that Service Quotas lists. They bound nothing: what can be had is by the pools.
	Quotas []Quota `json:"quotas,omitempty"`

	// Unreachable zones are away: nothing can be launched or reserved there. What is listed and terminated in them still is, since
	// the API is that of the region.
	Unreachable []string `json:"unreachable,omitempty"`

	// Denied are the permissions that the caller lacks: of calls, for example ec2:CreateFleet, or additional ones: iam:PassRole,
	// iam:CreateServiceLinkedRole, kms:CreateGrant.
	Denied []string `json:"denied,omitempty"`
	// Cluster restricts the caller to what bears its tag: groups that are changed, machines and
	// reservations that are ended, as deploy/clouds does. Empty for no restriction.
	Cluster string `json:"cluster,omitempty"`
	// Protected are the IDs of the machines with termination protection. A call that terminates one of them fails as a whole.
	Protected []string `json:"protected,omitempty"`
	// ReservationDelay is how long a capacity reservation is pending.
	ReservationDelay metav1.Duration `json:"reservationDelay,omitempty"`
	// NetworkNodes is how many network nodes of a capacity reservation are returned at most; 0 for all nodes that its places share. AWS
	// returns one to three, depending on the kind of the reservation.
	NetworkNodes int `json:"networkNodes,omitempty"`
	// HalfLaunched are the fleets, by their place among all from 0, that keep what
	// came although it is below their minimum.
	HalfLaunched []int `json:"halfLaunched,omitempty"`
	// ListsTerminated is how long terminated machines are listed and found by ID; 0 for an hour.
	ListsTerminated metav1.Duration `json:"listsTerminated,omitempty"`
	// PageSize bounds the answers of lists; 0 for 1000.
	PageSize int `json:"pageSize,omitempty"`
}

// Quota of EC2, for example L-417A185B, "Running On-Demand P instances", in vCPUs.
type Quota struct {
	Code  string  `json:"code"`
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Group is an Auto Scaling group.
type Group struct {
	Name string `json:"name"`
	Min  int    `json:"min,omitempty"`
	Max  int    `json:"max"`
	// Desired is how many machines the group begins with.
	Desired int `json:"desired,omitempty"`
	// Template is the name of the launch template; empty for a group that still has
	// a launch configuration. Version is $Default where it is empty.
	Template string   `json:"template,omitempty"`
	Version  string   `json:"version,omitempty"`
	Subnets  []string `json:"subnets"`
	// Mixed is the mixed instances policy; nil for none.
	Mixed *Mixed            `json:"mixed,omitempty"`
	Tags  map[string]string `json:"tags,omitempty"`
	// Suspended are the names of the processes that are suspended, for example
	// AZRebalance.
	Suspended []string `json:"suspended,omitempty"`
	// WarmPool, MaxInstanceLifetime (seconds) and CapacityRebalance are settings by
	// which the group changes machines by itself.
	WarmPool            bool `json:"warmPool,omitempty"`
	MaxInstanceLifetime int  `json:"maxInstanceLifetime,omitempty"`
	CapacityRebalance   bool `json:"capacityRebalance,omitempty"`
	// NodeRepair says that EKS replaces the nodes of its managed node group that it finds unhealthy.
	NodeRepair bool `json:"nodeRepair,omitempty"`
	// TerminatingWait is how long a lifecycle hook holds a machine that the group terminates:
	// it goes on meanwhile, and is still a member. Zero for no hook.
	TerminatingWait metav1.Duration `json:"terminatingWait,omitempty"`
	// Retains: its lifecycle policy retains a machine whose lifecycle hook is abandoned. The machine runs until the group terminates it a
	// second time.
	Retains bool `json:"retains,omitempty"`
	// PlacementGroup of the machines that the group launches; empty for none.
	PlacementGroup string `json:"placementGroup,omitempty"`
	// Propagated are the tags that the group gives to the machines that it launches.
	Propagated map[string]string `json:"propagated,omitempty"`
}

// Mixed is a mixed instances policy.
type Mixed struct {
	// Types that are allowed; empty for that of the launch template.
	Types []string `json:"types,omitempty"`
	// Attributes stands for instance requirements in place of types.
	Attributes bool `json:"attributes,omitempty"`
	// OnDemandBase and OnDemandPercent say how much of it is bought on demand.
	OnDemandBase    int `json:"onDemandBase,omitempty"`
	OnDemandPercent int `json:"onDemandPercent,omitempty"`
}

// Template is a launch template with one version.
type Template struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Type string `json:"type,omitempty"`
	// MarketType that the template sets: spot, capacity-block, or empty.
	MarketType string `json:"marketType,omitempty"`
	// Reservation that the template's machines are launched into; empty for none.
	Reservation string `json:"reservation,omitempty"`
	// PlacementGroup that the template's machines are launched into; empty for none.
	PlacementGroup string `json:"placementGroup,omitempty"`
	// Tenancy of the template's machines, dedicated or host; empty for hardware that accounts share.
	Tenancy string `json:"tenancy,omitempty"`
	// Profile is the instance profile, whose role is passed to the machines; empty for none.
	Profile string `json:"profile,omitempty"`
	// Key encrypts the volumes; empty for the account's own.
	Key string `json:"key,omitempty"`
	// Interfaces are the network interfaces that the template attaches, beside which no call may
	// name a subnet; empty leaves them to the subnet.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// VolumeGiB is the size of the root volume; 0 leaves it to the image.
	VolumeGiB int `json:"volumeGiB,omitempty"`
	// Labels and Taints that its nodes register with. What the tags of a group
	// promise may be something else.
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
	// Ends is the code of the reason for which its machines end while they boot, for example
	// Client.InvalidSnapshot.NotFound; empty for none.
	Ends string `json:"ends,omitempty"`
	// NoNode says that its machines never join the cluster.
	NoNode bool `json:"noNode,omitempty"`
	// Protected says that its machines are protected from termination.
	Protected bool `json:"protected,omitempty"`
	// KeepsVolumes says that its volumes outlive their machines.
	KeepsVolumes bool `json:"keepsVolumes,omitempty"`
}

// Interface is a network interface of a launch template.
type Interface struct {
	// Type is interface, efa or efa-only.
	Type string `json:"type"`
	// Card and Device are its place in the machine.
	Card   int `json:"card,omitempty"`
	Device int `json:"device,omitempty"`
	// Groups are its security groups.
	Groups []string `json:"groups,omitempty"`
}

// Block is a Capacity Block: a reservation of a time that was paid for in advance. Its machines
// are terminated half an hour before its end.
type Block struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Zone  string `json:"zone"`
	Count int    `json:"count"`
	// From and Until count from the beginning of the world.
	From  metav1.Duration `json:"from,omitempty"`
	Until metav1.Duration `json:"until"`
}

// Subnet is in one zone.
type Subnet struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
	// Full subnets have no address left.
	Full bool `json:"full,omitempty"`
}

// Type is an instance type: what the cloud says of it, and what its nodes have.
type Type struct {
	Name      string `json:"name"`
	VCPUs     int    `json:"vCPUs"`
	MemoryMiB int    `json:"memoryMiB"`
	GPUs      int    `json:"gpus,omitempty"`
	// GPUMaker, for example NVIDIA.
	GPUMaker string `json:"gpuMaker,omitempty"`
	Neurons  int    `json:"neurons,omitempty"`
	// EFAs is how many Elastic Fabric Adapters a machine may have.
	EFAs int `json:"efas,omitempty"`
	// Sold are the capacity types of the type: on-demand, spot and capacity-block; empty for all of them.
	Sold []string `json:"sold,omitempty"`
	// NotClustered types cannot be in a placement group of the strategy cluster.
	NotClustered bool `json:"notClustered,omitempty"`
	// Interfaces and AddressesPerInterface bound the pods.
	Interfaces            int    `json:"interfaces,omitempty"`
	AddressesPerInterface int    `json:"addressesPerInterface,omitempty"`
	Arch                  string `json:"arch,omitempty"`
	// Capacity, Allocatable and Devices of the node that such a machine becomes.
	Capacity    corev1.ResourceList `json:"capacity,omitempty"`
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	Devices     corev1.ResourceList `json:"devices,omitempty"`
	// OnDemandUSD is the price of an hour in the price list; empty for none.
	OnDemandUSD string `json:"onDemandUSD,omitempty"`
}

// Refresh is an instance refresh.
type Refresh struct {
	Group string `json:"group"`
	// Status, for example InProgress or Successful.
	Status string `json:"status"`
}

// GroupItem is a scaling policy or a scheduled action of a group.
type GroupItem struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Disabled policies do nothing.
	Disabled bool `json:"disabled,omitempty"`
}

// Score is how likely the cloud thinks that Spot machines of a type come.
type Score struct {
	Type  string `json:"type"`
	Zone  string `json:"zone"`
	Score int    `json:"score"`
}

// Validate says what is wrong, with the path of the field.
func (c *Config) Validate() error {
	if c.Region == "" {
		return fmt.Errorf("region is missing: give a region, for example us-east-1")
	}
	for i, s := range c.Subnets {
		if s.ID == "" || s.Zone == "" {
			return fmt.Errorf("subnets[%d]: id is %q and zone %q: give both", i, s.ID, s.Zone)
		}
	}
	for i, t := range c.Templates {
		switch {
		case t.ID == "" || t.Name == "":
			return fmt.Errorf("templates[%d]: id is %q and name %q: give both", i, t.ID, t.Name)
		case t.MarketType != "" && t.MarketType != "spot" && t.MarketType != "capacity-block":
			return fmt.Errorf("templates[%d].marketType is %q: it must be spot, capacity-block or empty", i, t.MarketType)
		case t.Type != "" && c.typeOf(t.Type) == nil:
			return fmt.Errorf("templates[%d].type is %q: it must be the name of one of types", i, t.Type)
		}
	}
	for i, t := range c.Types {
		if t.Name == "" || t.VCPUs < 1 || t.MemoryMiB < 1 {
			return fmt.Errorf("types[%d]: name is %q, vCPUs %d and memoryMiB %d: give all three", i, t.Name, t.VCPUs, t.MemoryMiB)
		}
		for _, class := range t.Sold {
			if !slices.Contains(usageClasses, class) {
				return fmt.Errorf("types[%d].sold has %q: it must be of %s", i, class, strings.Join(usageClasses, ", "))
			}
		}
	}
	for i, b := range c.Blocks {
		if b.ID == "" || b.Count < 1 || b.Until.Duration <= b.From.Duration || c.typeOf(b.Type) == nil {
			return fmt.Errorf("blocks[%d]: id is %q, type %q, count %d, from %s and until %s: give an id, one of types, machines and a time", i,
				b.ID, b.Type, b.Count, b.From.Duration, b.Until.Duration)
		}
	}
	seen := map[string]bool{}
	for i, g := range c.Groups {
		at := fmt.Sprintf("groups[%d]", i)
		switch {
		case g.Name == "" || seen[g.Name]:
			return fmt.Errorf("%s.name is %q: each group needs a name of its own", at, g.Name)
		case g.Min < 0 || g.Max < g.Min:
			return fmt.Errorf("%s: min is %d and max %d: min must not be negative, nor max less than min", at, g.Min, g.Max)
		case g.Template != "" && c.template(g.Template) == nil:
			return fmt.Errorf("%s.template is %q: it must be the name of one of templates", at, g.Template)
		case len(g.Subnets) == 0:
			return fmt.Errorf("%s.subnets is empty: name at least one of subnets by its id", at)
		case g.Mixed != nil && (g.Mixed.OnDemandPercent < 0 || g.Mixed.OnDemandPercent > 100):
			return fmt.Errorf("%s.mixed.onDemandPercent is %d: it must be between 0 and 100", at, g.Mixed.OnDemandPercent)
		}
		seen[g.Name] = true
		for j, id := range g.Subnets {
			if c.subnet(id) == nil {
				return fmt.Errorf("%s.subnets[%d] is %q: it must be the id of one of subnets", at, j, id)
			}
		}
	}
	return nil
}

func find[T any](list []T, is func(*T) bool) *T {
	if i := slices.IndexFunc(list, func(v T) bool { return is(&v) }); i >= 0 {
		return &list[i]
	}
	return nil
}

// template by name or ID.
func (c *Config) template(name string) *Template {
	return find(c.Templates, func(t *Template) bool { return t.Name == name || t.ID == name })
}

func (c *Config) subnet(id string) *Subnet {
	return find(c.Subnets, func(s *Subnet) bool { return s.ID == id })
}

// block by ID; nil for other reservations.
func (c *Config) block(id string) *Block {
	return find(c.Blocks, func(b *Block) bool { return b.ID == id })
}

func (c *Config) typeOf(name string) *Type {
	return find(c.Types, func(t *Type) bool { return t.Name == name })
}

// Usage classes, as AWS calls the ways in which machines are sold.
const (
	onDemandClass = "on-demand"
	spotClass     = "spot"
	blockClass    = "capacity-block"
)

var usageClasses = []string{onDemandClass, spotClass, blockClass}

// soldAs are the ways in which the type is sold.
func (t *Type) soldAs() []string {
	if len(t.Sold) > 0 {
		return t.Sold
	}
	return usageClasses
}

// types of the group, and its capacity type; mixed groups have none.
func (c *Config) offers(g *Group) (types []string, capacityType v1alpha1.CapacityType, oneCapacityType bool) {
	t := c.template(g.Template)
	types, capacityType = []string{t.Type}, v1alpha1.OnDemand
	if t.MarketType == "spot" {
		capacityType = v1alpha1.Spot
	}
	if g.Mixed == nil {
		return types, capacityType, true
	}
	if len(g.Mixed.Types) > 0 {
		types = g.Mixed.Types
	}
	switch {
	case g.Mixed.OnDemandPercent == 100:
		return types, v1alpha1.OnDemand, true
	case g.Mixed.OnDemandPercent == 0 && g.Mixed.OnDemandBase == 0:
		return types, v1alpha1.Spot, true
	default:
		return types, "", false
	}
}
