package kinds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// An AppWrapper has any objects as components. Its controller reports the paths of their pod templates, also while it is suspended,
// unless its user has declared them; and it adds podSetInfos to the templates when it creates the objects. The declared counts may
// be too low, so Muster counts the pods of component kinds that it supports.

func findAppWrapper(object map[string]any) (out []found, refusals []string) {
	name, _ := pointer{"metadata", "name"}.get(object)
	components := elements(object, pointer{"spec", "components"})
	var unplaced []found
	for i, component := range components {
		podSets, known := pointer{"podSets"}.get(component.value)
		if !known {
			status := pointer{"status", "componentStatus", strconv.Itoa(i)}
			if _, known = status.get(object); !known {
				return nil, []string{fmt.Sprintf("the pods of spec.components[%d] are not known yet: the AppWrapper's controller reports them in "+
					"status.componentStatus; see that it runs, or give the component podSets", i)}
			}
			podSets, _ = slices.Concat(status, pointer{"podSets"}).get(object)
		}
		list, _ := podSets.([]any)
		template, _ := get[map[string]any](component.value, "template")
		real, kind := made(template)
		for j, item := range list {
			podSet, _ := item.(map[string]any)
			path, _ := podSet["path"].(string)
			f := found{name: strings.ToLower(fmt.Sprintf("%v-%d", name, len(out))), count: 1, scope: scopeOf(object)}
			f.at = fmt.Sprintf("spec.components[%d].%s", i, path)
			f.place = podSetInfo{slices.Concat(component.pointer, pointer{"podSetInfos"}), j, len(list)}
			if n, ok := podSet["replicas"].(int64); ok {
				f.count = int32(max(0, min(n, maxCount)))
			}
			var err error
			if f.numbered, err = numberedBy(podSet["annotations"]); err != nil {
				refusals = append(refusals, fmt.Sprintf("the podSet of %s cannot be read: %v; correct it", f.at, err))
			}
			raw, _ := wrapped(path).get(component.value)
			whole, ok := raw.(map[string]any)
			if !ok {
				refusals = append(refusals, fmt.Sprintf("there is no pod template at %s; correct the path of its podSet", f.at))
				continue
			}
			// Of a Pod, the metadata and the spec are its template.
			f.raw = map[string]any{"metadata": whole["metadata"], "spec": whole["spec"]}
			at := wrapped(path)[1:]
			if k := slices.IndexFunc(real, func(r found) bool { return slices.Equal(r.templateAt(), at) }); k >= 0 {
				f.count, f.hidden, f.scope = max(f.count, real[k].count), real[k].hidden, real[k].scope
				real = slices.Delete(real, k, k+1)
			}
			out = append(out, f)
		}
		for _, r := range real {
			switch at := "template" + pathOf(r.templateAt()); {
			case r.count == 0:
			case r.added:
				r.at, r.place, r.after = fmt.Sprintf("spec.components[%d].%s", i, at), nowhere{}, nil
				unplaced = append(unplaced, r)
			default:
				refusals = append(refusals, fmt.Sprintf("spec.components[%d].podSets lack the %d pods that the %s makes of %s; add one with that "+
					"path and replicas: %d", i, r.count, kind, at, r.count))
			}
		}
	}
	// The indexes of podSetInfos and the names of Kueue's pod sets are without them.
	for _, r := range unplaced {
		r.name = strings.ToLower(fmt.Sprintf("%v-%d", name, len(out)))
		out = append(out, r)
	}
	return out, refusals
}

// pathOf writes a pointer as an AppWrapper's podSets do.
func pathOf(p pointer) (out string) {
	for _, part := range p {
		if _, err := strconv.Atoi(part); err == nil {
			out += "[" + part + "]"
		} else {
			out += "." + part
		}
	}
	return out
}

// Annotations of a podSet name the labels that number its pods. The controller adds them for kinds that it supports.
const (
	indexAnnotation         = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
	subGroupIndexAnnotation = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
	subGroupCountAnnotation = "workload.codeflare.dev.appwrapper/tas-sub-group-count"
)

// numberedBy reads the annotations of a podSet.
func numberedBy(annotations any) (*kueue.PodSetTopologyRequest, error) {
	all, _ := annotations.(map[string]any)
	if all == nil {
		return nil, nil
	}
	out := &kueue.PodSetTopologyRequest{}
	if label, ok := all[indexAnnotation].(string); ok {
		out.PodIndexLabel = &label
	}
	if label, ok := all[subGroupIndexAnnotation].(string); ok {
		out.SubGroupIndexLabel = &label
	}
	if text, ok := all[subGroupCountAnnotation].(string); ok {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("its annotation %s is %q, which is not a number of groups", subGroupCountAnnotation, text)
		}
		out.SubGroupCount = new(int32(n))
	}
	return out, nil
}

// wrapped returns the pointer for a path like template.spec.groups[1].template.
func wrapped(path string) pointer {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// podSetInfo is the place of the index-th of all podSetInfos of a component.
type podSetInfo struct {
	all        pointer
	index, sum int
}

// put implements place. Of maps, the AppWrapper's controller adds what is missing; of
// tolerations, all.
func (p podSetInfo) put(object map[string]any, t *corev1.PodTemplateSpec) error {
	infos, _ := p.all.get(object)
	list, _ := infos.([]any)
	for len(list) < p.sum {
		list = append(list, map[string]any{})
	}
	info, err := plain(map[string]any{
		"labels": t.Labels, "annotations": t.Annotations, "nodeSelector": t.Spec.NodeSelector, "schedulingGates": t.Spec.SchedulingGates,
		"tolerations": p.added(object, t.Spec.Tolerations),
	})
	if err != nil {
		return err
	}
	fields := info.(map[string]any)
	for field, value := range fields {
		if isEmpty(value) {
			delete(fields, field)
		}
	}
	list[p.index] = fields
	p.all.set(object, list)
	return nil
}

// added returns the tolerations that the component itself has not.
func (p podSetInfo) added(object map[string]any, all []corev1.Toleration) []corev1.Toleration {
	podSets, _ := findAppWrapper(object)
	for i := range podSets {
		if place, ok := podSets[i].place.(podSetInfo); ok && place.index == p.index && slices.Equal(place.all, p.all) {
			if own, err := templateOf(podSets[i].raw); err == nil {
				return slices.DeleteFunc(slices.Clone(all), func(t corev1.Toleration) bool {
					return slices.ContainsFunc(own.Spec.Tolerations, func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, t) })
				})
			}
		}
	}
	return all
}

// undo implements place. Only queues write podSetInfos.
func (p podSetInfo) undo(object map[string]any, _ *original, _ *corev1.PodTemplateSpec) error {
	p.all.set(object, nil)
	return nil
}
