package checks

import (
	"fmt"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Terms are the conditions on which a Workload currently gets machines from a check: the fields of its CapacityPolicy,
// overridden by annotations of the job.
type Terms struct {
	Policy v1alpha1.CapacityPolicySpec
	// Fallback is when the next capacity type may be used; zero if all may. Policy has only those that may be used
	// now.
	Fallback time.Time
	// StartBy is the latest start; zero is none.
	StartBy time.Time
}

// StartByParameter of a job is the time, in RFC 3339, by which it must have its machines. It overrides startWithin,
// which counts from the creation of the job.
const StartByParameter = "startBy"

// ReasonStartByPassed is the reason of QuotaReserved=False if a job has no machines at its latest start.
const ReasonStartByPassed = "StartByPassed"

// TermsOf returns the current terms. It ignores invalid annotations.
func (s Evaluator) TermsOf(w *cache.Workload, check kueue.AdmissionCheckReference) Terms {
	policy, _ := s.policyFor(w, check)
	out := Terms{Policy: policy.spec}
	// Failed attempts count as waiting, so count from the creation.
	allowed, next := out.Policy.AllowedAfter(s.now.Sub(w.Object.CreationTimestamp.Time))
	if next > 0 {
		out.Policy.CapacityTypes, out.Fallback = allowed, s.now.Add(next)
	}
	if within := out.Policy.StartWithin; within != nil {
		out.StartBy = w.Object.CreationTimestamp.Add(within.Duration)
	}
	if w.HasTerms {
		latest := policy.latestStart(w)
		if by, err := time.Parse(time.RFC3339, parameterOf(w.Object, StartByParameter)); err == nil && (latest.IsZero() || !by.After(latest)) {
			out.StartBy = by
		}
	}
	return out
}

// granted is the CapacityPolicy that applies to a Workload.
type granted struct {
	// name of the policy; empty for none.
	name string
	spec v1alpha1.CapacityPolicySpec
	// bounds is the policy that limits the annotations of the job.
	bounds *v1alpha1.CapacityPolicy
}

// policyFor returns the policy of the Workload's request of the check. It ignores annotations that are not allowed; the
// error names them.
func (s Evaluator) policyFor(w *cache.Workload, check kueue.AdmissionCheckReference) (granted, error) {
	own := s.policyOfCheck(check)
	out := granted{own.Name, own.Spec, own}
	if !w.HasTerms {
		return out, nil
	}
	const annotation = "the annotation " + workload.ParameterPrefix
	said := func(name string) string { return parameterOf(w.Object, name) }
	var err error
	named, ok := w.Object.Annotations[workload.ParameterPrefix+PolicyParameter]
	if !ok || named == own.Name {
		if out.spec, err = own.Overridden(said); err != nil {
			err = fmt.Errorf("%s%w", annotation, err)
		}
		return out, err
	}
	other := &v1alpha1.CapacityPolicy{}
	if named != "" {
		if other = s.cache.Policies[named]; other == nil {
			return out, fmt.Errorf("CapacityPolicy %q, which %s%s names, doesn't exist; create it or change the annotation",
				named, annotation, PolicyParameter)
		}
	}
	spec, err := other.Overridden(said)
	if err != nil {
		return out, fmt.Errorf("%s%w", annotation, err)
	}
	if may := own.Spec.Overrides; may != nil && slices.Contains(may.CapacityPolicies, named) {
		return granted{named, spec, other}, nil
	}
	if err := own.Admits(&spec); err != nil {
		return out, fmt.Errorf("%s%s is %q: with it, %w, or spec.overrides.capacityPolicies of the one that admission check %s names",
			annotation, PolicyParameter, named, err, check)
	}
	return granted{named, spec, own}, nil
}

// policyOfCheck returns the CapacityPolicy of a check; an empty one if there is none.
func (s Evaluator) policyOfCheck(check kueue.AdmissionCheckReference) *v1alpha1.CapacityPolicy {
	name := v1alpha1.DefaultPolicy
	if ref := s.cache.Checks[check].Spec.Parameters; ref != nil {
		name = ref.Name
	}
	if policy := s.cache.Policies[name]; policy != nil {
		return policy
	}
	return &v1alpha1.CapacityPolicy{}
}

// latestStart returns the latest startBy that the job may request; zero if any is allowed.
func (g *granted) latestStart(w *cache.Workload) time.Time {
	within := g.bounds.Spec.StartWithin
	if may := g.bounds.Spec.Overrides; may != nil && may.StartWithin != nil {
		within = may.StartWithin
	}
	if within == nil {
		return time.Time{}
	}
	return w.Object.CreationTimestamp.Add(within.Duration)
}

// hasOwnTerms reports whether the terms of a check may differ from those of other Workloads: the job requests some, or
// they change with the waiting time. With a clock that is behind, the waiting time may be negative.
func (s Evaluator) hasOwnTerms(w *cache.Workload, check kueue.AdmissionCheckReference) bool {
	return w.HasTerms || len(s.policyOfCheck(check).Spec.FallbackAfter) > 0 || s.now.Before(w.Object.CreationTimestamp.Time)
}

// PolicyOf returns the policy of the Workload's request.
func (s Evaluator) PolicyOf(w *cache.Workload, check kueue.AdmissionCheckReference) state.Policy {
	return state.PolicyFrom(state.AtomicScaleUp, s.TermsOf(w, check).Policy)
}

// Hint says when more capacity types may be used.
func (t *Terms) Hint() string {
	if t.Fallback.IsZero() {
		return ""
	}
	return fmt.Sprintf("; only %v capacity may be used until %s (fallbackAfter)", t.Policy.CapacityTypes,
		t.Fallback.UTC().Format(time.RFC3339))
}

// LikeTerms is equal for Workloads of a queue that currently get machines on the same terms. It leaves out what is the
// same for all.
func (s Evaluator) LikeTerms(q *cache.ClusterQueue, w *cache.Workload) string {
	out := ""
	for _, rule := range cache.CheckRules(q.Object) {
		if !s.cache.IsCapacity(rule.Name) || !s.hasOwnTerms(w, rule.Name) {
			continue
		}
		t := s.TermsOf(w, rule.Name)
		policy, _ := s.policyFor(w, rule.Name)
		out += fmt.Sprintln(policy.name, t.Policy.CapacityTypes, t.Policy.MaxPricePerHour)
	}
	return out
}

func TooLate(by time.Time) string {
	return fmt.Sprintf("It had no machines at %s, its latest start; set a later %s%s, or delete it",
		by.UTC().Format(time.RFC3339), workload.ParameterPrefix, StartByParameter)
}
