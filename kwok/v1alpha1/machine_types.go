package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Machine is one simulated machine, as its cloud knows it. The KWOK provider
// creates it, KWOK's stages move it on: after bootDelay its node registers, and
// what dieAfter and reclaimAfter say happens. Its node is owned by it: deleting
// the machine takes the node away too. No process has to live for that.
//
//	Booting ──bootDelay──▶ Running ──reclaimAfter──▶ Terminated
//	   └────dieAfter──────────────────────────────▶ Terminated
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.group`
// +kubebuilder:printcolumn:name="Launch",type=string,JSONPath=`.spec.launch`,priority=1
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec MachineSpec `json:"spec"`
	// +optional
	Status MachineStatus `json:"status,omitempty"`
}

// MachineSpec is fixed when the machine is launched.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a machine cannot be changed after its launch"
type MachineSpec struct {
	// group is the NodeGroup that the machine belongs to.
	// +required
	Group string `json:"group"`
	// launch is the token of the launch that made the machine.
	// +required
	Launch string `json:"launch"`
	// ordinal of the machine in its pool: 0 is the first ever launched.
	// +required
	Ordinal int64 `json:"ordinal"`

	// launchedAt is the time of the launch. All delays count from here, to the
	// microsecond, so that a simulator that was restarted carries on where it was.
	// +required
	LaunchedAt metav1.MicroTime `json:"launchedAt"`
	// bootDelay is the time from the launch until the node registers.
	// +required
	BootDelay metav1.Duration `json:"bootDelay"`
	// dieAfter is the time from the launch after which the machine dies while it
	// boots. Its node never registers.
	// +optional
	DieAfter *metav1.Duration `json:"dieAfter,omitempty"`
	// reclaimAfter is the time from registration after which the machine is
	// taken away.
	// +optional
	ReclaimAfter *metav1.Duration `json:"reclaimAfter,omitempty"`

	// domain of the pool that the machine is in, such as a rack; empty where the pool has none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Domain string `json:"domain,omitempty"`

	// node is what registers.
	// +required
	Node MachineNode `json:"node"`
}

// MachineNode is the node that a machine registers.
type MachineNode struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// providerID of the node. Unset makes it kwok://<group>/<name>; machines whose nodes
	// bear another are those of a simulated cloud with an API of its own.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// unschedulable nodes are born cordoned.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// capacity without extended resources: those are in devices.
	// +required
	Capacity corev1.ResourceList `json:"capacity"`
	// allocatable without extended resources.
	// +required
	Allocatable corev1.ResourceList `json:"allocatable"`
	// devices are extended resources, such as nvidia.com/gpu, that the node has
	// once the device plugin's pod runs on it.
	// +optional
	Devices corev1.ResourceList `json:"devices,omitempty"`
	// deviceDelay is the time from the start of the device plugin's pod until
	// the devices are allocatable.
	// +optional
	DeviceDelay metav1.Duration `json:"deviceDelay,omitempty"`
	// devicesVanish is a time in which the node offers none of its devices. Unset means that
	// it keeps them.
	// +optional
	DevicesVanish *DeviceGap `json:"devicesVanish,omitempty"`
	// lateLabels come some time after the node has registered, as those of a cloud's topology do.
	// +optional
	LateLabels *LateLabels `json:"lateLabels,omitempty"`
}

// LateLabels are labels that a node does not register with.
type LateLabels struct {
	// labels to add to the node.
	// +required
	Labels map[string]string `json:"labels"`
	// after is the time from the registration of the node.
	// +required
	After metav1.Duration `json:"after"`
}

// DeviceGap is a time without devices, as when a kubelet or a device plugin restarts.
type DeviceGap struct {
	// after is the time from when the devices were first allocatable.
	// +required
	After metav1.Duration `json:"after"`
	// for is how long they are gone.
	// +required
	For metav1.Duration `json:"for"`
}

// MachinePhase is where a machine is in its life.
// +kubebuilder:validation:Enum=Booting;Running;Terminated
type MachinePhase string

const (
	// MachineBooting: paid for, no node yet. An empty phase means the same.
	MachineBooting MachinePhase = "Booting"
	// MachineRunning: its node has registered.
	MachineRunning MachinePhase = "Running"
	// MachineTerminated: gone for good, kept as a record.
	MachineTerminated MachinePhase = "Terminated"
)

// MachineStatus is written by KWOK's stages.
type MachineStatus struct {
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// reason why the machine was terminated: BootFailed or SpotReclaimed.
	// +optional
	Reason string `json:"reason,omitempty"`
	// registeredAt is the time at which the node registered.
	// +optional
	RegisteredAt *metav1.Time `json:"registeredAt,omitempty"`
	// labelledAt is the time at which the node got its late labels.
	// +optional
	LabelledAt *metav1.Time `json:"labelledAt,omitempty"`
	// terminatedAt is the time at which the machine was terminated.
	// +optional
	TerminatedAt *metav1.Time `json:"terminatedAt,omitempty"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}
