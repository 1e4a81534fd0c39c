package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// original is what a start changes of a Job. Of labels and annotations only the
// changed ones are kept, with null for those that were not there; parallelism and
// completions only where the Job starts with fewer pods.
type original struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	Labels       map[string]*string  `json:"labels,omitempty"`
	Annotations  map[string]*string  `json:"annotations,omitempty"`
	Parallelism  *int32              `json:"parallelism,omitempty"`
	Completions  *int32              `json:"completions,omitempty"`
	// Gated: the gate of elastic Jobs was put on.
	Gated bool `json:"gated,omitempty"`
}

// start makes the Job run as it was admitted: with as many pods as have quota, on
// its flavors and in what its checks have prepared.
func start(job *batchv1.Job, w *kueue.Workload, flavors []*kueue.ResourceFlavor) error {
	template := &job.Spec.Template
	before := original{
		NodeSelector: template.Spec.NodeSelector,
		Tolerations:  template.Spec.Tolerations,
		Labels:       map[string]*string{},
		Annotations:  map[string]*string{},
	}
	if count := assignedCount(w); count < podCount(job) {
		before.Parallelism = job.Spec.Parallelism
		job.Spec.Parallelism = new(count)
		// Checked when the Workload was made.
		if tied, _ := strconv.ParseBool(job.Annotations[EqualCompletionsAnnotation]); tied {
			before.Completions = job.Spec.Completions
			job.Spec.Completions = new(count)
		}
	}
	*template = *queueing.TemplateOn(template, flavors)
	updates := updatesOf(w)
	if err := conflict(template, updates); err != nil {
		return err
	}
	update(template, &kueue.PodSetUpdate{Labels: queueLabels(w)}, &before)
	if isElastic(job) {
		// What the checks have prepared goes to each pod with its gate: a later slice
		// has other places.
		update(template, &kueue.PodSetUpdate{
			// The policy that keeps the gate on is asked of pods with this label alone.
			Labels:      map[string]string{queueing.ElasticAnnotation: "true"},
			Annotations: map[string]string{kueue.WorkloadSliceNameAnnotation: sliceName(w)},
		}, &before)
		if before.Gated = !slices.ContainsFunc(template.Spec.SchedulingGates, isElasticGate); before.Gated {
			template.Spec.SchedulingGates = append(template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
		}
	} else {
		for _, u := range updates {
			update(template, &u, &before)
		}
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

// assignedCount is how many pods of a Workload with quota have it.
func assignedCount(w *kueue.Workload) int32 {
	return valueOr(w.Status.Admission.PodSetAssignments[0].Count, w.Spec.PodSets[0].Count)
}

// updatesOf are what the checks of a Workload have prepared for its pods.
func updatesOf(w *kueue.Workload) (updates []kueue.PodSetUpdate) {
	for _, check := range w.Status.AdmissionChecks {
		for _, u := range check.PodSetUpdates {
			if u.Name == w.Spec.PodSets[0].Name {
				updates = append(updates, u)
			}
		}
	}
	return updates
}

// failedToStart is the reason of Finished, Kueue's, for a Job that can never start as it
// was admitted.
const failedToStart = "FailedToStart"

// errConflict: a check wants other values of the template than its user, or than another
// check. The words are Kueue's.
var errConflict = errors.New("invalid admission check PodSetUpdate")

// conflict says whether checks contradict each other or the template, which is on its
// flavors already.
func conflict(template *corev1.PodTemplateSpec, updates []kueue.PodSetUpdate) error {
	have := map[string]map[string]string{
		"annotations": maps.Clone(template.Annotations), "labels": maps.Clone(template.Labels), "nodeSelector": maps.Clone(template.Spec.NodeSelector),
	}
	for _, u := range updates {
		for _, want := range []struct {
			what   string
			values map[string]string
		}{{"annotations", u.Annotations}, {"labels", u.Labels}, {"nodeSelector", u.NodeSelector}} {
			for _, key := range slices.Sorted(maps.Keys(want.values)) {
				if old, ok := have[want.what][key]; ok && old != want.values[key] {
					return fmt.Errorf("%w: conflict for %s: conflict for key=%s, value1=%s, value2=%s; take the key out of the Job's pod template",
						errConflict, want.what, key, old, want.values[key])
				}
			}
			have[want.what] = merge(have[want.what], want.values)
		}
	}
	return nil
}

// queueLabels tell by pod what it was admitted as. A ClusterQueue may have a name
// that no label can have as its value.
func queueLabels(w *kueue.Workload) map[string]string {
	out := map[string]string{PodSetLabel: string(w.Spec.PodSets[0].Name)}
	for key, value := range map[string]string{LocalQueueLabel: string(w.Spec.QueueName), ClusterQueueLabel: string(w.Status.Admission.ClusterQueue)} {
		if len(validation.IsValidLabelValue(value)) == 0 {
			out[key] = value
		}
	}
	return out
}

// update changes a template and keeps in before what it replaces.
func update(template *corev1.PodTemplateSpec, u *kueue.PodSetUpdate, before *original) {
	template.Spec.NodeSelector = merge(template.Spec.NodeSelector, u.NodeSelector)
	template.Spec.Tolerations = queueing.AddTolerations(template.Spec.Tolerations, u.Tolerations)
	template.Labels = overwrite(template.Labels, u.Labels, before.Labels)
	template.Annotations = overwrite(template.Annotations, u.Annotations, before.Annotations)
}

// overwrite copies more into values and keeps the values that it replaces, unless
// they are replacements themselves.
func overwrite(values, more map[string]string, before map[string]*string) map[string]string {
	values = maps.Clone(values)
	for k, v := range more {
		if values == nil {
			values = map[string]string{}
		}
		if _, kept := before[k]; !kept {
			before[k] = nil
			if old, ok := values[k]; ok {
				before[k] = &old
			}
		}
		values[k] = v
	}
	return values
}

// restore undoes a start, and reports whether there was something to undo. A Job
// that was started by Kueue has no record; its Workload, if there is one, has the
// template as it was.
func restore(job *batchv1.Job, w *kueue.Workload) (bool, error) {
	template := &job.Spec.Template
	if record := job.Annotations[StartedAnnotation]; record != "" {
		var before original
		if err := json.Unmarshal([]byte(record), &before); err != nil {
			return false, fmt.Errorf("the annotation %s is no record that Muster wrote: %w", StartedAnnotation, err)
		}
		template.Spec.NodeSelector, template.Spec.Tolerations = before.NodeSelector, before.Tolerations
		template.Labels = putBack(template.Labels, before.Labels)
		template.Annotations = putBack(template.Annotations, before.Annotations)
		if before.Gated {
			template.Spec.SchedulingGates = slices.DeleteFunc(template.Spec.SchedulingGates, isElasticGate)
		}
		if before.Parallelism != nil {
			job.Spec.Parallelism = before.Parallelism
		}
		if before.Completions != nil {
			job.Spec.Completions = before.Completions
		}
		delete(job.Annotations, StartedAnnotation)
		return true, nil
	}
	if w == nil || len(w.Spec.PodSets) != 1 {
		return false, nil
	}
	podSet := &w.Spec.PodSets[0]
	was := &podSet.Template.Spec
	fewer := podSet.MinCount != nil && valueOr(job.Spec.Parallelism, 1) < podSet.Count
	if !fewer && equality.Semantic.DeepEqual(template.Spec.NodeSelector, was.NodeSelector) && equality.Semantic.DeepEqual(template.Spec.Tolerations, was.Tolerations) {
		return false, nil
	}
	template.Spec.NodeSelector, template.Spec.Tolerations = was.NodeSelector, was.Tolerations
	if fewer {
		job.Spec.Parallelism = new(podSet.Count)
	}
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
