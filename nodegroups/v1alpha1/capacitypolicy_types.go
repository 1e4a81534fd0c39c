package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityPolicy sets how the capacity of a gang is chosen. An AdmissionCheck of controller
// muster.dev/capacity names one in its parameters, a ProvisioningRequest in its parameter
// capacityPolicy; the CapacityPolicy called default, if it exists, applies to checks and
// requests that name none. Parameters of a request, and thus the annotations
// provreq.kueue.x-k8s.io/<parameter> of a queued job, override fields of the same name within
// the bounds of overrides. limits and budgets apply to all requests of the namespaces that
// they select, whichever CapacityPolicy a request names.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cpol
// +kubebuilder:printcolumn:name="Split",type=string,JSONPath=`.spec.split`
// +kubebuilder:printcolumn:name="Capacities",type=string,JSONPath=`.spec.capacityTypes`
// +kubebuilder:printcolumn:name="Max USD/h per Gang",type=string,JSONPath=`.spec.maxPricePerHour`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CapacityPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CapacityPolicySpec `json:"spec"`
	// +optional
	Status CapacityPolicyStatus `json:"status,omitempty"`
}

// CapacityPolicySpec bounds and orders the options of a gang.
type CapacityPolicySpec struct {
	// namespaceSelector selects the namespaces whose requests may use this policy, by their
	// labels (kubernetes.io/metadata.name is the name). Requests and queued jobs of other
	// namespaces that name it wait. Unset selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// overrides bounds how far annotations of jobs and parameters of requests may loosen this
	// policy. Unset means that they may only tighten it: a lower price, a shorter booking,
	// fewer capacity types, longer waits, an earlier start. A job or request beyond the bound
	// waits, and its condition states the bound.
	// +optional
	Overrides *CapacityOverrides `json:"overrides,omitempty"`

	// split bounds over which groups and zones a gang may be spread.
	// +optional
	// +kubebuilder:default=SingleZone
	Split Split `json:"split,omitempty"`

	// requiredTopology is a node label, for example of a rack or a network block: all pods of
	// the gang run on nodes with the same value. Machines are launched only in groups whose
	// template has the label. Empty means no such requirement.
	// +optional
	// +kubebuilder:validation:MaxLength=316
	RequiredTopology string `json:"requiredTopology,omitempty"`

	// capacityTypes that may be used, in order of preference. Unset means Reserved, then Spot,
	// then OnDemand.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`

	// fallbackAfter is the time, from the creation of its Workload, during which a queued job
	// does not use a capacity type: with {OnDemand: 30m} it only uses the other types for half
	// an hour. The first of capacityTypes is usable at once, as is a type that is missing
	// here. Requests of no queue may use all types at once.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(t, t in ['Reserved', 'Spot', 'OnDemand'])",message="fallbackAfter has the capacity types Reserved, Spot or OnDemand as keys"
	// +kubebuilder:validation:XValidation:rule="self.all(t, duration(self[t]) >= duration('0s'))",message="fallbackAfter must not be negative"
	FallbackAfter map[CapacityType]metav1.Duration `json:"fallbackAfter,omitempty"`

	// startWithin is the time, from the creation of its Workload, within which a queued job
	// must get its machines, for example 2h. Unset means no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="startWithin must be positive, for example 2h"
	StartWithin *metav1.Duration `json:"startWithin,omitempty"`

	// onLateStart is the reaction to a queued job without machines after startWithin.
	// +optional
	// +kubebuilder:default=Hold
	OnLateStart LateReaction `json:"onLateStart,omitempty"`

	// maxPricePerHour is the maximum total price of the machines launched for one gang, in USD
	// per hour. Unset means no bound; 0 means only machines without a price.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	MaxPricePerHour *resource.Quantity `json:"maxPricePerHour,omitempty"`

	// bookingTimeout is how long booked capacity waits for its pods, for example 10m. It is at
	// least what the scheduler needs for the gang, at 10 pods per second. A shorter parameter
	// bookingTimeout of a ProvisioningRequest overrides it.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="bookingTimeout must be positive, for example 10m"
	BookingTimeout *metav1.Duration `json:"bookingTimeout,omitempty"`

	// startTimeout is how long pods that have come may be kept from starting, for example by an image that cannot be pulled, until a
	// queued job gives its machines back. It tries again after a pause that doubles, from a minute to an hour. 0s means never. It is
	// for jobs whose onMachineLoss is Revoke.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="startTimeout must not be negative, for example 15m"
	StartTimeout *metav1.Duration `json:"startTimeout,omitempty"`

	// onMachineLoss is the reaction if a machine is lost while the pods of a request run, or
	// if a replacement pod has been unschedulable for a minute because the booking is smaller
	// than the gang. Event only reports it; Revoke also restarts a queued job on other
	// machines. A gang whose pods a topology places is not restarted if up to 8 lost machines
	// can be replaced, in the same domains where these are required, such as a rack; its other
	// pods run on. The default is Revoke for checks of muster.dev/capacity, and Event for all
	// other requests, since a stock Kueue deactivates a job whose capacity is revoked. The
	// parameter onMachineLoss of a ProvisioningRequest overrides it, unless it is Revoke.
	// +optional
	OnMachineLoss LossReaction `json:"onMachineLoss,omitempty"`

	// limits bound the machines that Muster launches for each selected namespace. The limits
	// of all CapacityPolicies apply, whichever a request names. A request over a limit waits,
	// and its condition states by how much. Unset means no limit.
	// +optional
	Limits *CapacityLimits `json:"limits,omitempty"`

	// budgets bound the cost, per period, of machines that Muster launches for namespaces or
	// their queues. The budgets of all CapacityPolicies apply, whichever a request names. A
	// gang that would exceed a budget waits, and its condition states by how much; a gang that
	// has its machines is never stopped.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Budgets []CapacityBudget `json:"budgets,omitempty"`
}

// CapacityOverrides bound the overrides of a CapacityPolicy's fields by jobs and requests. If
// a bound is unset, the field of the policy is the bound.
type CapacityOverrides struct {
	// capacityTypes that may be used beside those of the policy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`

	// fallbackAfter is the shortest wait for a capacity type that a job may choose: with
	// {OnDemand: 0s} it may use OnDemand at once. It does not shorten the wait of a job that
	// does not choose.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(t, t in ['Reserved', 'Spot', 'OnDemand'])",message="fallbackAfter has the capacity types Reserved, Spot or OnDemand as keys"
	// +kubebuilder:validation:XValidation:rule="self.all(t, duration(self[t]) >= duration('0s'))",message="fallbackAfter must not be negative"
	FallbackAfter map[CapacityType]metav1.Duration `json:"fallbackAfter,omitempty"`

	// maxPricePerHour is the highest that may be chosen, in USD per hour.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	MaxPricePerHour *resource.Quantity `json:"maxPricePerHour,omitempty"`

	// bookingTimeout is the longest that may be chosen.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="bookingTimeout must be positive, for example 1h"
	BookingTimeout *metav1.Duration `json:"bookingTimeout,omitempty"`

	// startWithin is the longest that a job may choose; its startBy is no later.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="startWithin must be positive, for example 2h"
	StartWithin *metav1.Duration `json:"startWithin,omitempty"`

	// capacityPolicies that a job may name instead of this one, which its check names. Their
	// own bounds apply then. A job may name other policies as far as they are not looser.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	CapacityPolicies []string `json:"capacityPolicies,omitempty"`
}

// CapacityBudget bounds the total spend of the selected namespaces or their queues: the price
// of the machines that Muster has launched, from the launch for their gang, or their booking,
// until its pods have ended. The price of a machine is divided equally among the gangs that
// have booked it; idle machines are not charged.
//
// A gang may start if the sum of three amounts is within usd: the spend of the period so far,
// the expected cost of machines that are in use or launching, and the expected cost of its
// own. A gang whose pods all have activeDeadlineSeconds is expected to need its machines for
// that long, any other for reserve, and none for longer than the rest of the period.
type CapacityBudget struct {
	// name identifies the budget in reasons, metrics and the status. The spend is kept by the
	// name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// namespaceSelector selects the namespaces that share the budget, by their labels
	// (kubernetes.io/metadata.name is the name). Unset selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// queues are the names of the LocalQueues, in the selected namespaces, that share the
	// budget. A request belongs to the queue in its label kueue.x-k8s.io/queue-name, which
	// requests of queued jobs have. Requests without the label count, too, unless queuedOnly
	// is true. Unset means all requests.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="must be the name of a LocalQueue, without its namespace, for example research"
	Queues []string `json:"queues,omitempty"`

	// queuedOnly excludes requests without a queue if queues is set. Another budget or limits
	// can bound them.
	// +optional
	QueuedOnly bool `json:"queuedOnly,omitempty"`

	// usd is the amount per period, in USD. 0 means that no gang may start.
	// +required
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a budget must not be negative: give an amount of USD, for example 5000"
	USD resource.Quantity `json:"usd"`

	// period after which the spend restarts at 0: a calendar day, a week from Monday, or a
	// calendar month, each from midnight UTC.
	// +required
	Period BudgetPeriod `json:"period"`

	// reserve is the time for which the cost of a gang without a known end is committed in
	// advance, continuously while it runs. The budget is only exceeded by gangs that run for
	// longer than this after the last one started. A longer time is safer, but fewer gangs run
	// at a time: with 744h a month's budget is never exceeded. With 0s nothing is committed.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="reserve must not be negative: give a duration, for example 24h"
	Reserve *metav1.Duration `json:"reserve,omitempty"`

	// vainLaunches bounds the cost of launches in vain: machines that were launched and terminated
	// before a gang had booked all that it needs, because they were not in one domain as required,
	// did not join in time, or were lost. Once they have cost the larger of percent and minimumUSD
	// in the period, a launch waits if the last one of its size in that NodeGroup was in vain,
	// until the next period or until the spend has grown; the gang tries its other options. All
	// other launches continue, as do those that are under way, whose cost may exceed the bound.
	// +optional
	// +kubebuilder:default={}
	VainLaunches VainLaunches `json:"vainLaunches,omitempty"`
}

// VainLaunches is what launches in vain may cost of a budget in its period.
type VainLaunches struct {
	// percent of the spend of the period so far.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// minimumUSD is the amount per period that is always allowed, in USD, so that a period may
	// begin with such launches. Unset means 1% of the budget's usd; the whole usd lifts the bound.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="an amount must not be negative: give USD, for example 50"
	MinimumUSD *resource.Quantity `json:"minimumUSD,omitempty"`
}

// BudgetPeriod is a span of the calendar, in UTC.
// +kubebuilder:validation:Enum=Day;Week;Month
type BudgetPeriod string

const (
	// BudgetDay starts at midnight.
	BudgetDay BudgetPeriod = "Day"
	// BudgetWeek starts on Monday.
	BudgetWeek BudgetPeriod = "Week"
	// BudgetMonth starts on the first.
	BudgetMonth BudgetPeriod = "Month"
)

// CapacityPolicyStatus is the state of the budgets.
type CapacityPolicyStatus struct {
	// budgets by name. They are written at most once a minute, when at least a thousandth of
	// the budget was spent since. After a crash the cost of machines in use since then is
	// added; the cost of machines that have ended meanwhile is lost.
	// +optional
	// +listType=map
	// +listMapKey=name
	Budgets []BudgetStatus `json:"budgets,omitempty"`
}

// BudgetStatus is the spend of a budget.
type BudgetStatus struct {
	// name of the budget.
	Name string `json:"name"`

	// periodStart and periodEnd bound the period of spent.
	PeriodStart metav1.Time `json:"periodStart"`
	PeriodEnd   metav1.Time `json:"periodEnd"`

	// spent in the period until the time of at, in USD, for example 1234.50.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,10}(\.[0-9]{1,6})?$`
	Spent string           `json:"spent"`
	At    metav1.MicroTime `json:"at"`

	// warnedPercent is the share of the budget, 80 or 100, in the last Event of this period; 0
	// if there was none.
	// +optional
	WarnedPercent int32 `json:"warnedPercent,omitempty"`

	// spentInVain is the cost of launches in vain in the period, and vainLimit what it may be by
	// vainLaunches at the spend so far, both in USD. The cost of a machine is counted until its
	// end, also after its gang has stopped to pay for it.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{1,10}(\.[0-9]{1,6})?$`
	SpentInVain string `json:"spentInVain,omitempty"`
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{1,10}(\.[0-9]{1,6})?$`
	VainLimit string `json:"vainLimit,omitempty"`

	// warnedInVain is true after the Event of this period that spentInVain has reached vainLimit.
	// +optional
	WarnedInVain bool `json:"warnedInVain,omitempty"`
}

// LateReaction is the reaction to a job without machines at its latest start.
// +kubebuilder:validation:Enum=Hold;Deactivate
type LateReaction string

const (
	// LateHold: the job stays in its queue with a condition that says so, and gets no machines
	// until its limit is extended.
	LateHold LateReaction = "Hold"
	// LateDeactivate: the job's Workload is deactivated.
	LateDeactivate LateReaction = "Deactivate"
)

// LossReaction is the reaction to the loss of a machine that is in use.
// +kubebuilder:validation:Enum=Event;Revoke
type LossReaction string

const (
	// LossEvent: an Event and a metric report it. The gang continues as it can.
	LossEvent LossReaction = "Event"
	// LossRevoke: the request also gets the condition CapacityRevoked=True. Then the check
	// muster.dev/capacity restarts the job on other machines; Kueue deactivates it.
	LossRevoke LossReaction = "Revoke"
)

// CapacityLimits bound the machines that one namespace has at a time: those that are launching
// for its requests, and those that were launched until they end, or until they are idle after
// their request was deleted. Requests of queued jobs count as well: to bound those only by the
// quota of their queue, exclude their namespaces with namespaceSelector.
type CapacityLimits struct {
	// namespaceSelector selects namespaces by their labels (kubernetes.io/metadata.name is the
	// name). Unset selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// machines is the number of machines of any kind. Unset means no bound; 0 means none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Machines *int32 `json:"machines,omitempty"`

	// devices bounds extended resources, such as nvidia.com/gpu, as in the templates of the
	// machines' NodeGroups. A resource that is missing here has no bound; 0 means none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.contains('/') && !name.contains('kubernetes.io/'))",message="devices are extended resources, such as nvidia.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, quantity(string(self[name])).compareTo(quantity('0')) >= 0)",message="a number of devices must not be negative"
	Devices corev1.ResourceList `json:"devices,omitempty"`

	// pricePerHour is the maximum total price of the machines, in USD per hour. Unset means no
	// bound; 0 means only machines without a price.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`
}

// Split bounds over which groups and zones the pods of a gang may be spread.
// +kubebuilder:validation:Enum=SingleGroup;SingleZone;AnyZone
type Split string

const (
	// SingleGroup: each podSet runs on the nodes of one group, all in one zone.
	SingleGroup Split = "SingleGroup"
	// SingleZone: all pods run in one zone, on any number of groups.
	SingleZone Split = "SingleZone"
	// AnyZone: pods run in any zone.
	AnyZone Split = "AnyZone"
)

// CapacityPolicyList is a list of CapacityPolicies.
//
// +kubebuilder:object:root=true
type CapacityPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CapacityPolicy `json:"items"`
}
