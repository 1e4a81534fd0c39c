package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeGroup is a set of like machines that Muster may grow and shrink.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ng
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Market",type=string,JSONPath=`.spec.capacityType`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.zone`
// +kubebuilder:printcolumn:name="USD/h",type=string,JSONPath=`.spec.pricePerHour`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machines`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyNodes`
// +kubebuilder:printcolumn:name="Booked",type=integer,JSONPath=`.status.bookedNodes`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxNodes`
// +kubebuilder:printcolumn:name="Obtainable",type=string,JSONPath=`.status.conditions[?(@.type=="Obtainable")].status`
// +kubebuilder:printcolumn:name="Chance‰",type=integer,JSONPath=`.status.ledger.chance`
// +kubebuilder:printcolumn:name="Health",type=string,JSONPath=`.status.conditions[?(@.type=="Obtainable")].reason`
// +kubebuilder:printcolumn:name="Template-Matches",type=string,JSONPath=`.status.conditions[?(@.type=="TemplateMatches")].status`,priority=1
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

// NodeGroupSpec says what the machines of a group are and how many there may be.
//
// +kubebuilder:validation:XValidation:rule="self.minNodes <= self.maxNodes",message="minNodes must not be greater than maxNodes"
// +kubebuilder:validation:XValidation:rule="self.provider != 'kwok' || has(self.kwok)",message="a group of provider kwok needs the field spec.kwok (it may be empty: {})"
// +kubebuilder:validation:XValidation:rule="self.provider != 'aws' || has(self.aws)",message="a group of provider aws needs the field spec.aws"
// +kubebuilder:validation:XValidation:rule="self.provider != 'gcp' || has(self.gcp)",message="a group of provider gcp needs the field spec.gcp"
// +kubebuilder:validation:XValidation:rule="self.provider == oldSelf.provider",message="provider cannot be changed: create another NodeGroup"
type NodeGroupSpec struct {
	// provider is the cloud that the machines come from.
	// +required
	Provider Provider `json:"provider"`

	// minNodes is the number of machines that Muster never goes below when it
	// gives idle machines back. It does not launch machines to reach it.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MinNodes int32 `json:"minNodes"`

	// maxNodes is the number of machines that Muster never exceeds.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxNodes int32 `json:"maxNodes"`

	// capacityType is the market in which the machines are bought. Nodes carry
	// it as the label muster.dev/capacity-type, in lower case with hyphens.
	// +optional
	// +kubebuilder:default=OnDemand
	CapacityType CapacityType `json:"capacityType,omitempty"`

	// zone is the failure domain of all machines of the group. Nodes carry it
	// as the label topology.kubernetes.io/zone.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// pricePerHour is what one machine costs, in USD per hour.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`

	// joinTimeout is how long the machines of a launch may take from the call
	// that makes them until all of their nodes are ready for pods. After it the
	// launch is undone and another option is tried.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="joinTimeout must be positive, for example 15m"
	JoinTimeout *metav1.Duration `json:"joinTimeout,omitempty"`

	// idleTimeout is how long a machine may stand without pods and without a
	// booking before it is given back.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="idleTimeout must not be negative"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// template is what a node of this group looks like.
	// +required
	Template NodeTemplate `json:"template"`

	// kwok scripts the pool of simulated machines behind a group of provider
	// kwok.
	// +optional
	Kwok *KwokPool `json:"kwok,omitempty"`

	// aws names the Auto Scaling group behind a group of provider aws, and which of
	// its machines are meant.
	// +optional
	AWS *AWSGroup `json:"aws,omitempty"`

	// gcp names the managed instance group behind a group of provider gcp, and
	// which of its machines are meant.
	// +optional
	GCP *GCPGroup `json:"gcp,omitempty"`
}

// Provider names a cloud.
// +kubebuilder:validation:Enum=kwok;aws;gcp
type Provider string

const (
	// ProviderKwok is the simulated cloud: machines are API objects that KWOK moves on.
	ProviderKwok Provider = "kwok"
	// ProviderAWS is Amazon Web Services: machines are EC2 instances.
	ProviderAWS Provider = "aws"
	// ProviderGCP is Google Cloud: machines are Compute Engine VMs.
	ProviderGCP Provider = "gcp"
)

// AWSGroup is one offering of an Auto Scaling group: machines of one type, in one
// subnet and so in one zone, bought in one market. A group that allows several is
// several NodeGroups.
type AWSGroup struct {
	// region, for example us-east-1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Region string `json:"region"`

	// autoScalingGroup is the name of the Auto Scaling group, which says by its
	// launch template what a machine is made of.
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

	// capacityReservation is the ID of the reservation that machines of capacity type
	// Reserved are launched into.
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
	// AWSFleet is CreateFleet of type instant with a minimum. The machines stand
	// beside the Auto Scaling group and join the cluster by themselves.
	AWSFleet AWSLaunchMethod = "Fleet"
	// AWSReservation reserves all machines first, by an On-Demand Capacity
	// Reservation that ends by itself, and then launches into it.
	AWSReservation AWSLaunchMethod = "Reservation"
	// AWSLaunchInstances has the Auto Scaling group launch machines that it owns, and
	// takes those that came back where they are too few: for groups that must own
	// their machines, such as EKS managed node groups.
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

	// instanceGroupManager is the name of the managed instance group, which says by
	// its instance template what a machine is made of.
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
	// GCPBulkInsert is a bulk insert with a minimum. The machines stand beside the
	// managed instance group and join the cluster by themselves.
	GCPBulkInsert GCPLaunchMethod = "BulkInsert"
	// GCPResizeRequest asks the managed instance group for all machines at once; the
	// cloud queues it, and Muster cancels it when its time is over.
	GCPResizeRequest GCPLaunchMethod = "ResizeRequest"
	// GCPCreateInstances has the managed instance group create machines of given
	// names, and deletes those that came where they are too few: for groups that must
	// own their machines, such as GKE node pools.
	GCPCreateInstances GCPLaunchMethod = "CreateInstances"
)

// CapacityType is a market for machines.
// +kubebuilder:validation:Enum=Reserved;Spot;OnDemand
type CapacityType string

const (
	// Reserved machines are paid for already.
	Reserved CapacityType = "Reserved"
	// Spot machines are cheap and may be taken away at any time.
	Spot CapacityType = "Spot"
	// OnDemand machines stay until they are given back.
	OnDemand CapacityType = "OnDemand"
)

// CapacityTypeLabel is the node label that carries the group's capacity type:
// reserved, spot or on-demand.
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

// NodeTemplate is what a node of a group will look like once it has joined.
type NodeTemplate struct {
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

	// startupTaints are taken off by somebody else while the node starts, for
	// example by a network agent. A node counts only once they are gone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`

	// capacity of one machine, for example cpu, memory, pods and
	// nvidia.com/gpu. Where pods is missing it is 110.
	// +required
	// +kubebuilder:validation:XValidation:rule="'cpu' in self && 'memory' in self",message="capacity must name cpu and memory"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).isGreaterThan(quantity('0')))",message="every amount of capacity must be greater than 0"
	Capacity corev1.ResourceList `json:"capacity"`

	// allocatable is what of capacity is left for pods. Resources that are
	// missing here are allocatable in full.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
}

// KwokPool scripts a pool of simulated machines. All times in faults count from
// the creation of the NodeGroup. The same seed gives the same run.
type KwokPool struct {
	// seed of everything that is random in this pool.
	// +optional
	Seed int64 `json:"seed,omitempty"`

	// bootDelay is the time from a launch to the registration of the node.
	// +optional
	// +kubebuilder:default="0s"
	BootDelay metav1.Duration `json:"bootDelay,omitempty"`

	// bootJitter is added to bootDelay: for each machine a share of it between
	// none and all, drawn from the seed.
	// +optional
	// +kubebuilder:default="0s"
	BootJitter metav1.Duration `json:"bootJitter,omitempty"`

	// deviceDelay is the time from the start of the device plugin's pod on a
	// node until the node's extended resources are allocatable.
	// +optional
	// +kubebuilder:default="0s"
	DeviceDelay metav1.Duration `json:"deviceDelay,omitempty"`

	// holds is the number of machines that the pool has to give, whatever
	// maxNodes allows. A launch that asks for more gets what is left and a
	// stockout for the rest. Unset means without end. Faults of type Dry say
	// when it is less.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Holds *int32 `json:"holds,omitempty"`

	// faults are what goes wrong, and when.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Faults []KwokFault `json:"faults,omitempty"`
}

// KwokFaultType is a way in which a simulated pool misbehaves.
// +kubebuilder:validation:Enum=Dry;LaunchError;BootDeath;LateDevices;Reclaim
type KwokFaultType string

const (
	// FaultDry: between from and until the pool holds no more machines than holds
	// says, by default none. Those in use go on.
	FaultDry KwokFaultType = "Dry"
	// FaultLaunchError: a launch fails as a whole with the given error.
	FaultLaunchError KwokFaultType = "LaunchError"
	// FaultBootDeath: a machine dies while it boots, its node never registers.
	FaultBootDeath KwokFaultType = "BootDeath"
	// FaultLateDevices: the extended resources of a node come later than
	// deviceDelay, by the time that after says.
	FaultLateDevices KwokFaultType = "LateDevices"
	// FaultReclaim: a machine is taken away, by the time that after says from
	// its registration.
	FaultReclaim KwokFaultType = "Reclaim"
)

// KwokFault is one scripted fault.
//
// +kubebuilder:validation:XValidation:rule="!has(self.machines) || !has(self.percent)",message="a fault hits either the listed machines or a percentage of all: set machines or percent, not both"
// +kubebuilder:validation:XValidation:rule="self.type == 'LaunchError' || !has(self.error)",message="error belongs to faults of type LaunchError"
// +kubebuilder:validation:XValidation:rule="self.type != 'LaunchError' || has(self.error)",message="a fault of type LaunchError needs the field error"
// +kubebuilder:validation:XValidation:rule="self.type == 'Dry' || !has(self.holds)",message="holds belongs to faults of type Dry"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['LateDevices', 'Reclaim']) || has(self.after)",message="faults of type LateDevices and Reclaim need the field after"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['Dry', 'LaunchError']) || !(has(self.machines) || has(self.percent))",message="faults of type Dry and LaunchError hit launches: give from and until, not machines or percent"
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

	// holds is the number of machines that the pool holds meanwhile, those in
	// use among them, in a fault of type Dry. Unset means none. Where such faults
	// overlap the least counts, so that a short one within a longer one is a
	// drought that deepens and recedes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Holds int32 `json:"holds,omitempty"`

	// machines that the fault hits, by their ordinal in the pool: 0 is the
	// first that the pool ever launched.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Machines []int64 `json:"machines,omitempty"`

	// percent of the machines that the fault hits, drawn from the seed. With
	// neither machines nor percent the fault hits all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// after is the delay that the type of the fault speaks of.
	// +optional
	After *metav1.Duration `json:"after,omitempty"`

	// error that a launch fails with.
	// +optional
	Error *KwokError `json:"error,omitempty"`
}

// KwokError is how a simulated cloud refuses a launch.
type KwokError struct {
	// class says what kind of refusal it is.
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

// ErrorClass is what a refusal of a cloud means for what to do next.
// +kubebuilder:validation:Enum=Stockout;Quota;Network;Throttle;Auth;Config;Timeout;Lost
type ErrorClass string

const (
	// Stockout: the cloud has no such machines now. Try elsewhere at once.
	Stockout ErrorClass = "Stockout"
	// Quota: the account may not have more. A person must act.
	Quota ErrorClass = "Quota"
	// Network: the subnet has no addresses left. Machines may be had elsewhere; here
	// somebody must make room.
	Network ErrorClass = "Network"
	// Throttle: too many calls. Call slower.
	Throttle ErrorClass = "Throttle"
	// Auth: Muster may not do this. A person must act.
	Auth ErrorClass = "Auth"
	// Config: the group is described wrongly. A person must act.
	Config ErrorClass = "Config"
	// Timeout: the machines did not become nodes in time.
	Timeout ErrorClass = "Timeout"
	// Lost: a machine went away before it was used.
	Lost ErrorClass = "Lost"
)

// NodeGroupStatus is what Muster sees of the group and remembers of its attempts.
type NodeGroupStatus struct {
	// machines that exist or are on their way.
	// +optional
	// +kubebuilder:default=0
	Machines int32 `json:"machines"`
	// readyNodes is the number of nodes that are Ready.
	// +optional
	// +kubebuilder:default=0
	ReadyNodes int32 `json:"readyNodes"`
	// bookedNodes is the number of nodes that some request has booked.
	// +optional
	// +kubebuilder:default=0
	BookedNodes int32 `json:"bookedNodes"`
	// launched is the number of machines that the simulated pool has ever
	// launched: the ordinal of the next one. Only for provider kwok.
	// +optional
	Launched int64 `json:"launched,omitempty"`

	// attempts remembers the last launches of the group, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Attempts []LaunchAttempt `json:"attempts,omitempty"`

	// ledger is what past launches say about the next one: how likely it comes
	// whole, by its size. Unset while nothing is known.
	// +optional
	Ledger *Ledger `json:"ledger,omitempty"`

	// backoffs are the failures that keep launches waiting, one for each class and
	// size. One that is over stays, so that the next failure in a row waits longer,
	// until a launch succeeds or an hour after its end something else is learned.
	// +optional
	// +listType=map
	// +listMapKey=class
	// +listMapKey=atLeast
	// +kubebuilder:validation:MaxItems=64
	Backoffs []Backoff `json:"backoffs,omitempty"`

	// failures is the largest number of failures in a row among backoffs.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// backoffUntil is the time when the last of backoffs is over.
	// +optional
	BackoffUntil *metav1.Time `json:"backoffUntil,omitempty"`

	// shape is what real nodes of the group were seen to offer. Plans count with
	// it where the template promises more.
	// +optional
	Shape *LearnedShape `json:"shape,omitempty"`

	// advice is the cloud's own word on its chances; unset where it says nothing.
	// +optional
	Advice *Advice `json:"advice,omitempty"`

	// conditions: Obtainable says whether the next launch may try this group,
	// TemplateMatches whether its nodes are what spec.template says, Sound whether
	// nothing is in the way of Muster.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

const (
	// ConditionObtainable is False while launches of some size wait for a backoff
	// to end, and after a failure that a person must mend until a launch succeeds.
	ConditionObtainable = "Obtainable"
	// ConditionTemplateMatches is False when nodes of the group offer less than
	// spec.template promises or lack its labels or taints; Unknown until a node has
	// been seen.
	ConditionTemplateMatches = "TemplateMatches"
	// ConditionSound is False when something else changes the cloud's own group, when
	// pods may slip onto its nodes before Muster cordons them, or when Muster lacks a
	// permission; only groups that Muster has discovered have it.
	ConditionSound = "Sound"
)

// Advice is a cloud's own word on the next launch. It weighs as much as four launches,
// half of that 30 minutes later.
type Advice struct {
	// machines is the size of the launch that it speaks of.
	// +kubebuilder:validation:Minimum=1
	Machines int32 `json:"machines"`
	// chance, in parts per thousand, that they come at once.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Chance int32 `json:"chance"`
	// at is when the cloud said so.
	At metav1.Time `json:"at"`
	// source is the call that it comes from.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Source string `json:"source,omitempty"`
}

// Ledger is the evidence on how likely launches come whole. All amounts are as of
// one time; from then on each halves every 30 minutes.
type Ledger struct {
	// at is the time of the last outcome that said something about the chance.
	At metav1.Time `json:"at"`
	// chance, in parts per thousand, that a launch of as many machines as the one
	// with that outcome came whole, as of then.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Chance int32 `json:"chance"`
	// sizes are the evidence by size of the launch, the smallest first.
	// +optional
	// +listType=map
	// +listMapKey=atLeast
	// +kubebuilder:validation:MaxItems=17
	Sizes []Evidence `json:"sizes,omitempty"`
}

// Evidence is what launches of one size have shown: of at least so many machines,
// and fewer than twice as many.
type Evidence struct {
	// atLeast is the smallest launch of this size, a power of two.
	// +kubebuilder:validation:Minimum=1
	AtLeast int32 `json:"atLeast"`
	// got counts launches that came whole, in millionths of a launch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	Got int64 `json:"got,omitempty"`
	// failed counts launches that did not for want of machines (classes Stockout,
	// Timeout and Lost), in millionths of a launch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	Failed int64 `json:"failed,omitempty"`
}

// Backoff keeps launches waiting after a failure.
type Backoff struct {
	// class of the failure.
	Class ErrorClass `json:"class"`
	// atLeast is the size from which launches wait, a power of two: what failed for
	// 16 machines may well succeed for 2. 1 where the failure has nothing to do
	// with the number of machines (classes Timeout, Throttle, Auth and Config).
	// +kubebuilder:validation:Minimum=1
	AtLeast int32 `json:"atLeast"`
	// failures is how many launches failed in a row. Those that failed while
	// others had them wait were under way already and are not counted.
	// +kubebuilder:validation:Minimum=1
	Failures int32 `json:"failures"`
	// until is the time before which they wait.
	Until metav1.Time `json:"until"`
	// message of the last of the failures, in the cloud's own words.
	// +optional
	Message string `json:"message,omitempty"`
}

// LearnedShape is what nodes of the group offer to pods.
type LearnedShape struct {
	// allocatable is, for each resource that the template promises, the least that
	// a node offers. Nodes that do not offer all of them yet, or fewer devices than
	// others of the group, do not count. Unset while no node has been seen.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// templateHash tells the spec.template that the nodes were made from. Nothing
	// that was learned holds for another.
	// +kubebuilder:validation:MaxLength=32
	TemplateHash string `json:"templateHash"`
	// since is when spec.template was last changed. Older nodes do not count.
	// Unset where it was not changed since the first node was seen.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// unseenSince is when the last node that counts went. A day after it
	// allocatable is forgotten: what it holds against the group may have been one
	// bad machine. Unset while there are such nodes.
	// +optional
	UnseenSince *metav1.Time `json:"unseenSince,omitempty"`
}

// LaunchAttempt is the outcome of one launch.
type LaunchAttempt struct {
	// time at which the outcome was known.
	Time metav1.Time `json:"time"`
	// request that asked for the machines, as namespace/name.
	Request string `json:"request"`
	// token of the launch: the UID of the request and the number of the attempt.
	Token string `json:"token"`
	// asked is the number of machines that were asked for.
	Asked int32 `json:"asked"`
	// got is the number of machines that came.
	Got int32 `json:"got"`
	// class of the failure; empty when all machines came.
	// +optional
	Class ErrorClass `json:"class,omitempty"`
	// message of the failure, in the cloud's own words.
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
