package kinds

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/muster-dev/muster/queueing/jobs/templates"
)

// templateOf reads a pod template. The API server defaults no template in a custom resource;
// of all defaults, the Workload's schema sets one, the protocol of ports.
func templateOf(raw map[string]any) (*corev1.PodTemplateSpec, error) {
	out := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, out); err != nil {
		return nil, err
	}
	for _, containers := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if p := &containers[i].Ports[j]; p.Protocol == "" {
					p.Protocol = corev1.ProtocolTCP
				}
			}
		}
	}
	return out, nil
}

// podTemplate is where an object has one.
type podTemplate pointer

// put implements place. It writes the fields that a start changes, and no others: the object
// may have fields of another version of its API.
func (p podTemplate) put(object map[string]any, t *corev1.PodTemplateSpec) error {
	metadata := p.metadata()
	return writeFields(object, []fieldOf{
		{slices.Concat(metadata, pointer{"labels"}), t.Labels},
		{slices.Concat(metadata, pointer{"annotations"}), t.Annotations},
		{slices.Concat(pointer(p), pointer{"spec", "nodeSelector"}), t.Spec.NodeSelector},
		{slices.Concat(pointer(p), pointer{"spec", "tolerations"}), t.Spec.Tolerations},
		{slices.Concat(pointer(p), pointer{"spec", "schedulingGates"}), t.Spec.SchedulingGates},
	})
}

func (p podTemplate) metadata() pointer { return slices.Concat(pointer(p), pointer{"metadata"}) }

// undo implements place.
func (p podTemplate) undo(object map[string]any, before *original, was *corev1.PodTemplateSpec) error {
	raw, _ := pointer(p).get(object)
	whole, ok := raw.(map[string]any)
	if !ok {
		return nil
	}
	t, err := templateOf(whole)
	if err != nil {
		return err
	}
	if before != nil && before.Added {
		pointer(p).set(object, nil)
		return nil
	}
	err = restored(t, before, was, func() error { return p.put(object, t) })
	if value, ok := p.metadata().get(object); before != nil && before.Bare && ok && isEmpty(value) {
		p.metadata().set(object, nil)
	}
	return err
}

// restored restores a template by what a start has replaced of it, or without that by what
// the Workload was created from, and writes it.
func restored(t *corev1.PodTemplateSpec, before *original, was *corev1.PodTemplateSpec, write func() error) error {
	switch {
	case before != nil:
		before.Restore(t)
	case was == nil || !templates.Differs(t, was):
		return nil
	default:
		templates.PutBack(t, was)
	}
	return write()
}

// absentTemplate is where an object may have a pod template, and has none.
type absentTemplate struct {
	podTemplate
	raw map[string]any
}

// put implements place.
func (p absentTemplate) put(object map[string]any, t *corev1.PodTemplateSpec) error {
	pointer(p.podTemplate).set(object, runtime.DeepCopyJSON(p.raw))
	return p.podTemplate.put(object, t)
}

// undo implements place.
func (absentTemplate) undo(map[string]any, *original, *corev1.PodTemplateSpec) error { return nil }

// fieldOf is a field of an object with the value that it is to have.
type fieldOf struct {
	pointer
	value any
}

// writeFields writes fields; one without a value is removed, unless it was there, as empty.
func writeFields(object map[string]any, fields []fieldOf) error {
	for _, f := range fields {
		value, err := plain(f.value)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", at(f.pointer), err)
		}
		if !isEmpty(value) {
			f.set(object, value)
		} else if old, ok := f.get(object); ok && !isEmpty(old) {
			f.set(object, nil)
		}
	}
	return nil
}

// plain returns a value as unstructured objects have it.
func plain(value any) (out any, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(text, &out)
}

func isEmpty(value any) bool {
	switch x := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(x) == 0
	case []any:
		return len(x) == 0
	}
	return false
}
