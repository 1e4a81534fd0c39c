package cache

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// IsCapacity says that a check is one that Muster serves by ProvisioningRequests.
func (s *Settings) IsCapacity(name kueue.AdmissionCheckReference) bool {
	ac := s.Checks[name]
	return ac != nil && ac.Spec.ControllerName == CapacityController
}

// Books says that a check makes requests, whichever way.
func (s *Settings) Books(name kueue.AdmissionCheckReference) bool {
	return s.IsCapacity(name) || s.IsRequest(name)
}

// CapacityChecks are those of the names that Muster serves.
func (s *Settings) CapacityChecks(names []kueue.AdmissionCheckReference) []kueue.AdmissionCheckReference {
	return slices.DeleteFunc(slices.Clone(names), func(n kueue.AdmissionCheckReference) bool { return !s.IsCapacity(n) })
}

// Names of the controllers of admission checks that this package knows.
const (
	// CapacityController is the controllerName of checks that Muster serves: the
	// machines of the whole gang are there and booked.
	CapacityController = "muster.dev/capacity"
	// ProvisioningRequestController is that of Kueue's own checks, which Muster
	// serves as Kueue does: any provisioner answers their requests.
	ProvisioningRequestController = "kueue.x-k8s.io/provisioning-request"
)

// Delegates reports whether the jobs of a queue run in other clusters, by a check of MultiKueue.
func (s *Settings) Delegates(cq *kueue.ClusterQueue) bool { return len(s.delegating(cq)) > 0 }

// IsDelegating says that a check has jobs run in other clusters.
func (s *Settings) IsDelegating(name kueue.AdmissionCheckReference) bool {
	ac := s.Checks[name]
	return ac != nil && ac.Spec.ControllerName == kueue.MultiKueueControllerName
}

// delegating are the queue's checks of MultiKueue.
func (s *Settings) delegating(cq *kueue.ClusterQueue) (out []kueue.AdmissionCheckStrategyRule) {
	for _, rule := range CheckRules(cq) {
		if s.IsDelegating(rule.Name) {
			out = append(out, rule)
		}
	}
	return out
}

// IsRequest says that a check is Kueue's own, which asks the provisioner of the class
// of its ProvisioningRequestConfig.
func (s *Settings) IsRequest(name kueue.AdmissionCheckReference) bool {
	ac := s.Checks[name]
	return ac != nil && ac.Spec.ControllerName == ProvisioningRequestController
}

// ConfigOf is what a check says of its requests; nil if it is not active.
func (s *Settings) ConfigOf(check kueue.AdmissionCheckReference) *kueue.ProvisioningRequestConfigSpec {
	ac := s.Checks[check]
	if !s.CheckStanding(ac).Active {
		return nil
	}
	return &s.RequestConfig[ac.Spec.Parameters.Name].Spec
}

// requestCheckStanding judges a check of Kueue's own.
func (s *Settings) requestCheckStanding(ac *kueue.AdmissionCheck) Standing {
	const kind = "ProvisioningRequestConfig"
	bad := func(format string, args ...any) Standing {
		return Standing{Reason: reasonBadParameters, Message: fmt.Sprintf(format, args...)}
	}
	ref := ac.Spec.Parameters
	switch {
	case ref == nil:
		return bad("spec.parameters is missing; name a %s of %s", kind, kueue.SchemeGroupVersion.Group)
	case ref.APIGroup != kueue.SchemeGroupVersion.Group || ref.Kind != kind:
		return bad("spec.parameters names a %s of %s; %s takes a %s of %s",
			ref.Kind, ref.APIGroup, ProvisioningRequestController, kind, kueue.SchemeGroupVersion.Group)
	case s.RequestConfig[ref.Name] == nil:
		return bad("%s %q does not exist; create it or change spec.parameters.name", kind, ref.Name)
	}
	return Standing{Active: true, Reason: reasonCheckActive, Message: "The admission check is active"}
}

// CheckStanding judges an AdmissionCheck.
func (s *Settings) CheckStanding(ac *kueue.AdmissionCheck) Standing {
	switch ac.Spec.ControllerName {
	case CapacityController:
		return s.capacityCheckStanding(ac)
	case ProvisioningRequestController:
		return s.requestCheckStanding(ac)
	}
	for _, c := range ac.Status.Conditions {
		if c.Type == kueue.AdmissionCheckActive {
			return Standing{Active: c.Status == metav1.ConditionTrue, Reason: c.Reason, Message: c.Message, Foreign: true}
		}
	}
	why := "its controller " + ac.Spec.ControllerName + " has not reported that it is active"
	if ac.Spec.ControllerName == kueue.MultiKueueControllerName {
		why += "; run muster dispatcher --make-copies"
	}
	return Standing{Foreign: true, Reason: "Unknown", Message: why}
}

func (s *Settings) capacityCheckStanding(ac *kueue.AdmissionCheck) Standing {
	if s.withoutProvisioner {
		return Standing{Reason: reasonNoProvisioner, Message: fmt.Sprintf(
			"This cluster lacks the kinds of Muster's provisioner, so no machines can be booked for controllerName %s; "+
				"install what `muster manifests` prints and run muster with --provisioning=true, or use a check of %s with a provisioningClassName "+
				"of another provisioner",
			CapacityController, ProvisioningRequestController)}
	}
	if ref := ac.Spec.Parameters; ref != nil {
		if ref.APIGroup != v1alpha1.GroupVersion.Group || ref.Kind != CapacityPolicyKind {
			return Standing{Reason: reasonBadParameters, Message: fmt.Sprintf(
				"parameters name a %s of %s; %s takes a %s of %s, or none",
				ref.Kind, ref.APIGroup, CapacityController, CapacityPolicyKind, v1alpha1.GroupVersion.Group)}
		}
		if s.Policies[ref.Name] == nil {
			return Standing{Reason: reasonBadParameters, Message: fmt.Sprintf(
				"CapacityPolicy %q does not exist; create it or change parameters.name", ref.Name)}
		}
	}
	return Standing{Active: true, Reason: reasonCheckActive, Message: "The admission check is active"}
}

// Standing says whether an object takes part in queueing, as its Active
// condition does.
type Standing struct {
	Active          bool
	Reason, Message string
	// Foreign: the object belongs to another controller, which writes its
	// condition.
	Foreign bool
}

// Reasons of Active conditions that Kueue's API does not name as constants, or
// that are Muster's own.
const (
	// ReasonUnsupported: the object uses what Muster does not support. Kueue has
	// no such reason, since it supports all of it.
	ReasonUnsupported = "Unsupported"

	reasonCohortCycle    = "CohortCycle"
	reasonReady          = "Ready"
	reasonStopped        = "Stopped"
	reasonNoClusterQueue = "ClusterQueueDoesNotExist"
	reasonInactiveQueue  = "ClusterQueueIsInactive"
	reasonCheckActive    = "Active"
	reasonBadParameters  = "BadParametersRef"
	reasonNoProvisioner  = "ProvisionerNotInstalled"

	CapacityPolicyKind = "CapacityPolicy"
)
