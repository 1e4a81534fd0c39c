package queueing

import (
	"fmt"
	"strings"
	"time"

	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// terms are those on which a Workload gets machines from a check now: the fields
// of its CapacityPolicy, and over them what the job's annotations say.
type terms struct {
	policy v1alpha1.CapacityPolicySpec
	// fallback is when the next capacity type may be used; zero where all may. The
	// policy has only those that may be used now.
	fallback time.Time
}

// termsOf reads them. An annotation that makes no sense counts for nothing here.
func (s *State) termsOf(w *Workload, check kueue.AdmissionCheckReference) terms {
	var out terms
	if policy := s.policies[s.policyName(w, check)]; policy != nil {
		out.policy = policy.Spec
	}
	if policy, err := out.policy.With(w.parameter); err == nil {
		out.policy = policy
	}
	// What a failed attempt takes counts as waiting, so not since the last one.
	allowed, next := out.policy.AllowedAfter(s.now.Sub(w.Object.CreationTimestamp.Time))
	if next > 0 {
		out.policy.CapacityTypes, out.fallback = allowed, s.now.Add(next)
	}
	return out
}

// policyName is the CapacityPolicy of a Workload's request; empty for none.
func (s *State) policyName(w *Workload, check kueue.AdmissionCheckReference) string {
	if name, ok := w.Object.Annotations[ParameterPrefix+PolicyParameter]; ok {
		return name
	}
	if ref := s.checks[check].Spec.Parameters; ref != nil {
		return ref.Name
	}
	return ""
}

// parameter is what the job's annotations say of one; empty if nothing.
func (w *Workload) parameter(name string) string { return w.Object.Annotations[ParameterPrefix+name] }

// parameters are those of a request of Muster's own check. Capacity types that
// have to wait are left to the next attempt, since a request cannot be changed.
// The map is never nil, since the API takes no null.
func (s *State) parameters(w *Workload, check kueue.AdmissionCheckReference) map[string]autoscaling.Parameter {
	out := map[string]autoscaling.Parameter{}
	if name := s.policyName(w, check); name != "" {
		out[PolicyParameter] = autoscaling.Parameter(name)
	}
	annotated(w, out)
	if t := s.termsOf(w, check); !t.fallback.IsZero() {
		names := make([]string, len(t.policy.CapacityTypes))
		for i, c := range t.policy.CapacityTypes {
			names[i] = string(c)
		}
		out[v1alpha1.ParamCapacityTypes] = autoscaling.Parameter(strings.Join(names, ","))
	}
	return out
}

// policyOf is the policy that the Workload's request will have.
func (s *State) policyOf(w *Workload, check kueue.AdmissionCheckReference) provisioning.Policy {
	return provisioning.PolicyFrom(provisioning.AtomicScaleUp, s.termsOf(w, check).policy)
}

// hint tells when more capacity types may be used.
func (t *terms) hint() string {
	if t.fallback.IsZero() {
		return ""
	}
	return fmt.Sprintf("; only %v capacity may be used until %s (fallbackAfter)", t.policy.CapacityTypes, t.fallback.UTC().Format(time.RFC3339))
}
