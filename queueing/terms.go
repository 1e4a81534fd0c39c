package queueing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// startBy is when it is too late for machines; zero is never.
	startBy time.Time
}

// startByParameter of a job is a time, as RFC 3339 writes it, by which it is to have
// its machines. It comes before startWithin, which counts from the job's creation.
const startByParameter = "startBy"

// ReasonStartByPassed is the reason of QuotaReserved=False where a job has no
// machines by the time at which it was to start.
const ReasonStartByPassed = "StartByPassed"

// termsOf reads them. An annotation that makes no sense counts for nothing here.
func (s Evaluator) termsOf(w *Workload, check kueue.AdmissionCheckReference) terms {
	policy, _ := s.policyFor(w, check)
	out := terms{policy: policy.spec}
	// What a failed attempt takes counts as waiting, so not since the last one.
	allowed, next := out.policy.AllowedAfter(s.now.Sub(w.Object.CreationTimestamp.Time))
	if next > 0 {
		out.policy.CapacityTypes, out.fallback = allowed, s.now.Add(next)
	}
	if within := out.policy.StartWithin; within != nil {
		out.startBy = w.Object.CreationTimestamp.Add(within.Duration)
	}
	if w.asks {
		latest := policy.latestStart(w)
		if by, err := time.Parse(time.RFC3339, parameterOf(w.Object, startByParameter)); err == nil && (latest.IsZero() || !by.After(latest)) {
			out.startBy = by
		}
	}
	return out
}

// granted is what a CapacityPolicy gives a Workload.
type granted struct {
	// name of the policy, empty for none.
	name string
	spec v1alpha1.CapacityPolicySpec
	// bounds is the policy that says how far the job's annotations may go.
	bounds *v1alpha1.CapacityPolicy
}

// policyFor is the policy that the Workload's request of the check gets. What its job's
// annotations may not say is left out, and the error says why.
func (s Evaluator) policyFor(w *Workload, check kueue.AdmissionCheckReference) (granted, error) {
	own := s.policyOfCheck(check)
	out := granted{own.Name, own.Spec, own}
	if !w.asks {
		return out, nil
	}
	const annotation = "the annotation " + ParameterPrefix
	said := func(name string) string { return parameterOf(w.Object, name) }
	var err error
	named, ok := w.Object.Annotations[ParameterPrefix+PolicyParameter]
	if !ok || named == own.Name {
		if out.spec, err = own.Overridden(said); err != nil {
			err = fmt.Errorf("%s%w", annotation, err)
		}
		return out, err
	}
	other := &v1alpha1.CapacityPolicy{}
	if named != "" {
		if other = s.policies[named]; other == nil {
			return out, fmt.Errorf("CapacityPolicy %q, which %s%s names, doesn't exist; create it or change the annotation", named, annotation, PolicyParameter)
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

// policyOfCheck is the CapacityPolicy that an admin has given a check; one without fields
// where there is none.
func (s Evaluator) policyOfCheck(check kueue.AdmissionCheckReference) *v1alpha1.CapacityPolicy {
	name := v1alpha1.DefaultPolicy
	if ref := s.checks[check].Spec.Parameters; ref != nil {
		name = ref.Name
	}
	if policy := s.policies[name]; policy != nil {
		return policy
	}
	return &v1alpha1.CapacityPolicy{}
}

// latestStart is the latest startBy that the Workload's job may say; zero where any
// will do.
func (g *granted) latestStart(w *Workload) time.Time {
	within := g.bounds.Spec.StartWithin
	if may := g.bounds.Spec.Overrides; may != nil && may.StartWithin != nil {
		within = may.StartWithin
	}
	if within == nil {
		return time.Time{}
	}
	return w.Object.CreationTimestamp.Add(within.Duration)
}

// tailored says that the terms of a check are not the same for the Workload as for all
// others: its job asks for some, or they change with how long one has waited. A clock
// that is behind has some wait for less than no time.
func (s Evaluator) tailored(w *Workload, check kueue.AdmissionCheckReference) bool {
	return w.asks || len(s.policyOfCheck(check).Spec.FallbackAfter) > 0 || s.now.Before(w.Object.CreationTimestamp.Time)
}

// parameter is what the job's annotations say of one; empty if nothing.
func parameterOf(w *kueue.Workload, name string) string { return w.Annotations[ParameterPrefix+name] }

// parameters are those of a request of Muster's own check. Capacity types that
// have to wait are left to the next attempt, since a request cannot be changed.
// The map is never nil, since the API takes no null.
func (s Evaluator) parameters(w *Workload, check kueue.AdmissionCheckReference) map[string]autoscaling.Parameter {
	out := map[string]autoscaling.Parameter{}
	annotated(w, out)
	delete(out, PolicyParameter)
	if policy, _ := s.policyFor(w, check); policy.name != "" {
		out[PolicyParameter] = autoscaling.Parameter(policy.name)
	}
	t := s.termsOf(w, check)
	if !t.fallback.IsZero() {
		names := make([]string, len(t.policy.CapacityTypes))
		for i, c := range t.policy.CapacityTypes {
			names[i] = string(c)
		}
		out[v1alpha1.ParamCapacityTypes] = autoscaling.Parameter(strings.Join(names, ","))
	}
	if t.policy.OnMachineLoss == "" && out[v1alpha1.ParamOnMachineLoss] == "" {
		// Pods in place of those that were lost could run on no other machine.
		out[v1alpha1.ParamOnMachineLoss] = autoscaling.Parameter(v1alpha1.LossRevoke)
	}
	return out
}

// addedParameters are those that parameters may add to what the job's annotations say.
var addedParameters = []string{PolicyParameter, v1alpha1.ParamCapacityTypes, v1alpha1.ParamOnMachineLoss}

// policyOf is the policy that the Workload's request will have.
func (s Evaluator) policyOf(w *Workload, check kueue.AdmissionCheckReference) provisioning.Policy {
	return provisioning.PolicyFrom(provisioning.AtomicScaleUp, s.termsOf(w, check).policy)
}

// hint tells when more capacity types may be used.
func (t *terms) hint() string {
	if t.fallback.IsZero() {
		return ""
	}
	return fmt.Sprintf("; only %v capacity may be used until %s (fallbackAfter)", t.policy.CapacityTypes, t.fallback.UTC().Format(time.RFC3339))
}

// likeTerms is equal for Workloads of a queue that would get machines on the same
// terms now. It leaves out what is the same for all.
func (s Evaluator) likeTerms(q *queue, w *Workload) string {
	var out strings.Builder
	for _, rule := range checkRules(q.object) {
		if !s.isCapacity(rule.Name) || !s.tailored(w, rule.Name) {
			continue
		}
		t := s.termsOf(w, rule.Name)
		policy, _ := s.policyFor(w, rule.Name)
		fmt.Fprintln(&out, policy.name, t.policy.CapacityTypes, t.policy.MaxPricePerHour)
	}
	return out.String()
}

// late says that no flavor may get a Workload machines any more, and what becomes
// of it. As long as some may, it is looked at again when the time comes.
func (s Rules) late(w *Workload, q *queue) (*Verdict, bool) {
	var last terms
	for _, flavor := range flavorsOf(q.object) {
		checks := s.capacityChecks(checksFor(q.object, []kueue.ResourceFlavorReference{flavor}))
		if len(checks) == 0 {
			return nil, false
		}
		t := s.termsOf(w, checks[0])
		if t.startBy.IsZero() {
			return nil, false
		}
		if t.startBy.After(last.startBy) {
			last = t
		}
	}
	switch {
	case last.startBy.IsZero():
		return nil, false
	case s.now.Before(last.startBy):
		s.wake(w, last.startBy)
		return nil, false
	case last.policy.OnLateStart == v1alpha1.LateDeactivate:
		return &Verdict{Workload: w, Action: Deactivate, Reason: ReasonStartByPassed, Message: tooLate(last.startBy)}, true
	}
	return s.wait(w, ReasonStartByPassed, tooLate(last.startBy)), true
}

func tooLate(by time.Time) string {
	return fmt.Sprintf("It has no machines by %s, when it was to start at the latest; give it a later %s%s, or delete it",
		by.UTC().Format(time.RFC3339), ParameterPrefix, startByParameter)
}

// refusedParameters says which of the job's annotations cannot become parameters of
// a request of the queue's checks.
func (s Evaluator) refusedParameters(q *queue, w *Workload) string {
	count := len(addedParameters)
	for _, k := range slices.Sorted(maps.Keys(w.Object.Annotations)) {
		v := w.Object.Annotations[k]
		switch name, ok := strings.CutPrefix(k, ParameterPrefix); {
		case !ok:
		case len(v) > maxParameter:
			return fmt.Sprintf("the annotation %s has %d characters; a parameter may have %d", k, len(v), maxParameter)
		case !slices.Contains(addedParameters, name):
			count++
		}
	}
	if count > maxParameters {
		return fmt.Sprintf("the annotations %s… make %d parameters, with those that the queue adds; a request may have %d", ParameterPrefix, count, maxParameters)
	}
	// Others' provisioners have parameters of their own.
	for _, rule := range checkRules(q.object) {
		if s.isCapacity(rule.Name) {
			if why := s.refusedTerms(w, rule.Name); why != "" {
				return why
			}
		}
	}
	return ""
}

// refusedTerms says which annotations a check of Muster's own cannot follow, or which its
// policy does not let a job have. Such a job waits rather than get other terms than it
// asked for: it would pay for machines that it loses before its pods are there, or run in
// a market that it did not want.
func (s Evaluator) refusedTerms(w *Workload, check kueue.AdmissionCheckReference) string {
	const prefix = "the annotation " + ParameterPrefix
	if parameterOf(w.Object, processorParameter) != "" {
		return prefix + processorParameter + " would give the request to another provisioner, which books no machines for the queue; remove it from the job"
	}
	policy, err := s.policyFor(w, check)
	if err != nil {
		return err.Error()
	}
	if only := policy.spec.NamespaceSelector; only != nil {
		if selector, err := metav1.LabelSelectorAsSelector(only); err != nil || !selector.Matches(s.labelsOf(w.Object.Namespace)) {
			return fmt.Sprintf("CapacityPolicy %s is not for namespace %s (spec.namespaceSelector); have an admin give the namespace the labels that it selects",
				policy.name, w.Object.Namespace)
		}
	}
	by := parameterOf(w.Object, startByParameter)
	start, err := time.Parse(time.RFC3339, by)
	if by == "" {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("%s%s is %q: give a time such as 2026-01-31T18:00:00Z", prefix, startByParameter, by)
	}
	if latest := policy.latestStart(w); !latest.IsZero() && start.After(latest) {
		return fmt.Sprintf("%s%s is %q: CapacityPolicy %s lets it be %s at the latest; give that, or have an admin change spec.overrides.startWithin of the CapacityPolicy",
			prefix, startByParameter, by, policy.bounds.Name, latest.UTC().Format(time.RFC3339))
	}
	return ""
}
