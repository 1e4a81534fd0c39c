package nodegroups

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// This file reads the cloud-specific members of a NodeGroup's spec, so that the rest of Muster names no cloud.

// ProviderOf returns the provider of a machine by the scheme of its provider ID.
func ProviderOf(providerID string) v1alpha1.Provider {
	scheme, _, _ := strings.Cut(providerID, "://")
	if scheme == "gce" {
		return v1alpha1.ProviderGCP
	}
	return v1alpha1.Provider(scheme)
}

// MachineType returns the cloud's name of the type of the group's machines; empty if no cloud makes them.
func MachineType(spec *v1alpha1.NodeGroupSpec) string {
	switch {
	case spec.AWS != nil:
		return spec.AWS.InstanceType
	case spec.GCP != nil:
		return spec.GCP.MachineType
	}
	return ""
}

// SameOffering reports whether two groups buy the same machines at the same place, by whichever launch method.
func SameOffering(a, b *v1alpha1.NodeGroupSpec) bool {
	return a.Provider == b.Provider && a.CapacityType == b.CapacityType && a.Zone == b.Zone &&
		sameExcept(a.AWS, b.AWS, func(g *v1alpha1.AWSGroup) { g.LaunchMethod, g.CapacityReservation = "", "" }) &&
		sameExcept(a.GCP, b.GCP, func(g *v1alpha1.GCPGroup) { g.LaunchMethod = "" })
}

// sameExcept compares copies of both without what strip clears.
func sameExcept[T any](a, b *T, strip func(*T)) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	strip(&x)
	strip(&y)
	return equality.Semantic.DeepEqual(x, y)
}

// PerLaunch is the maximum number of machines in one launch of the group; 0 for no limit.
func PerLaunch(ng *v1alpha1.NodeGroup) int {
	switch {
	case ng.Spec.AWS == nil:
		return 0
	case ng.Spec.AWS.LaunchMethod == v1alpha1.AWSLaunchInstances:
		return 100
	default:
		return 1000
	}
}

// Lifetime is how long the cloud lets a machine of the group run from its creation; 0 for no limit. Google Cloud accepts resize requests
// for flex-start machines of at most 7 days.
func Lifetime(ng *v1alpha1.NodeGroup) time.Duration {
	if g := ng.Spec.GCP; g != nil && g.LaunchMethod == v1alpha1.GCPResizeRequest && ng.Spec.CapacityType != v1alpha1.Reserved {
		return 7 * 24 * time.Hour
	}
	return 0
}
