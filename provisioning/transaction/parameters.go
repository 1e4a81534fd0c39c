package transaction

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// The parameters of requests that override a CapacityPolicy.
const (
	ParamValidUntil = "ValidUntilSeconds"
	ParamNoRetry    = "noRetry"
	ParamPolicy     = "capacityPolicy"
	ParamProcessor  = "processorInstance"
)

// The provisioning classes of Muster, and the aliases that only Muster serves.
const (
	ClassCheckCapacity      = "check-capacity.muster.dev"
	ClassAtomicScaleUp      = "atomic-scale-up.muster.dev"
	ClassCheckCapacityStock = provreq.ProvisioningClassCheckCapacity
	ClassAtomicScaleUpStock = provreq.ProvisioningClassBestEffortAtomicScaleUp
)

// KnownClasses are all classes that Muster can serve.
var KnownClasses = Classes{ClassCheckCapacityStock, ClassAtomicScaleUpStock, ClassCheckCapacity, ClassAtomicScaleUp}

// Server selects the requests that are served here.
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
	// Name of the instance, which requests may name; empty for none.
	Name string
}

// Serves reports whether the request is of a served class, and names this instance or
// none.
func (i Instance) Serves(r *provreq.ProvisioningRequest) bool {
	name := string(r.Spec.Parameters[ParamProcessor])
	return slices.Contains(i.Classes, r.Spec.ProvisioningClassName) && (name == "" || name == i.Name)
}

// defaultValidFor is how long a request waits for capacity by default.
const defaultValidFor = 7 * 24 * time.Hour

// Parameters reads the parameters of the request, which override its CapacityPolicy. lacking says why it may not use the policy that it
// names.
func (r *Request) Parameters(parameters map[string]provreq.Parameter, class state.Class, policy *v1alpha1.CapacityPolicy, lacking string) {
	r.ValidFor, r.Lacking = defaultValidFor, lacking
	if v := string(parameters[ParamValidUntil]); v != "" {
		seconds, err := strconv.ParseInt(v, 10, 32)
		if err != nil || seconds <= 0 {
			r.Invalid = `parameter ValidUntilSeconds is "` + v + `": give a whole number of seconds greater than 0`
			return
		}
		r.ValidFor = time.Duration(seconds) * time.Second
	}
	switch v := string(parameters[ParamNoRetry]); v {
	case "", "false":
	case "true":
		r.NoRetry = true
	default:
		r.Invalid = `parameter noRetry is "` + v + `": give true or false`
		return
	}
	spec, err := policy.Overridden(func(name string) string { return string(parameters[name]) })
	var looser *v1alpha1.LooserError
	switch {
	case errors.As(err, &looser):
		// An administrator may still allow it.
		r.Lacking = cmp.Or(r.Lacking, "parameter "+err.Error())
	case err != nil:
		r.Invalid = "parameter " + err.Error()
		return
	}
	r.Policy = state.PolicyFrom(class, spec)
}
