package checks

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
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// parameterOf is what the job's annotations say of one; empty if nothing.
func parameterOf(w *kueue.Workload, name string) string {
	return w.Annotations[workload.ParameterPrefix+name]
}

// Parameters are those of a request of Muster's own check. Capacity types that
// have to wait are left to the next attempt, since a request cannot be changed.
// The map is never nil, since the API takes no null.
func (s Evaluator) Parameters(w *cache.Workload, check kueue.AdmissionCheckReference) map[string]autoscaling.Parameter {
	out := map[string]autoscaling.Parameter{}
	annotated(w, out)
	delete(out, PolicyParameter)
	if policy, _ := s.policyFor(w, check); policy.name != "" {
		out[PolicyParameter] = autoscaling.Parameter(policy.name)
	}
	t := s.TermsOf(w, check)
	if !t.Fallback.IsZero() {
		names := make([]string, len(t.Policy.CapacityTypes))
		for i, c := range t.Policy.CapacityTypes {
			names[i] = string(c)
		}
		out[v1alpha1.ParamCapacityTypes] = autoscaling.Parameter(strings.Join(names, ","))
	}
	if t.Policy.OnMachineLoss == "" && out[v1alpha1.ParamOnMachineLoss] == "" {
		// Pods in place of those that were lost could run on no other machine.
		out[v1alpha1.ParamOnMachineLoss] = autoscaling.Parameter(v1alpha1.LossRevoke)
	}
	return out
}

// addedParameters are those that parameters may add to what the job's annotations say.
var addedParameters = []string{PolicyParameter, v1alpha1.ParamCapacityTypes, v1alpha1.ParamOnMachineLoss}

// RefusedParameters says which of the job's annotations cannot become parameters of
// a request of the queue's checks.
func (s Evaluator) RefusedParameters(q *cache.ClusterQueue, w *cache.Workload) string {
	count := len(addedParameters)
	for _, k := range slices.Sorted(maps.Keys(w.Object.Annotations)) {
		v := w.Object.Annotations[k]
		switch name, ok := strings.CutPrefix(k, workload.ParameterPrefix); {
		case !ok:
		case len(v) > maxParameter:
			return fmt.Sprintf("the annotation %s has %d characters; a parameter may have %d", k, len(v), maxParameter)
		case !slices.Contains(addedParameters, name):
			count++
		}
	}
	if count > maxParameters {
		return fmt.Sprintf("the annotations %s… and the queue give %d parameters; a request may have %d",
			workload.ParameterPrefix, count, maxParameters)
	}
	// Others' provisioners have parameters of their own.
	for _, rule := range cache.CheckRules(q.Object) {
		if s.cache.IsCapacity(rule.Name) {
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
func (s Evaluator) refusedTerms(w *cache.Workload, check kueue.AdmissionCheckReference) string {
	const prefix = "the annotation " + workload.ParameterPrefix
	if parameterOf(w.Object, processorParameter) != "" {
		return prefix + processorParameter +
			" would pass the request to another provisioner, which books no machines for the queue; remove it from the job"
	}
	policy, err := s.policyFor(w, check)
	if err != nil {
		return err.Error()
	}
	if only := policy.spec.NamespaceSelector; only != nil {
		if selector, err := metav1.LabelSelectorAsSelector(only); err != nil ||
			!selector.Matches(s.cache.Namespaces.LabelsOf(w.Object.Namespace)) {
			return fmt.Sprintf("CapacityPolicy %s is not for namespace %s (spec.namespaceSelector); ask an administrator to add the labels that "+
				"it selects to the namespace", policy.name, w.Object.Namespace)
		}
	}
	by := parameterOf(w.Object, StartByParameter)
	start, err := time.Parse(time.RFC3339, by)
	if by == "" {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("%s%s is %q: give a time such as 2026-01-31T18:00:00Z", prefix, StartByParameter, by)
	}
	if latest := policy.latestStart(w); !latest.IsZero() && start.After(latest) {
		return fmt.Sprintf("%s%s is %q: CapacityPolicy %s allows %s at the latest; use that, or ask an administrator to change "+
			"spec.overrides.startWithin of the CapacityPolicy", prefix, StartByParameter, by, policy.bounds.Name, latest.UTC().Format(time.RFC3339))
	}
	return ""
}
