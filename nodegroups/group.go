// Package nodegroups holds the values that say what machines could be had: a
// group of like machines with its shape and price, amounts of resources, and
// what past launches teach about the next one. It is pure.
package nodegroups

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Group is a NodeGroup as plans see it.
type Group struct {
	Name         string
	Zone         string
	CapacityType v1alpha1.CapacityType
	// MicroUSDPerHour is the price of one machine in millionths of a USD; 0 while it is unknown.
	MicroUSDPerHour int64
	PriceUnknown    bool
	// Machines exist or have been promised to launches in flight.
	Machines int
	Min, Max int
	// PerLaunch is the maximum number of machines in one launch; 0 for no limit.
	PerLaunch int
	// Foreign groups are scaled by a cluster-autoscaler: Muster neither launches nor terminates machines there.
	Foreign bool
	// Labels, Taints and Allocatable of a node after it has joined. Startup taints are not included. Allocatable is what the template
	// promises, or what nodes were seen to offer, if that is less, or for devices.
	Labels        map[string]string
	Taints        []corev1.Taint
	StartupTaints []corev1.Taint
	Allocatable   Resources
	// KeptTaints are the Taints that the template does not declare and nodes were seen to keep.
	KeptTaints []corev1.Taint
	// Levels are the node labels for the domain, such as a rack, in which the cloud has placed a machine, with the maximum number of
	// machines that a launch can have in one domain; 0 if unknown.
	Levels map[string]int
	// Promised is what the template promises. An ideal plan assumes it, and nodes that offer less are compared with it.
	Promised    Resources
	JoinTimeout time.Duration
	// QueueTimeout is how long a launch may wait in the cloud's queue before JoinTimeout begins; 0 if JoinTimeout includes the wait.
	QueueTimeout time.Duration
	IdleTimeout  time.Duration
	// EndsAt is when the cloud ends all machines of the group; zero for never.
	EndsAt time.Time
	// Lifetime is how long the cloud lets a machine run; 0 for no limit.
	Lifetime time.Duration
	// Ledger is the evidence of past launches for the chance of the next one; nil for none.
	Ledger *v1alpha1.Ledger
	// Backoffs are the failures that delay launches.
	Backoffs []v1alpha1.Backoff
	// Unlisted says that the cloud has not listed the machines of the group for minutes, according to the condition of the group.
	Unlisted bool
	// TerminateAtOnce is how many lost machines a person allows to terminate at once.
	TerminateAtOnce int
	// Doubted says that so many machines seem lost that a person has to decide, according to the condition of the group; DoubtEnded is
	// when that was last over.
	Doubted    bool
	DoubtEnded time.Time
}

// DefaultPods is the number of pods of a machine whose template has none.
const DefaultPods = 110

// GroupFrom converts a NodeGroup with the given number of machines and status, which may be newer than the object's own.
func GroupFrom(ng *v1alpha1.NodeGroup, status v1alpha1.NodeGroupStatus, machines int) Group {
	g := Group{
		Name:            ng.Name,
		Zone:            Labels(ng)[corev1.LabelTopologyZone],
		CapacityType:    ng.Spec.CapacityType,
		MicroUSDPerHour: MicroUSD(ng.Spec.PricePerHour),
		PriceUnknown:    ng.Spec.PricePerHour == nil,
		Machines:        machines,
		Min:             int(ng.Spec.MinNodes),
		Max:             int(ng.Spec.MaxNodes),
		PerLaunch:       PerLaunch(ng),
		Foreign:         ng.Spec.ScaledBy == v1alpha1.ScaledByClusterAutoscaler,
		Labels:          Labels(ng),
		Taints:          ng.Spec.Template.Taints,
		StartupTaints:   ng.Spec.Template.StartupTaints,
		Promised:        ResourcesFrom(Allocatable(ng.Spec.Template)),
		JoinTimeout:     JoinTimeout(ng),
		QueueTimeout:    orDefault(ng.Spec.QueueTimeout, 0),
		IdleTimeout:     orDefault(ng.Spec.IdleTimeout, DefaultIdleTimeout),
		EndsAt:          EndsAt(ng),
		Lifetime:        Lifetime(ng),
		Ledger:          withAdvice(status.Ledger, status.Advice),
		Backoffs:        status.Backoffs,
	}
	for _, l := range ng.Spec.Topology {
		if g.Levels == nil {
			g.Levels = map[string]int{}
		}
		g.Levels[l.NodeLabel] = int(l.MachinesPerDomain)
	}
	g.Unlisted = meta.IsStatusConditionFalse(ng.Status.Conditions, v1alpha1.ConditionListed)
	// A value that is no number approves nothing.
	g.TerminateAtOnce, _ = strconv.Atoi(ng.Annotations[v1alpha1.TerminateAtOnceAnnotation])
	if c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionNodesPresent); c != nil {
		if g.Doubted = c.Status == metav1.ConditionFalse; !g.Doubted {
			g.DoubtEnded = c.LastTransitionTime.Time
		}
	}
	if g.KeptTaints, _ = KeptTaints(ng, &status); len(g.KeptTaints) > 0 {
		g.Taints = slices.Concat(g.Taints, g.KeptTaints)
	}
	g.Allocatable = shown(g.Promised, status.Shape, ng.Spec.Template)
	return g
}

// Timeouts of groups that do not say. Machines with devices take longer to join: firmware,
// drivers and plugins come after the node has registered.
const (
	DefaultJoinTimeout        = 15 * time.Minute
	DefaultJoinTimeoutDevices = 30 * time.Minute
	DefaultIdleTimeout        = 10 * time.Minute
)

// JoinTimeout is how long a launch in the group may take until all of its nodes are ready.
func JoinTimeout(ng *v1alpha1.NodeGroup) time.Duration {
	byDefault := DefaultJoinTimeout
	if hasDevices(ng) {
		byDefault = DefaultJoinTimeoutDevices
	}
	return orDefault(ng.Spec.JoinTimeout, byDefault)
}

// hasDevices reports whether drivers or plugins must announce devices on the group's nodes: as extended resources, or in
// ResourceSlices.
func hasDevices(ng *v1alpha1.NodeGroup) bool {
	for name := range ng.Spec.Template.Capacity {
		if Extended(name) {
			return true
		}
	}
	return len(ng.Spec.Template.Devices) > 0 || ng.Status.Shape != nil && len(ng.Status.Shape.Devices) > 0
}

func orDefault(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// EndsAt returns when the cloud ends all machines of the group; zero for never.
func EndsAt(ng *v1alpha1.NodeGroup) (at time.Time) {
	if ng.Spec.EndsAt != nil {
		at = ng.Spec.EndsAt.Time
	}
	return at
}

// Labels returns the labels of the group's nodes: the template's and Muster's own. It excludes the host name, which differs between nodes.
func Labels(ng *v1alpha1.NodeGroup) map[string]string {
	labels := map[string]string{
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	maps.Copy(labels, ng.Spec.Template.Labels)
	labels[v1alpha1.CapacityTypeLabel] = ng.Spec.CapacityType.LabelValue()
	labels[v1alpha1.NodeGroupLabel] = ng.Name
	if ng.Spec.Zone != "" {
		labels[corev1.LabelTopologyZone] = ng.Spec.Zone
	}
	return labels
}

// Capacity of one machine, with the number of pods filled in.
func Capacity(t v1alpha1.NodeTemplate) corev1.ResourceList {
	list := corev1.ResourceList{corev1.ResourcePods: PodsQuantity(DefaultPods)}
	maps.Copy(list, t.Capacity)
	return list
}

// Allocatable of one machine: its capacity, unless the template has less.
func Allocatable(t v1alpha1.NodeTemplate) corev1.ResourceList {
	list := Capacity(t)
	maps.Copy(list, t.Allocatable)
	return list
}
