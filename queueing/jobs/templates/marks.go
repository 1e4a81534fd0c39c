package templates

import (
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// InvalidMarks returns why the API server would refuse pods of the pod sets for their labels, annotations or node selectors. It
// validates these in the templates of Jobs, but not in those of most other kinds.
func InvalidMarks(podSets []kueue.PodSet) (refusals []string) {
	meta := field.NewPath("metadata")
	for i := range podSets {
		t := &podSets[i].Template
		wrong := validation.ValidateLabels(t.Labels, meta.Child("labels"))
		wrong = append(wrong, apivalidation.ValidateAnnotations(t.Annotations, meta.Child("annotations"))...)
		wrong = append(wrong, validation.ValidateLabels(t.Spec.NodeSelector, field.NewPath("spec", "nodeSelector"))...)
		for _, err := range wrong {
			refusals = append(refusals, fmt.Sprintf("the pod template of podSet %s is invalid: %v; correct it", podSets[i].Name, err))
		}
	}
	slices.Sort(refusals) // maps have no order
	return refusals
}
