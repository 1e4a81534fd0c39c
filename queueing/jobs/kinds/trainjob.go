package kinds

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/queueing/jobs"
)

// A TrainJob names a runtime. Trainer creates a JobSet from it with the name of the TrainJob,
// suspended like it. The pod templates are read from the JobSet, because only Trainer can apply
// the runtime, the number of nodes and the plugins. A start patches the runtime.

// patchManager is the entry of spec.runtimePatches that queues write, as Kueue.
const patchManager = "kueue.x-k8s.io/manager"

// replicatedJobs are those of a runtime in an entry.
var replicatedJobs = pointer{"trainingRuntimeSpec", "template", "spec", "replicatedJobs"}

func findTrainJob(object map[string]any) (out []found, refusals []string) {
	set, ok := object[resolved].(map[string]any)
	if !ok {
		return nil, []string{"its pods are not known yet: Trainer makes a JobSet of its name; see that its controller runs, and that " +
			"spec.runtimeRef names a runtime"}
	}
	out, refusals = kindNamed("jobset.x-k8s.io/JobSet").find(set)
	for i := range out {
		out[i].place = runtimePatch(out[i].name)
	}
	return out, refusals
}

// runtimePatch is the patch for a replicated job of the runtime.
type runtimePatch string

// put implements place.
func (p runtimePatch) put(object map[string]any, t *corev1.PodTemplateSpec) error {
	spec, err := plain(map[string]any{
		"nodeSelector": t.Spec.NodeSelector, "tolerations": t.Spec.Tolerations, "schedulingGates": t.Spec.SchedulingGates,
	})
	if err != nil {
		return err
	}
	fields := spec.(map[string]any)
	maps.DeleteFunc(fields, func(_ string, value any) bool { return isEmpty(value) })
	metadata, err := plain(map[string]any{"labels": t.Labels, "annotations": t.Annotations})
	if err != nil {
		return err
	}
	return p.write(object, map[string]any{"metadata": metadata, "spec": fields})
}

// undo implements place. One label stays: Trainer writes metadata without any as null, which
// the API server refuses.
func (p runtimePatch) undo(object map[string]any, before *original, _ *corev1.PodTemplateSpec) error {
	if before == nil && !p.patches(object) {
		return nil
	}
	return p.write(object, map[string]any{"metadata": map[string]any{"labels": map[string]any{jobs.PodSetLabel: string(p)}}})
}

// entry returns the queues' entry of an object; nil if there is none.
func (runtimePatch) entry(object map[string]any) map[string]any {
	for _, e := range elements(object, pointer{"spec", "runtimePatches"}) {
		if e.value["manager"] == patchManager {
			return e.value
		}
	}
	return nil
}

// patches reports whether the queues' entry has a patch for the replicated job.
func (p runtimePatch) patches(object map[string]any) bool {
	return slices.ContainsFunc(elements(p.entry(object), replicatedJobs), func(e element) bool { return e.value["name"] == string(p) })
}

// write makes a pod template the patch of the replicated job.
func (p runtimePatch) write(object, podTemplate map[string]any) error {
	entry := p.entry(object)
	if entry == nil {
		entry = map[string]any{"manager": patchManager}
		patches, _ := pointer{"spec", "runtimePatches"}.get(object)
		list, _ := patches.([]any)
		pointer{"spec", "runtimePatches"}.set(object, append(slices.Clone(list), entry))
	}
	value, _ := replicatedJobs.get(entry)
	list, _ := value.([]any)
	list = slices.DeleteFunc(slices.Clone(list), func(item any) bool {
		o, ok := item.(map[string]any)
		return !ok || o["name"] == string(p)
	})
	replicatedJobs.set(entry, append(list, any(map[string]any{
		"name": string(p), "template": map[string]any{"spec": map[string]any{"template": podTemplate}},
	})))
	if _, ok := replicatedJobs.get(entry); !ok {
		return fmt.Errorf("spec.runtimePatches of manager %s has no place for %s", patchManager, p)
	}
	return nil
}
