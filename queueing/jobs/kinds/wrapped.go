package kinds

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// made returns the pods created for an object of a kind that Muster supports, with the place of each template in it; nil for other
// kinds. The podSets of an AppWrapper are its user's claim and may differ.
func made(object map[string]any) (out []found, kind string) {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ = object["kind"].(string)
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group = ""
	}
	simple := func(count int64, template ...string) {
		if raw, _ := pointer(template).get(object); raw != nil && count > 0 {
			out = append(out, found{count: int32(min(count, maxCount)), place: podTemplate(template)})
		}
	}
	number := func(path ...string) int64 {
		if n, ok := get[int64](object, path...); ok {
			return n
		}
		return 1
	}
	switch group + "/" + kind {
	case "/Pod":
		simple(1)
	case "apps/Deployment", "apps/StatefulSet":
		simple(number("spec", "replicas"), "spec", "template")
	case "batch/Job":
		pods := number("spec", "parallelism")
		if completions, ok := get[int64](object, "spec", "completions"); ok {
			pods = min(pods, completions)
		}
		simple(pods, "spec", "template")
	case "leaderworkerset.x-k8s.io/LeaderWorkerSet":
		groups, workers := number("spec", "replicas"), number("spec", "leaderWorkerTemplate", "size")
		if _, ok := get[map[string]any](object, "spec", "leaderWorkerTemplate", "leaderTemplate"); ok {
			simple(groups, "spec", "leaderWorkerTemplate", "leaderTemplate")
			workers--
		}
		simple(groups*workers, "spec", "leaderWorkerTemplate", "workerTemplate")
	default:
		for _, k := range BuiltIn() {
			if k.id() == group+"/"+kind && len(k.podSets) > 0 {
				out, _ = k.declared(object)
			}
		}
	}
	return out, kind
}

// get returns a field as the requested type.
func get[T any](object map[string]any, path ...string) (out T, ok bool) {
	value, _ := pointer(path).get(object)
	out, ok = value.(T)
	return out, ok
}

// templateAt returns the path of a pod set's template in its object.
func (f *found) templateAt() pointer {
	switch place := f.place.(type) {
	case podTemplate:
		return pointer(place)
	case absentTemplate:
		return pointer(place.podTemplate)
	}
	return nil
}

// nowhere is the place of pods that an operator creates without a template. They are counted, but a start cannot change them.
type nowhere struct{}

func (nowhere) put(map[string]any, *corev1.PodTemplateSpec) error             { return nil }
func (nowhere) undo(map[string]any, *original, *corev1.PodTemplateSpec) error { return nil }
