package jobs

import (
	"encoding/json"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// original is what a start changes of a pod template. Of labels and annotations
// only the changed ones are kept, with null for those that were not there.
type original struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	Labels       map[string]*string  `json:"labels,omitempty"`
	Annotations  map[string]*string  `json:"annotations,omitempty"`
}

// start makes the Job run on its flavors and in what its checks have prepared.
func start(job *batchv1.Job, flavors []*kueue.ResourceFlavor, updates []kueue.PodSetUpdate) error {
	template := &job.Spec.Template
	before := original{
		NodeSelector: template.Spec.NodeSelector,
		Tolerations:  template.Spec.Tolerations,
		Labels:       map[string]*string{},
		Annotations:  map[string]*string{},
	}
	*template = *queueing.TemplateOn(template, flavors)
	for i := range updates {
		u := &updates[i]
		if template.Spec.NodeSelector == nil {
			template.Spec.NodeSelector = map[string]string{}
		}
		maps.Copy(template.Spec.NodeSelector, u.NodeSelector)
		template.Spec.Tolerations = queueing.AddTolerations(template.Spec.Tolerations, u.Tolerations)
		template.Labels = overwrite(template.Labels, u.Labels, before.Labels)
		template.Annotations = overwrite(template.Annotations, u.Annotations, before.Annotations)
	}
	record, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("recording the pod template of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[StartedAnnotation] = string(record)
	job.Spec.Suspend = new(false)
	return nil
}

// overwrite copies more into values and keeps the values that it replaces.
func overwrite(values, more map[string]string, before map[string]*string) map[string]string {
	values = maps.Clone(values)
	for k, v := range more {
		if values == nil {
			values = map[string]string{}
		}
		if old, ok := values[k]; ok {
			before[k] = &old
		} else {
			before[k] = nil
		}
		values[k] = v
	}
	return values
}

// restore undoes a start, and says whether there was something to undo. A Job
// that was started by Kueue has no record; its Workload, if there is one, has the
// template as it was.
func restore(job *batchv1.Job, w *kueue.Workload) (bool, error) {
	template := &job.Spec.Template
	if record := job.Annotations[StartedAnnotation]; record != "" {
		var before original
		if err := json.Unmarshal([]byte(record), &before); err != nil {
			return false, fmt.Errorf("the annotation %s of Job %s/%s is not what Muster wrote: %w", StartedAnnotation, job.Namespace, job.Name, err)
		}
		template.Spec.NodeSelector, template.Spec.Tolerations = before.NodeSelector, before.Tolerations
		template.Labels = putBack(template.Labels, before.Labels)
		template.Annotations = putBack(template.Annotations, before.Annotations)
		delete(job.Annotations, StartedAnnotation)
		return true, nil
	}
	if w == nil || len(w.Spec.PodSets) != 1 {
		return false, nil
	}
	was := &w.Spec.PodSets[0].Template.Spec
	if equality.Semantic.DeepEqual(template.Spec.NodeSelector, was.NodeSelector) && equality.Semantic.DeepEqual(template.Spec.Tolerations, was.Tolerations) {
		return false, nil
	}
	template.Spec.NodeSelector, template.Spec.Tolerations = was.NodeSelector, was.Tolerations
	return true, nil
}

func putBack(values map[string]string, before map[string]*string) map[string]string {
	for k, v := range before {
		switch {
		case v == nil:
			delete(values, k)
		case values == nil:
			values = map[string]string{k: *v}
		default:
			values[k] = *v
		}
	}
	return values
}
