package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityPolicy says how the capacity of a gang is chosen. An AdmissionCheck of
// the controller muster.dev/capacity names one in its parameters; a
// ProvisioningRequest names one in its parameter capacityPolicy.
//
// +kubebuilder:object:root=true
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
}

// CapacityPolicySpec bounds and orders the options for a gang.
type CapacityPolicySpec struct {
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

	// maxPricePerHour is the most that the launched machines of one gang may
	// cost together, in USD per hour. Unset means no bound.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="a price must not be negative"
	MaxPricePerHour *resource.Quantity `json:"maxPricePerHour,omitempty"`

	// bookingTimeout is how long booked capacity waits for its pods.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="bookingTimeout must be positive, for example 10m"
	BookingTimeout *metav1.Duration `json:"bookingTimeout,omitempty"`
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
