package fit

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Objects looks up what templates refer to. Each func returns nil for what does not
// exist; a template that needs one which is not given is refused.
type Objects struct {
	Claim        func(namespace, name string) *corev1.PersistentVolumeClaim
	Volume       func(name string) *corev1.PersistentVolume
	StorageClass func(name string) *storagev1.StorageClass
	CSIDriver    func(name string) *storagev1.CSIDriver
	// Limited reports whether a node limits how many volumes of the CSI driver it takes:
	// some CSINode has spec.drivers[].allocatable.count for it.
	Limited      func(driver string) bool
	RuntimeClass func(name string) *nodev1.RuntimeClass
	// ClaimTemplate and Classes are needed by templates that claim devices.
	ClaimTemplate func(namespace, name string) *resourcev1.ResourceClaimTemplate
	Classes       *Classes
}

// Refers reports whether pods of the spec depend on Objects, or on a PriorityClass.
func Refers(spec *corev1.PodSpec) bool {
	if spec.RuntimeClassName != nil || spec.PriorityClassName != "" || MayClaim(spec) {
		return true
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}
