package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityPolicy says how the capacity of a gang is chosen. An AdmissionCheck of
// the controller muster.dev/capacity names one in its parameters; a
// ProvisioningRequest names one in its parameter capacityPolicy. Checks and requests that
// name none have the CapacityPolicy called default, if there is one. Parameters of a
// request, and so the annotations provreq.kueue.x-k8s.io/<parameter> of a queued
// job, come before fields of the same name within the bounds of overrides; see
// CapacityPolicy.Overridden. Its limits and
// budgets hold for all requests of the namespaces that they select, whatever these name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cpol
// +kubebuilder:printcolumn:name="Split",type=string,JSONPath=`.spec.split`
// +kubebuilder:printcolumn:name="Markets",type=string,JSONPath=`.spec.capacityTypes`
// +kubebuilder:printcolumn:name="Max USD/h",type=string,JSONPath=`.spec.maxPricePerHour`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CapacityPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CapacityPolicySpec `json:"spec"`
	// +optional
	Status CapacityPolicyStatus `json:"status,omitempty"`
}

// CapacityPolicySpec bounds and orders the options for a gang.
type CapacityPolicySpec struct {
	// namespaceSelector selects the namespaces whose requests may have this policy, by
	// their labels, by the name too: each bears it as kubernetes.io/metadata.name. Requests
	// of other namespaces that name it wait, those of queued jobs too. Unset selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// overrides is how far the annotations of jobs and the parameters of requests may
	// loosen this policy. Unset means not at all: they may only tighten it, with a lower
	// price, a shorter booking, fewer capacity types, longer waits or an earlier start. What
	// loosens it further is refused: the job or request waits and is told the bound.
	// +optional
	Overrides *CapacityOverrides `json:"overrides,omitempty"`

	// split says over what a gang may be spread.
	// +optional
	// +kubebuilder:default=SingleZone
	Split Split `json:"split,omitempty"`

	// requiredTopology is a node label, for example that of a rack or a network
	// block: all pods of the gang run on nodes that have the same value of it.
	// Machines are launched only in groups whose template has the label. Unset
	// means no such bound.
	// +optional
	// +kubebuilder:validation:MaxLength=316
	RequiredTopology string `json:"requiredTopology,omitempty"`

	// capacityTypes that may be used, the most wanted first. Unset means all:
	// Reserved, then Spot, then OnDemand.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`

	// fallbackAfter says how long a queued job does without a capacity type, counted
	// from the creation of its Workload: {OnDemand: 30m} insists on the other types for
	// half an hour. The first of capacityTypes never waits. It is the queue that
	// waits: requests that nobody queued may use all types at once.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(t, t in ['Reserved', 'Spot', 'OnDemand'])",message="fallbackAfter has the capacity types Reserved, Spot or OnDemand as keys"
	// +kubebuilder:validation:XValidation:rule="self.all(t, duration(self[t]) >= duration('0s'))",message="fallbackAfter must not be negative"
	FallbackAfter map[CapacityType]metav1.Duration `json:"fallbackAfter,omitempty"`

	// startWithin is how long after the creation of its Workload a queued job may
	// get its machines. Unset means for ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="startWithin must be positive, for example 2h"
	StartWithin *metav1.Duration `json:"startWithin,omitempty"`

	// onLateStart is what happens to a queued job that has no machines by then.
	// +optional
	// +kubebuilder:default=Hold
	OnLateStart LateReaction `json:"onLateStart,omitempty"`

	// maxPricePerHour is the most that the launched machines of one gang may
	// cost together, in USD per hour. Unset means no bound.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	MaxPricePerHour *resource.Quantity `json:"maxPricePerHour,omitempty"`

	// bookingTimeout is how long booked capacity waits for its pods. It is at least
	// what the scheduler needs for the gang, at 10 pods a second. The parameter
	// bookingTimeout of a ProvisioningRequest comes before it, if it is shorter.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="bookingTimeout must be positive, for example 10m"
	BookingTimeout *metav1.Duration `json:"bookingTimeout,omitempty"`

	// onMachineLoss is what happens to a request whose pods run when one of their
	// machines is lost, or when a pod in place of another has found no room for a minute
	// since less is left of the booking than the gang needs: Event only tells of lost
	// machines; Revoke has a queued job begin anew on other machines, since its pods can
	// run nowhere else. Unless it is set, it is Revoke for the
	// checks of muster.dev/capacity and Event for all other requests: a stock Kueue
	// deactivates a job whose capacity is revoked. The parameter onMachineLoss of a
	// ProvisioningRequest comes before it, unless this field is Revoke.
	// +optional
	OnMachineLoss LossReaction `json:"onMachineLoss,omitempty"`

	// limits are what each namespace that they select may have of machines that
	// Muster launches. They hold beside those of other CapacityPolicies, whichever
	// a request names: naming another one evades nothing. A request over a limit
	// waits and says by how much. Unset means no limit.
	// +optional
	Limits *CapacityLimits `json:"limits,omitempty"`

	// budgets are what namespaces, or queues of theirs, may spend in a period on
	// machines that Muster launches. They hold beside those of other CapacityPolicies,
	// whichever a request names. A gang that would pass one waits and says by how much;
	// no gang that has its machines is ever stopped for it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Budgets []CapacityBudget `json:"budgets,omitempty"`
}

// CapacityOverrides bound what jobs and requests may say in place of fields of their
// CapacityPolicy. Where a bound is unset, the field itself is the bound.
type CapacityOverrides struct {
	// capacityTypes that they may use beside those of the policy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`

	// fallbackAfter is the shortest wait for a capacity type that a job may choose: with
	// {OnDemand: 0s} it may begin with OnDemand. It never shortens the wait of a job that
	// chooses nothing.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(t, t in ['Reserved', 'Spot', 'OnDemand'])",message="fallbackAfter has the capacity types Reserved, Spot or OnDemand as keys"
	// +kubebuilder:validation:XValidation:rule="self.all(t, duration(self[t]) >= duration('0s'))",message="fallbackAfter must not be negative"
	FallbackAfter map[CapacityType]metav1.Duration `json:"fallbackAfter,omitempty"`

	// maxPricePerHour is the highest that they may choose, in USD per hour.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	MaxPricePerHour *resource.Quantity `json:"maxPricePerHour,omitempty"`

	// bookingTimeout is the longest that they may choose.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="bookingTimeout must be positive, for example 1h"
	BookingTimeout *metav1.Duration `json:"bookingTimeout,omitempty"`

	// startWithin is the longest that a job may choose; its startBy is no later.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="startWithin must be positive, for example 2h"
	StartWithin *metav1.Duration `json:"startWithin,omitempty"`

	// capacityPolicies that a job may name in place of this one, which its check names.
	// Their own bounds hold then. It may name others as far as they are no looser.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	CapacityPolicies []string `json:"capacityPolicies,omitempty"`
}

// CapacityBudget bounds what the namespaces that it selects, or queues of theirs, spend
// together: the price of the machines that Muster has launched, from when their gang
// begins to launch or books them until its pods have ended. A machine that several
// have booked costs each an equal part; one that stands idle costs nobody.
//
// A gang may begin if three amounts together are within usd: what was spent in the
// period so far; what machines that are in use or being launched will cost yet; and
// what its own will. A gang whose pods all have activeDeadlineSeconds is taken to need
// its machines for that long, any other for the time of reserve, and each no longer
// than the period lasts.
type CapacityBudget struct {
	// name tells the budget from the others of this policy in reasons, metrics and
	// the status. What was spent stays with the name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// namespaceSelector selects the namespaces that share the budget, by their labels, by
	// the name too: each bears it as kubernetes.io/metadata.name. Unset selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// queues are the LocalQueues of the selected namespaces that share the budget, by
	// their names. A request counts for the one that its label kueue.x-k8s.io/queue-name
	// names, which those of queued jobs bear. Requests without the label count too, unless
	// queuedOnly is true: leaving it out evades no budget. Unset means all requests.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="must be the name of a LocalQueue, without its namespace, for example research"
	Queues []string `json:"queues,omitempty"`

	// queuedOnly leaves out requests of no queue where queues are named. Bound them by
	// another budget or by limits.
	// +optional
	QueuedOnly bool `json:"queuedOnly,omitempty"`

	// usd is what may be spent in each period, in USD.
	// +required
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a budget must not be negative: give an amount of USD, for example 5000"
	USD resource.Quantity `json:"usd"`

	// period after which spending begins anew at 0: a calendar day, a week from Monday on
	// or a calendar month, each from midnight UTC.
	// +required
	Period BudgetPeriod `json:"period"`

	// reserve is how long ahead money is set aside for each gang of which nobody
	// knows when it ends, again and again while it runs. The budget is passed only
	// by gangs that run for longer than that after the last one began. More is
	// safer, and lets fewer run at a time: 744h never lets a month's budget be
	// passed.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="reserve must not be negative: give a duration, for example 24h"
	Reserve *metav1.Duration `json:"reserve,omitempty"`
}

// BudgetPeriod is a span of the calendar, in UTC.
// +kubebuilder:validation:Enum=Day;Week;Month
type BudgetPeriod string

const (
	// BudgetDay begins at midnight.
	BudgetDay BudgetPeriod = "Day"
	// BudgetWeek begins on Monday.
	BudgetWeek BudgetPeriod = "Week"
	// BudgetMonth begins on the first.
	BudgetMonth BudgetPeriod = "Month"
)

// CapacityPolicyStatus is how the budgets stand.
type CapacityPolicyStatus struct {
	// budgets by name. They are written at most once a minute, and once a thousandth
	// of a budget more was spent: after a crash what machines in use have cost since is
	// added, and what those cost that have gone since is lost.
	// +optional
	// +listType=map
	// +listMapKey=name
	Budgets []BudgetStatus `json:"budgets,omitempty"`
}

// BudgetStatus is what was spent of a budget.
type BudgetStatus struct {
	// name of the budget.
	Name string `json:"name"`

	// periodStart and periodEnd bound the period that spent is about.
	PeriodStart metav1.Time `json:"periodStart"`
	PeriodEnd   metav1.Time `json:"periodEnd"`

	// spent in the period until the time of at, in USD, for example 1234.50.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,10}(\.[0-9]{1,6})?$`
	Spent string           `json:"spent"`
	At    metav1.MicroTime `json:"at"`

	// warnedPercent is the share of the budget, 80 or 100, of which an Event has told
	// last in this period; 0 for none.
	// +optional
	WarnedPercent int32 `json:"warnedPercent,omitempty"`
}

// LateReaction is what follows when a job has no machines by the time at which it
// was to start.
// +kubebuilder:validation:Enum=Hold;Deactivate
type LateReaction string

const (
	// LateHold: the job stays in its queue, is told, and gets no machines until
	// somebody gives it more time.
	LateHold LateReaction = "Hold"
	// LateDeactivate: the job's Workload is deactivated.
	LateDeactivate LateReaction = "Deactivate"
)

// LossReaction is what follows from the loss of a machine that is in use.
// +kubebuilder:validation:Enum=Event;Revoke
type LossReaction string

const (
	// LossEvent: an Event and a metric tell of it. The gang goes on as it can.
	LossEvent LossReaction = "Event"
	// LossRevoke: the request gets the condition CapacityRevoked=True, too. A queue whose
	// check is muster.dev/capacity answers it by stopping the job and starting it anew on
	// other machines, Kueue by deactivating it.
	LossRevoke LossReaction = "Revoke"
)

// CapacityLimits bound what one namespace has at a time: the machines that were
// launched for its requests, until they have ended or serve nobody any more after
// their request is gone; and those that are being launched. Requests of queued jobs
// count as well: where these are bounded by the quota of their queue alone, have the
// namespaceSelector leave their namespaces out.
type CapacityLimits struct {
	// namespaceSelector selects namespaces by their labels, by the name too:
	// each bears it as kubernetes.io/metadata.name. Unset selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// machines of any kind. Unset means no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Machines *int32 `json:"machines,omitempty"`

	// devices by the name of their resource, such as nvidia.com/gpu: as many as the
	// templates of the machines' NodeGroups promise. What is missing has no bound.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.contains('/') && !name.contains('kubernetes.io/'))",message="devices are extended resources, such as nvidia.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, quantity(string(self[name])).compareTo(quantity('0')) >= 0)",message="a number of devices must not be negative"
	Devices corev1.ResourceList `json:"devices,omitempty"`

	// pricePerHour is what the machines may cost together, in USD per hour. Unset
	// means no bound.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`
}

// Split says over what the pods of one gang may be spread.
// +kubebuilder:validation:Enum=SingleGroup;SingleZone;AnyZone
type Split string

const (
	// SingleGroup: each podSet runs on the nodes of one group, all in one zone.
	SingleGroup Split = "SingleGroup"
	// SingleZone: all pods run in one zone, on as many groups as it takes.
	SingleZone Split = "SingleZone"
	// AnyZone: pods run wherever there is room.
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
