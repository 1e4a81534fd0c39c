package cache

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// IsCapacity reports whether Muster serves a check with ProvisioningRequests.
func (s *Settings) IsCapacity(name kueue.AdmissionCheckReference) bool {
	ac := s.Checks[name]
	return ac != nil && ac.Spec.ControllerName == CapacityController
}

// Books reports whether a check creates ProvisioningRequests, of either controller.
func (s *Settings) Books(name kueue.AdmissionCheckReference) bool {
	return s.IsCapacity(name) || s.IsRequest(name)
}

// CapacityChecks returns the checks that Muster serves.
func (s *Settings) CapacityChecks(names []kueue.AdmissionCheckReference) []kueue.AdmissionCheckReference {
	return slices.DeleteFunc(slices.Clone(names), func(n kueue.AdmissionCheckReference) bool { return !s.IsCapacity(n) })
}

// Names of the controllers of admission checks.
const (
	// CapacityController is the controllerName of checks that Muster serves: the machines of all pods must be Ready
	// and booked.
	CapacityController = "muster.dev/capacity"
	// ProvisioningRequestController is the controllerName of Kueue's checks. Muster serves them as Kueue does: any
	// provisioner may answer their requests.
	ProvisioningRequestController = "kueue.x-k8s.io/provisioning-request"
)

// Delegates reports whether the jobs of a queue run in other clusters, because it has a MultiKueue check.
func (s *Settings) Delegates(cq *kueue.ClusterQueue) bool { return len(s.delegating(cq)) > 0 }

// IsDelegating reports whether a check is a MultiKueue check.
func (s *Settings) IsDelegating(name kueue.AdmissionCheckReference) bool {
	ac := s.Checks[name]
	return ac != nil && ac.Spec.ControllerName == kueue.MultiKueueControllerName
}

// delegating returns the MultiKueue checks of the queue.
func (s *Settings) delegating(cq *kueue.ClusterQueue) (out []kueue.AdmissionCheckStrategyRule) {
	for _, rule := range CheckRules(cq) {
		if s.IsDelegating(rule.Name) {
			out = append(out, rule)
		}
	}
	return out
}

// IsRequest reports whether a check belongs to Kueue's controller, which uses the provisioning class of its
// ProvisioningRequestConfig.
func (s *Settings) IsRequest(name kueue.AdmissionCheckReference) bool {
	ac := s.Checks[name]
	return ac != nil && ac.Spec.ControllerName == ProvisioningRequestController
}

// ConfigOf returns the ProvisioningRequestConfig of a check; nil if the check is not active.
func (s *Settings) ConfigOf(check kueue.AdmissionCheckReference) *kueue.ProvisioningRequestConfigSpec {
	ac := s.Checks[check]
	if !s.CheckStatus(ac).Active {
		return nil
	}
	return &s.RequestConfig[ac.Spec.Parameters.Name].Spec
}

// requestCheckStatus returns the status of a check of Kueue's controller.
func (s *Settings) requestCheckStanding(ac *kueue.AdmissionCheck) ActiveStatus {
	const kind = "ProvisioningRequestConfig"
	bad := func(format string, args ...any) ActiveStatus {
		return ActiveStatus{Reason: reasonBadParameters, Message: fmt.Sprintf(format, args...)}
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
	return ActiveStatus{Active: true, Reason: reasonCheckActive, Message: "The admission check is active"}
}

// CheckStatus returns the status of an AdmissionCheck.
func (s *Settings) CheckStatus(ac *kueue.AdmissionCheck) ActiveStatus {
	switch ac.Spec.ControllerName {
	case CapacityController:
		return s.capacityCheckStanding(ac)
	case ProvisioningRequestController:
		return s.requestCheckStanding(ac)
	}
	for _, c := range ac.Status.Conditions {
		if c.Type == kueue.AdmissionCheckActive {
			return ActiveStatus{Active: c.Status == metav1.ConditionTrue, Reason: c.Reason, Message: c.Message, Foreign: true}
		}
	}
	why := "its controller " + ac.Spec.ControllerName + " has not reported that it is active"
	if ac.Spec.ControllerName == kueue.MultiKueueControllerName {
		why += "; run muster dispatcher --make-copies"
	}
	return ActiveStatus{Foreign: true, Reason: "Unknown", Message: why}
}

func (s *Settings) capacityCheckStanding(ac *kueue.AdmissionCheck) ActiveStatus {
	if s.withoutProvisioner {
		return ActiveStatus{Reason: reasonNoProvisioner, Message: fmt.Sprintf(
			"This cluster lacks the kinds of Muster's provisioner, so no machines can be booked for controllerName %s; "+
				"install what `muster manifests` prints and run muster with --provisioning=true, or use a check of %s with a provisioningClassName "+
				"of another provisioner",
			CapacityController, ProvisioningRequestController)}
	}
	if ref := ac.Spec.Parameters; ref != nil {
		if ref.APIGroup != v1alpha1.GroupVersion.Group || ref.Kind != CapacityPolicyKind {
			return ActiveStatus{Reason: reasonBadParameters, Message: fmt.Sprintf(
				"parameters name a %s of %s; %s takes a %s of %s, or none",
				ref.Kind, ref.APIGroup, CapacityController, CapacityPolicyKind, v1alpha1.GroupVersion.Group)}
		}
		if s.Policies[ref.Name] == nil {
			return ActiveStatus{Reason: reasonBadParameters, Message: fmt.Sprintf(
				"CapacityPolicy %q does not exist; create it or change parameters.name", ref.Name)}
		}
	}
	return ActiveStatus{Active: true, Reason: reasonCheckActive, Message: "The admission check is active"}
}

// ActiveStatus is the Active condition of an object.
type ActiveStatus struct {
	Active          bool
	Reason, Message string
	// Foreign: another controller owns the object and writes its condition.
	Foreign bool
}

// Reasons of Active conditions for which Kueue has no constant, and Muster's own.
const (
	// ReasonUnsupported: the object uses a feature that Muster does not support. Kueue has no such reason because it
	// supports them all.
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
