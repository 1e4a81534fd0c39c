package v1alpha1

// Annotations of a pod that say how its simulated containers behave. A pod ends
// as they say whatever its restartPolicy is.
const (
	// RunForAnnotation is how long the pod runs, as a Go duration. Without it a
	// Job's pods run for one second and all others until they are deleted.
	RunForAnnotation = "kwok.muster.dev/run-for"
	// RunJitterAnnotation is added to the run time: a share of it between none
	// and all, the same for all pods of one owner, drawn from the owner's UID.
	RunJitterAnnotation = "kwok.muster.dev/run-jitter"
	// ExitCodeAnnotation is what all containers exit with, 0 to 255. Unset is 0.
	ExitCodeAnnotation = "kwok.muster.dev/exit-code"

	// StartedAtAnnotation and RunsUntilAnnotation are written by the stages when
	// the pod starts: the times in a status have whole seconds only.
	StartedAtAnnotation = "kwok.muster.dev/started-at"
	RunsUntilAnnotation = "kwok.muster.dev/runs-until"
)

// DevicePluginLabel with the value true marks the pod of a device plugin: the
// devices of a node become allocatable only once such a pod runs there.
const DevicePluginLabel = "kwok.muster.dev/device-plugin"

// DevicesLabel with the value true marks the nodes of machines that have extended
// resources, for the node selector of device plugins.
const DevicesLabel = "kwok.muster.dev/devices"

// Annotations of a node, written by the stages and the simulated clouds alone.
const (
	// DevicesAnnotation holds the extended resources that the machine has, as
	// JSON, and DeviceDelayAnnotation how long they take after the start of the
	// device plugin.
	DevicesAnnotation     = "kwok.muster.dev/devices"
	DeviceDelayAnnotation = "kwok.muster.dev/device-delay"
	// VanishAfterAnnotation and VanishForAnnotation say when the devices are gone for a while,
	// and VanishedAnnotation is true meanwhile and over after that.
	VanishAfterAnnotation = "kwok.muster.dev/devices-vanish-after"
	VanishForAnnotation   = "kwok.muster.dev/devices-vanish-for"
	VanishedAnnotation    = "kwok.muster.dev/devices-vanished"
	// MachineGoneAnnotation marks a node that has outlived its machine.
	MachineGoneAnnotation = "kwok.muster.dev/machine-gone"
	// DevicePluginStartedAnnotation is when the device plugin's pod started.
	DevicePluginStartedAnnotation = "kwok.muster.dev/device-plugin-started"
	// ReclaimAtAnnotation is when the machine is taken away, and the node with it.
	ReclaimAtAnnotation = "kwok.muster.dev/reclaim-at"
)

// LaunchLabel of a Machine is a hash of the token of its launch.
const LaunchLabel = "kwok.muster.dev/launch"

// Reasons of a terminated Machine.
const (
	ReasonBootFailed    = "BootFailed"
	ReasonSpotReclaimed = "SpotReclaimed"
)
