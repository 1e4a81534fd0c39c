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

// parameterOf returns a parameter from the job's annotations; empty if there is none.
func parameterOf(w *kueue.Workload, name string) string {
	return w.Annotations[workload.ParameterPrefix+name]
}

// Parameters returns the parameters of a request of Muster's check. A capacity type that may be used only later is left
// to the next attempt, because a request is immutable. The map is never nil, because the API rejects null.
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
		// Replacements of the lost pods could run on no other machine.
		out[v1alpha1.ParamOnMachineLoss] = autoscaling.Parameter(v1alpha1.LossRevoke)
	}
	return out
}

// addedParameters are the parameters that Parameters may add to those of the annotations.
var addedParameters = []string{PolicyParameter, v1alpha1.ParamCapacityTypes, v1alpha1.ParamOnMachineLoss}

// RefusedParameters returns which annotations of the job cannot become parameters of a request of the queue's checks.
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
	// Other provisioners have their own parameters.
	for _, rule := range cache.CheckRules(q.Object) {
		if s.cache.IsCapacity(rule.Name) {
			if why := s.refusedTerms(w, rule.Name); why != "" {
				return why
			}
		}
	}
	return ""
}

// refusedTerms returns which annotations a check of Muster cannot follow, or its policy does not allow. Such a job
// waits. With other terms than it requested it could pay for machines that it loses before its pods run, or use a
// capacity type that it did not want.
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
