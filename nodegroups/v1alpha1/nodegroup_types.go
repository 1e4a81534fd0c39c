package v1alpha1

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeGroup is a set of identical machines that Muster may launch and terminate.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ng
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.spec.capacityType`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.zone`
// +kubebuilder:printcolumn:name="USD/h",type=string,JSONPath=`.status.usdPerHour`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machines`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyNodes`
// +kubebuilder:printcolumn:name="Booked",type=integer,JSONPath=`.status.bookedNodes`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxNodes`
// +kubebuilder:printcolumn:name="Obtainable",type=string,JSONPath=`.status.conditions[?(@.type=="Obtainable")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Obtainable")].reason`
// +kubebuilder:printcolumn:name="Template-Matches",type=string,JSONPath=`.status.conditions[?(@.type=="TemplateMatches")].status`,priority=1
// +kubebuilder:printcolumn:name="Ends",type=string,JSONPath=`.spec.endsAt`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a NodeGroup is used as a label value: use at most 63 characters"
type NodeGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodeGroupSpec `json:"spec"`
	// +optional
	Status NodeGroupStatus `json:"status,omitempty"`
}

// NodeGroupSpec describes the machines of a group and bounds their number.
//
// +kubebuilder:validation:XValidation:rule="self.minNodes <= self.maxNodes",message="minNodes must not be greater than maxNodes"
// +kubebuilder:validation:XValidation:rule="self.provider != 'kwok' || has(self.kwok)",message="a group of provider kwok needs the field spec.kwok (it may be empty: {})"
// +kubebuilder:validation:XValidation:rule="self.provider != 'aws' || has(self.aws)",message="a group of provider aws needs the field spec.aws"
// +kubebuilder:validation:XValidation:rule="self.provider != 'gcp' || has(self.gcp)",message="a group of provider gcp needs the field spec.gcp"
// +kubebuilder:validation:XValidation:rule="self.provider == oldSelf.provider",message="provider cannot be changed: create another NodeGroup"
// +kubebuilder:validation:XValidation:rule="!has(self.topology) || !has(self.template.labels) || self.topology.all(l, !(l.nodeLabel in self.template.labels))",message="a label of spec.topology is also in spec.template.labels: keep it in template.labels if all machines of the group have the same value, else in topology"
type NodeGroupSpec struct {
	// provider is the cloud of the machines. It is immutable.
	// +required
	Provider Provider `json:"provider"`

	// scaledBy is what launches and terminates the machines. In groups of ClusterAutoscaler Muster
	// does neither by itself: it books free capacity there, and `muster externalgrpc` does what a
	// cluster-autoscaler requests.
	// +optional
	// +kubebuilder:default=Muster
	ScaledBy Scaler `json:"scaledBy,omitempty"`

	// minNodes is the number of machines that scale-down keeps. Muster does not launch
	// machines to reach it. 0 means that all idle machines are terminated.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MinNodes int32 `json:"minNodes"`

	// maxNodes is the maximum number of machines. 0 means that nothing is launched.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxNodes int32 `json:"maxNodes"`

	// capacityType is how the machines are paid for. Nodes have it as the label
	// muster.dev/capacity-type, in lower case with hyphens.
	// +optional
	// +kubebuilder:default=OnDemand
	CapacityType CapacityType `json:"capacityType,omitempty"`

	// zone is the failure domain of all machines of the group. Nodes have it as the label
	// topology.kubernetes.io/zone. Empty means that the zone is unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// pricePerHour is the price of one machine, in USD per hour. While it is unset the price is
	// unknown: other groups of the same capacity type are preferred, and launches under a price limit
	// or a budget do not use this one. Set 0 for machines that cost nothing.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`

	// joinTimeout is the time from the launch call until all nodes of the launch are ready
	// for pods, for example 15m. After it the launch is rolled back and another option is
	// tried. It must be greater than 0. Unset means 30m for machines with devices such as GPUs,
	// whose drivers and plugins take their time, else 15m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="joinTimeout must be positive, for example 15m"
	JoinTimeout *metav1.Duration `json:"joinTimeout,omitempty"`

	// queueTimeout is the time that a launch may wait in the cloud's own queue, for example
	// 24h, where its launch method has one: ResizeRequest on GCP. joinTimeout then begins once
	// the cloud has made the machines. Unset means that joinTimeout is for both.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="queueTimeout must be positive, for example 24h"
	QueueTimeout *metav1.Duration `json:"queueTimeout,omitempty"`

	// endsAt is when the cloud ends all machines of the group, such as those of a Capacity Block.
	// Unset means that it does not.
	// +optional
	EndsAt *metav1.Time `json:"endsAt,omitempty"`

	// idleTimeout is the time that a machine stays without pods and without a booking before
	// it is terminated, for example 10m. 0s means at once.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="idleTimeout must not be negative"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// template describes a node of this group.
	// +required
	Template NodeTemplate `json:"template"`

	// topology names the node labels that show where the cloud has placed a machine of the group,
	// such as its rack, and that are known only once it has joined. A gang that requires to be
	// within one domain of such a label is launched in this group alone: Muster waits for the
	// labels, keeps the machines of the largest domain and launches the others again, or takes
	// all back. A label that all machines have in common belongs in template.labels.
	// +optional
	// +listType=map
	// +listMapKey=nodeLabel
	// +kubebuilder:validation:MaxItems=16
	Topology []TopologyLevel `json:"topology,omitempty"`

	// kwok scripts the pool of simulated machines behind a group of provider
	// kwok.
	// +optional
	Kwok *KwokPool `json:"kwok,omitempty"`

	// aws is the offering of an Auto Scaling group behind a group of provider aws.
	// +optional
	AWS *AWSGroup `json:"aws,omitempty"`

	// gcp is the offering of a managed instance group behind a group of provider gcp.
	// +optional
	GCP *GCPGroup `json:"gcp,omitempty"`
}

// TopologyLevel is a kind of domain, such as racks, that the cloud puts machines in.
//
// +kubebuilder:validation:XValidation:rule="!(self.nodeLabel in ['kubernetes.io/hostname', 'topology.kubernetes.io/zone'])",message="a machine has its host name for itself, and the zone is that of spec.zone: name the label of what is between them, such as a rack"
type TopologyLevel struct {
	// nodeLabel is the key of the label whose value is the domain, for example
	// topology.k8s.aws/network-node-layer-3 or cloud.google.com/gce-topology-block.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	NodeLabel string `json:"nodeLabel"`

	// machinesPerDomain is the maximum number of machines that a launch can have in one domain,
	// such as 18 in a rack of NVL72. 0 means that it is unknown.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MachinesPerDomain int32 `json:"machinesPerDomain,omitempty"`
}

// Provider names a cloud.
// +kubebuilder:validation:Enum=kwok;aws;gcp
type Provider string

const (
	// ProviderKwok is the simulated cloud: machines are API objects that KWOK updates.
	ProviderKwok Provider = "kwok"
	// ProviderAWS is Amazon Web Services: machines are EC2 instances.
	ProviderAWS Provider = "aws"
	// ProviderGCP is Google Cloud: machines are Compute Engine VMs.
	ProviderGCP Provider = "gcp"
)

// Scaler launches and terminates the machines of a group.
// +kubebuilder:validation:Enum=Muster;ClusterAutoscaler
type Scaler string

const (
	// ScaledByMuster is for ProvisioningRequests.
	ScaledByMuster Scaler = "Muster"
	// ScaledByClusterAutoscaler is for pods that are pending.
	ScaledByClusterAutoscaler Scaler = "ClusterAutoscaler"
)

// AWSGroup is one offering of an Auto Scaling group: machines of one type, in one subnet and
// thus in one zone, of one capacity type. A group with several offerings has several NodeGroups.
type AWSGroup struct {
	// region, for example us-east-1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Region string `json:"region"`

	// autoScalingGroup is the name of the Auto Scaling group, whose launch template describes
	// the machines.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	AutoScalingGroup string `json:"autoScalingGroup"`

	// instanceType, for example p5.48xlarge.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	InstanceType string `json:"instanceType"`

	// subnet is the ID of the subnet that the machines join.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Subnet string `json:"subnet"`

	// capacityReservation is the ID of the reservation into which machines of capacity type
	// Reserved are launched.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	CapacityReservation string `json:"capacityReservation,omitempty"`

	// launchMethod is the call by which machines are launched.
	// +optional
	// +kubebuilder:default=Fleet
	LaunchMethod AWSLaunchMethod `json:"launchMethod,omitempty"`
}

// AWSLaunchMethod is a way to launch machines on AWS, all or nothing.
// +kubebuilder:validation:Enum=Fleet;Reservation;LaunchInstances
type AWSLaunchMethod string

const (
	// AWSFleet is CreateFleet of type instant with a minimum. The machines do not belong to
	// the Auto Scaling group; they join the cluster by themselves.
	AWSFleet AWSLaunchMethod = "Fleet"
	// AWSReservation first reserves all machines with an On-Demand Capacity Reservation that
	// has an end date, then launches into it.
	AWSReservation AWSLaunchMethod = "Reservation"
	// AWSLaunchInstances lets the Auto Scaling group launch machines that it owns, and
	// terminates a partial launch. It is for groups that must own their machines, such as
	// EKS managed node groups.
	AWSLaunchInstances AWSLaunchMethod = "LaunchInstances"
)

// GCPGroup is one offering of a managed instance group: machines of one type in one
// zone, under one provisioning model.
type GCPGroup struct {
	// project is its ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Project string `json:"project"`

	// location is the zone of a zonal group, or the region of a regional one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Location string `json:"location"`

	// instanceGroupManager is the name of the managed instance group, whose instance template
	// describes the machines.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	InstanceGroupManager string `json:"instanceGroupManager"`

	// machineType, for example a3-highgpu-8g.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	MachineType string `json:"machineType"`

	// launchMethod is the call by which machines are launched.
	// +optional
	// +kubebuilder:default=BulkInsert
	LaunchMethod GCPLaunchMethod `json:"launchMethod,omitempty"`
}

// GCPLaunchMethod is a way to launch machines on GCP, all or nothing.
// +kubebuilder:validation:Enum=BulkInsert;ResizeRequest;CreateInstances
type GCPLaunchMethod string

const (
	// GCPBulkInsert is a bulk insert with a minimum. The machines do not belong to the managed
	// instance group; they join the cluster by themselves.
	GCPBulkInsert GCPLaunchMethod = "BulkInsert"
	// GCPResizeRequest requests all machines from the managed instance group at once. The
	// cloud queues the request, and Muster cancels it after queueTimeout, or joinTimeout if
	// that is unset.
	GCPResizeRequest GCPLaunchMethod = "ResizeRequest"
	// GCPCreateInstances lets the managed instance group create machines of given names, and
	// deletes a partial launch. It is for groups that must own their machines, such as GKE
	// node pools.
	GCPCreateInstances GCPLaunchMethod = "CreateInstances"
)

// CapacityType is how machines are paid for.
// +kubebuilder:validation:Enum=Reserved;Spot;OnDemand
type CapacityType string

const (
	// Reserved machines are already paid for.
	Reserved CapacityType = "Reserved"
	// Spot machines are cheap and may be reclaimed by the cloud at any time.
	Spot CapacityType = "Spot"
	// OnDemand machines stay until they are terminated.
	OnDemand CapacityType = "OnDemand"
)

// CapacityTypeLabel is the node label with the group's capacity type: reserved, spot or
// on-demand.
const CapacityTypeLabel = "muster.dev/capacity-type"

// LabelValue is the capacity type as the value of CapacityTypeLabel.
func (c CapacityType) LabelValue() string {
	switch c {
	case Reserved:
		return "reserved"
	case Spot:
		return "spot"
	default:
		return "on-demand"
	}
}

// NodeTemplate describes a node of a group after it has joined.
type NodeTemplate struct {
	// source names what the cloud makes the machines from, with its version, for example
	// lt-0123456789abcdef0/7. What one group learns of its nodes' taints holds for all groups of the same source, and is
	// forgotten when the source changes. Discovery sets it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Source string `json:"source,omitempty"`

	// labels of the node, beside those that Muster adds: the group, the zone
	// and the capacity type.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('booked.muster.dev/'))",message="labels with the prefix booked.muster.dev/ are set by Muster alone"
	Labels map[string]string `json:"labels,omitempty"`

	// taints that the node keeps.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []corev1.Taint `json:"taints,omitempty"`

	// startupTaints are removed by another component while the node starts, for example by a
	// network agent. A node is not ready for pods while it has one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`

	// capacity of one machine, for example cpu, memory, pods and nvidia.com/gpu. cpu and
	// memory are required; pods is 110 by default. 0 means a device that nodes do not offer,
	// such as GPUs that are partitioned.
	// +required
	// +kubebuilder:validation:XValidation:rule="'cpu' in self && 'memory' in self",message="capacity must name cpu and memory"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).compareTo(quantity('0')) >= (k.contains('/') ? 0 : 1))",message="every amount of capacity must be greater than 0; only that of a device may be 0"
	Capacity corev1.ResourceList `json:"capacity"`

	// allocatable is the part of capacity that pods may use. A resource that is missing here
	// is fully allocatable.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// devices that DRA drivers publish for each machine in ResourceSlices. Pods claim them instead of requesting an amount of
	// capacity. If unset, Muster learns them from the group's nodes; until then it expects no devices on new machines.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Devices []DevicePool `json:"devices,omitempty"`
}

// DevicePool is one pool of devices that a DRA driver publishes for a machine.
type DevicePool struct {
	// driver that publishes the pool, for example gpu.nvidia.com.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Driver string `json:"driver"`

	// sharedCounters of the pool's devices, such as the slices of a GPU that its partitions consume.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	SharedCounters []resourcev1.CounterSet `json:"sharedCounters,omitempty"`

	// devices of the pool, in the order in which the driver publishes them.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Devices []Device `json:"devices"`
}

// Device describes one device, or several equal ones.
type Device struct {
	// name of the device. With a count above 1 it is a prefix, and a number from 0 on follows: gpu- with a count of 2 describes
	// gpu-0 and gpu-1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// count of equal devices. Unset means 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	Count int32 `json:"count,omitempty"`

	// attributes of each device. The value of an attribute that identifies a device, such as uuid, pciBusID or
	// resource.kubernetes.io/pcieRoot, differs between machines; Muster uses only which devices have equal values.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute `json:"attributes,omitempty"`

	// capacity of each device.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[resourcev1.QualifiedName]resourcev1.DeviceCapacity `json:"capacity,omitempty"`

	// consumesCounters is what each device consumes of sharedCounters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	ConsumesCounters []resourcev1.DeviceCounterConsumption `json:"consumesCounters,omitempty"`

	// allowMultipleAllocations allows several claims to share a device.
	// +optional
	AllowMultipleAllocations bool `json:"allowMultipleAllocations,omitempty"`
}

// KwokPool scripts a pool of simulated machines. All times in faults count from the creation
// of the NodeGroup. The same seed gives the same run.
type KwokPool struct {
	// seed of all randomness in this pool.
	// +optional
	Seed int64 `json:"seed,omitempty"`

	// bootDelay is the time from a launch to the registration of the node. 0s means at once.
	// +optional
	// +kubebuilder:default="0s"
	BootDelay metav1.Duration `json:"bootDelay,omitempty"`

	// bootJitter is the most that is added to bootDelay: a random duration from 0s to
	// bootJitter for each machine.
	// +optional
	// +kubebuilder:default="0s"
	BootJitter metav1.Duration `json:"bootJitter,omitempty"`

	// deviceDelay is the time from the start of the device plugin's pod on a node until the
	// node's extended resources are allocatable.
	// +optional
	// +kubebuilder:default="0s"
	DeviceDelay metav1.Duration `json:"deviceDelay,omitempty"`

	// devices that DRA drivers publish for the pool's machines, deviceDelay after their nodes are Ready. If unset, they publish
	// template.devices.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Devices []DevicePool `json:"devices,omitempty"`

	// holds is the number of machines that the pool has, independently of maxNodes. A launch
	// of more machines gets the rest of the pool and a Stockout. Unset means no limit; 0
	// means no machines. Faults of type Dry lower it for a time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Holds *int32 `json:"holds,omitempty"`

	// domains are the racks, say, that the machines of the pool are in. Unset means that its
	// machines have no such place.
	// +optional
	Domains *KwokDomains `json:"domains,omitempty"`

	// faults are the scripted faults of the pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Faults []KwokFault `json:"faults,omitempty"`
}

// KwokDomains says in which domains the machines of a pool are, and how launches are dealt to
// them.
type KwokDomains struct {
	// nodeLabel is the label of a node whose value is the name of its domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	NodeLabel string `json:"nodeLabel"`

	// of the pool, with their sizes. They need not be even.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Of []KwokDomain `json:"of"`

	// placement is how the machines of a launch are dealt to the domains that have room.
	// +optional
	// +kubebuilder:default=Together
	Placement KwokPlacement `json:"placement,omitempty"`

	// labelDelay is the time from the registration of a node until it has nodeLabel. 0s means
	// that it registers with it.
	// +optional
	// +kubebuilder:default="0s"
	LabelDelay metav1.Duration `json:"labelDelay,omitempty"`
}

// KwokDomain is one domain of a simulated pool.
type KwokDomain struct {
	// name is the value of the node label.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// machines that the domain has room for.
	// +required
	// +kubebuilder:validation:Minimum=0
	Machines int32 `json:"machines"`

	// labels that its nodes have beside nodeLabel, such as that of the block which a rack is in. They come with it.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Labels map[string]string `json:"labels,omitempty"`
}

// NodeLabels are the labels with which the nodes of the domain report their location.
func (d *KwokDomain) NodeLabels(nodeLabel string) map[string]string {
	out := map[string]string{nodeLabel: d.Name}
	maps.Copy(out, d.Labels)
	return out
}

// KwokPlacement is how a simulated cloud deals the machines of a launch to domains.
// +kubebuilder:validation:Enum=Together;Overflow;Scattered
type KwokPlacement string

const (
	// PlacedTogether: a launch is in one domain, the first that has room for all of it. Without
	// one it gets what the emptiest domain has left, and a Stockout.
	PlacedTogether KwokPlacement = "Together"
	// PlacedOverflow: a launch fills the domain that has the most room, then the next.
	PlacedOverflow KwokPlacement = "Overflow"
	// PlacedScattered: machine after machine is in the next domain that has room.
	PlacedScattered KwokPlacement = "Scattered"
)

// KwokFaultType is a way in which a simulated pool misbehaves.
// +kubebuilder:validation:Enum=Dry;LaunchError;BootDeath;LateDevices;DevicesVanish;Reclaim;DomainLoss
type KwokFaultType string

const (
	// FaultDry: between from and until the pool has only as many machines as holds states, by
	// default none. Machines in use stay.
	FaultDry KwokFaultType = "Dry"
	// FaultLaunchError: a launch fails as a whole with the given error.
	FaultLaunchError KwokFaultType = "LaunchError"
	// FaultBootDeath: a machine dies while it boots, its node never registers.
	FaultBootDeath KwokFaultType = "BootDeath"
	// FaultLateDevices: the extended resources of a node are late by after, in addition to
	// deviceDelay.
	FaultLateDevices KwokFaultType = "LateDevices"
	// FaultDevicesVanish: a node offers none of its extended resources for a while, as when its
	// kubelet or its device plugin restarts. That begins when the time after has passed since
	// they were there.
	FaultDevicesVanish KwokFaultType = "DevicesVanish"
	// FaultReclaim: a machine is reclaimed when the time after has passed since its
	// registration.
	FaultReclaim KwokFaultType = "Reclaim"
	// FaultDomainLoss: at from, all machines in the given domains are lost, and none can be
	// launched there before until.
	FaultDomainLoss KwokFaultType = "DomainLoss"
)

// KwokFault is one scripted fault.
//
// +kubebuilder:validation:XValidation:rule="!has(self.machines) || !has(self.percent)",message="a fault hits either the listed machines or a percentage of all: set machines or percent, not both"
// +kubebuilder:validation:XValidation:rule="self.type == 'LaunchError' || !has(self.error)",message="error belongs to faults of type LaunchError"
// +kubebuilder:validation:XValidation:rule="self.type != 'LaunchError' || has(self.error)",message="a fault of type LaunchError needs the field error"
// +kubebuilder:validation:XValidation:rule="self.type == 'Dry' || !has(self.holds)",message="holds belongs to faults of type Dry"
// +kubebuilder:validation:XValidation:rule="(self.type == 'DevicesVanish') == has(self.__for__)",message="for belongs to faults of type DevicesVanish, and they need it"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['LateDevices', 'Reclaim']) || has(self.after)",message="faults of type LateDevices and Reclaim need the field after"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['Dry', 'LaunchError']) || !(has(self.machines) || has(self.percent))",message="faults of type Dry and LaunchError hit launches: give from and until, not machines or percent"
// +kubebuilder:validation:XValidation:rule="(self.type == 'DomainLoss') == has(self.domains)",message="domains belongs to faults of type DomainLoss, and they need it"
// +kubebuilder:validation:XValidation:rule="self.type != 'DomainLoss' || has(self.from) && !has(self.machines) && !has(self.percent)",message="faults of type DomainLoss hit whole domains: give from, not machines or percent"
type KwokFault struct {
	// type of the fault.
	// +required
	Type KwokFaultType `json:"type"`

	// from is when the fault begins, counted from the creation of the
	// NodeGroup. Unset means from the beginning.
	// +optional
	From *metav1.Duration `json:"from,omitempty"`

	// until is when the fault is over. Unset means never.
	// +optional
	Until *metav1.Duration `json:"until,omitempty"`

	// holds is the number of machines that the pool has during a fault of type Dry, including
	// those in use. Unset means 0. If such faults overlap, the lowest applies: a short fault
	// within a longer one is a drought that deepens and recedes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Holds int32 `json:"holds,omitempty"`

	// machines that the fault hits, by their ordinal in the pool: 0 is the first that was ever
	// launched.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Machines []int64 `json:"machines,omitempty"`

	// percent of the machines that the fault hits, at random. Without machines and percent it
	// hits all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// domains that a fault of type DomainLoss hits, by their names in spec.kwok.domains.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Domains []string `json:"domains,omitempty"`

	// after is the delay in faults of type LateDevices, DevicesVanish and Reclaim.
	// +optional
	After *metav1.Duration `json:"after,omitempty"`

	// for is how long a fault of type DevicesVanish lasts.
	// +optional
	For *metav1.Duration `json:"for,omitempty"`

	// error that a launch fails with.
	// +optional
	Error *KwokError `json:"error,omitempty"`
}

// KwokError is the error of a launch in a simulated cloud.
type KwokError struct {
	// class of the error.
	// +required
	Class ErrorClass `json:"class"`
	// code as the cloud spells it, for example InsufficientInstanceCapacity.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Code string `json:"code"`
	// message for humans.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ErrorClass states what follows from a cloud's error.
// +kubebuilder:validation:Enum=Stockout;Quota;Network;Throttle;Outage;Auth;Config;Timeout;Lost;Scattered
type ErrorClass string

const (
	// Stockout: the cloud has no such machines now. Other offerings are tried at once.
	Stockout ErrorClass = "Stockout"
	// Quota: the account's limit is reached. A person must act.
	Quota ErrorClass = "Quota"
	// Network: the subnet has no free addresses. Other offerings are tried; here a person must
	// act.
	Network ErrorClass = "Network"
	// Throttle: too many calls. Calls are slowed down.
	Throttle ErrorClass = "Throttle"
	// Outage: the cloud fails by itself or does not answer. Nothing is known against the group; other
	// offerings are tried until calls succeed again.
	Outage ErrorClass = "Outage"
	// Auth: a permission is missing. A person must act.
	Auth ErrorClass = "Auth"
	// Config: the configuration of the group is invalid. A person must act.
	Config ErrorClass = "Config"
	// Timeout: the machines did not become nodes in time.
	Timeout ErrorClass = "Timeout"
	// Lost: a machine ended before it was used.
	Lost ErrorClass = "Lost"
	// Scattered: the machines were not in one domain, such as a rack, as the gang requires.
	Scattered ErrorClass = "Scattered"
)

// NodeGroupStatus is the observed state of the group and the outcome of its launches.
type NodeGroupStatus struct {
	// machines is the number of machines that exist or are launching.
	// +optional
	// +kubebuilder:default=0
	Machines int32 `json:"machines"`
	// readyNodes is the number of nodes that are Ready.
	// +optional
	// +kubebuilder:default=0
	ReadyNodes int32 `json:"readyNodes"`
	// bookedNodes is the number of nodes that a request has booked.
	// +optional
	// +kubebuilder:default=0
	BookedNodes int32 `json:"bookedNodes"`
	// usdPerHour is spec.pricePerHour as a decimal number, such as 6.53, for people to read.
	// Empty while the price is unknown.
	// +optional
	USDPerHour string `json:"usdPerHour,omitempty"`
	// launched is the number of machines that the simulated pool has ever launched, which is
	// the ordinal of the next machine. Only for provider kwok.
	// +optional
	Launched int64 `json:"launched,omitempty"`

	// attempts are the last launches of the group, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Attempts []LaunchAttempt `json:"attempts,omitempty"`

	// ledger is the evidence of past launches, from which the chance of the next one is
	// estimated by its size. Unset without evidence.
	// +optional
	Ledger *Ledger `json:"ledger,omitempty"`

	// backoffs are the failures that delay launches, one for each class, size and
	// level. A backoff that has ended stays, so that the next consecutive failure has a longer one, until a
	// launch succeeds or another outcome is recorded an hour after its end.
	// +optional
	// +listType=map
	// +listMapKey=class
	// +listMapKey=atLeast
	// +listMapKey=level
	// +kubebuilder:validation:MaxItems=64
	Backoffs []Backoff `json:"backoffs,omitempty"`

	// failures is the largest number of consecutive failures among backoffs.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// configurationHash identifies what of the NodeGroup decides whether machines can be launched and join: the template, its
	// source, the cloud's group, network and launch method, the timeouts, and the annotation muster.dev/repaired. When it
	// changes, backoffs of class Config end, and those of class Timeout that need a person. Prices and limits are not part of it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	ConfigurationHash string `json:"configurationHash,omitempty"`

	// backoffUntil is the end of the last of backoffs.
	// +optional
	BackoffUntil *metav1.Time `json:"backoffUntil,omitempty"`

	// shape is what real nodes of the group were seen to offer. Plans use it where the
	// template promises more.
	// +optional
	Shape *LearnedShape `json:"shape,omitempty"`

	// advice is the cloud's own estimate of a launch; unset if it gives none.
	// +optional
	Advice *Advice `json:"advice,omitempty"`

	// conditions: Obtainable states whether launches may be tried, TemplateMatches whether the
	// nodes match spec.template, Sound whether nothing interferes with Muster, NodesPresent
	// whether machines that seem lost may be terminated, ScaleDownAllowed whether idle ones that others have launched may be.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

const (
	// ConditionObtainable is False while launches of some size wait for a backoff, and after a
	// failure that needs a person until a launch succeeds.
	ConditionObtainable = "Obtainable"
	// ConditionTemplateMatches is False if nodes of the group offer less than spec.template
	// promises, or lack its labels or taints; Unknown until a node was seen.
	ConditionTemplateMatches = "TemplateMatches"
	// ConditionSound is False if something else changes the cloud's group, if other pods may
	// be bound to new nodes before Muster cordons them, or if Muster lacks a permission. Only
	// discovered groups have it.
	ConditionSound = "Sound"
	// ConditionNodesPresent is False while so many machines of the group have lost their node,
	// have one that is not Ready, or are stopped, that none of them is terminated, and no gang stopped
	// for them, until a person decides.
	ConditionNodesPresent = "NodesPresent"
	// ConditionScaleDownAllowed is False while so many idle machines of the group that no request has launched would be
	// terminated at once that none of them is until a person decides.
	ConditionScaleDownAllowed = "ScaleDownAllowed"
	// ConditionListed is False while the cloud has not listed the machines of the group for minutes: their
	// last known state is used.
	ConditionListed = "Listed"
)

// Advice is a cloud's own estimate of the next launch. It weighs as much as four launches,
// and half of that 30 minutes later.
type Advice struct {
	// machines is the size of the launch that it is about.
	// +kubebuilder:validation:Minimum=1
	Machines int32 `json:"machines"`
	// chance, in parts per thousand, that such a launch succeeds.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Chance int32 `json:"chance"`
	// at is the time of the estimate.
	At metav1.Time `json:"at"`
	// source is the call that it comes from.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Source string `json:"source,omitempty"`
}

// Ledger is the evidence of whether launches succeed as a whole. All amounts are as of one
// time; from then on each halves every 30 minutes.
type Ledger struct {
	// at is the time of the last outcome that is evidence.
	At metav1.Time `json:"at"`
	// chance, in parts per thousand, at that time, of a launch of as many machines as in that
	// outcome.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Chance int32 `json:"chance"`
	// sizes are the evidence by size of the launch, the smallest first, and by the level that it was within one
	// domain of.
	// +optional
	// +listType=map
	// +listMapKey=atLeast
	// +listMapKey=level
	// +kubebuilder:validation:MaxItems=64
	Sizes []Evidence `json:"sizes,omitempty"`
}

// Evidence is from launches of one size: at least atLeast machines, and fewer than twice as
// many.
type Evidence struct {
	// atLeast is the smallest launch of this size, a power of two.
	// +kubebuilder:validation:Minimum=1
	AtLeast int32 `json:"atLeast"`
	// level is the node label of the domains that all machines of the launch had to be within one
	// of; empty where they could be anywhere.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=316
	Level string `json:"level"`
	// got counts launches that succeeded as a whole, in millionths of a launch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	Got int64 `json:"got,omitempty"`
	// failed counts launches that failed for lack of machines (classes Stockout, Timeout and
	// Lost), or of machines in one domain (class Scattered), in millionths of a launch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	Failed int64 `json:"failed,omitempty"`
}

// Backoff delays launches after a failure.
type Backoff struct {
	// class of the failure.
	Class ErrorClass `json:"class"`
	// atLeast is the number of machines from which launches wait, a power of two: a launch of
	// 2 may succeed where one of 16 failed. It is 1 if the failure is independent of the
	// number (classes Timeout, Throttle, Auth and Config).
	// +kubebuilder:validation:Minimum=1
	AtLeast int32 `json:"atLeast"`
	// level is the node label of the domains that the launch had to be within one of, where it
	// failed for that: only launches that are bound to it wait. Empty if all do.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=317
	Level string `json:"level"`
	// failures is the number of consecutive failed launches. A launch that was already in
	// progress when the backoff began is not counted.
	// +kubebuilder:validation:Minimum=1
	Failures int32 `json:"failures"`
	// until is the end of the backoff.
	Until metav1.Time `json:"until"`
	// message of the last failure, from the cloud.
	// +optional
	Message string `json:"message,omitempty"`
}

// LearnedShape is what real nodes of the group offer to pods.
type LearnedShape struct {
	// allocatable is the least that a node offers of each resource in the template. Nodes that
	// do not offer all of them yet, or fewer devices than others of the group, do not count.
	// Unset until a node was seen.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// devices that drivers publish for the nodes in ResourceSlices, if all pools are complete. Plans use them in place of
	// spec.template.devices.
	// +optional
	// +listType=atomic
	Devices []DevicePool `json:"devices,omitempty"`
	// taints that nodes of the group, or of another of the same spec.template.source, keep though spec.template does not declare
	// them. Plans count on them for a day after they were last seen, and until a node of the group lacks them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []corev1.Taint `json:"taints,omitempty"`
	// taintsSeen is when nodes were last seen to keep them, to the hour.
	// +optional
	TaintsSeen *metav1.Time `json:"taintsSeen,omitempty"`
	// templateHash identifies the spec.template of the nodes. For another template, nothing is
	// known.
	// +kubebuilder:validation:MaxLength=32
	TemplateHash string `json:"templateHash"`
	// since is when spec.template was last changed. Older nodes do not count. Unset if it was
	// not changed since the first node was seen.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// unseenSince is when the last node that counts was deleted. A day after it allocatable is
	// dropped, since it may be due to a single bad machine. Unset while there are such nodes.
	// +optional
	UnseenSince *metav1.Time `json:"unseenSince,omitempty"`
}

// LaunchAttempt is the outcome of one launch.
type LaunchAttempt struct {
	// time at which the outcome was known.
	Time metav1.Time `json:"time"`
	// request that the machines were launched for, as namespace/name.
	Request string `json:"request"`
	// token of the launch: the UID of the request and the number of the attempt.
	Token string `json:"token"`
	// requested is the number of machines in the launch call.
	Requested int32 `json:"requested"`
	// got is the number of machines that the cloud made.
	Got int32 `json:"got"`
	// class of the failure; empty if all machines were made.
	// +optional
	Class ErrorClass `json:"class,omitempty"`
	// level is the node label of the domains that the launch had to be within one of, where the
	// cloud chose the domain.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Level string `json:"level,omitempty"`
	// taints that the nodes of the launch keep and that spec.template does not declare. They are in the way of gangs that do not
	// tolerate them, and of no others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []corev1.Taint `json:"taints,omitempty"`
	// message of the failure, from the cloud.
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeGroupList is a list of NodeGroups.
//
// +kubebuilder:object:root=true
type NodeGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeGroup `json:"items"`
}
