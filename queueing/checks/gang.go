package checks

import (
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// GangOf returns the Workload's pods that have no machines, on the flavors of an admission.
func (s Evaluator) GangOf(w *cache.Workload, admission *kueue.Admission) state.Gang {
	t := w.Tenant()
	gang := state.Gang{Namespace: t.Namespace, Queue: t.Queue, Name: w.Object.Namespace + "/" + w.Object.Name}
	runsBy := s.cache.Slices.RunsBy(w)
	for i := range admission.PodSetAssignments {
		assignment := &admission.PodSetAssignments[i]
		count := missing(runsBy, assignment)
		if runsBy != nil && count == 0 {
			continue
		}
		gang.PodSets = append(gang.PodSets, state.PodSet{
			Name: string(assignment.Name), Count: int(count), Template: s.templateOf(w, assignment),
		})
	}
	return gang
}

// templateOf returns the template of a podSet on its flavors.
func (s Evaluator) templateOf(w *cache.Workload, assignment *kueue.PodSetAssignment) *corev1.PodTemplateSpec {
	var flavors []*kueue.ResourceFlavor
	for _, name := range workload.AssignedFlavors(&kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{*assignment}}) {
		if flavor := s.cache.Flavors[name]; flavor != nil {
			flavors = append(flavors, flavor)
		}
	}
	template := workload.TemplateOn(&workload.FindPodSet(w.Object, assignment.Name).Template, flavors)
	template.Spec = *s.cache.CompletePodSpec(w.Object.Namespace, &template.Spec)
	// The pods end with the Workload's maximum execution time, which budgets use.
	if most, own := w.Object.Spec.MaximumExecutionTimeSeconds, template.Spec.ActiveDeadlineSeconds; most != nil &&
		(own == nil || *own > int64(*most)) {
		template.Spec.ActiveDeadlineSeconds = new(int64(*most))
	}
	return template
}
