package model

import (
	"slices"

	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
)

// Provisioning classes that Muster knows, with the aliases that only Muster
// serves.
const (
	ClassCheckCapacity      = "check-capacity.muster.dev"
	ClassAtomicScaleUp      = "atomic-scale-up.muster.dev"
	classCheckCapacityStock = provreq.ProvisioningClassCheckCapacity
	classAtomicScaleUpStock = provreq.ProvisioningClassBestEffortAtomicScaleUp
)

// KnownClasses are all classes that Muster can serve.
var KnownClasses = Classes{classCheckCapacityStock, classAtomicScaleUpStock, ClassCheckCapacity, ClassAtomicScaleUp}

// Server says which requests are served here.
type Server interface {
	Serves(r *provreq.ProvisioningRequest) bool
}

// Classes are the provisioning classes that an instance without a name serves.
type Classes []string

// Serves reports whether the request is of a served class, and names no instance.
func (c Classes) Serves(r *provreq.ProvisioningRequest) bool { return Instance{Classes: c}.Serves(r) }

// Instance is one of several provisioners in a cluster.
type Instance struct {
	Classes Classes
	// Name of the instance, which requests may ask for; empty without.
	Name string
}

// Serves reports whether the request is of a served class, and names this instance or
// none.
func (i Instance) Serves(r *provreq.ProvisioningRequest) bool {
	name := string(r.Spec.Parameters[ParamProcessor])
	return slices.Contains(i.Classes, r.Spec.ProvisioningClassName) && (name == "" || name == i.Name)
}
