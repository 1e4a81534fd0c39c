package migration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/kueue/apis/kueue/v1beta1"
	"sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// renamed are the kinds with fields that v1beta2 renamed, by plural: those that Kueue's webhook converts. For the others v1beta1 equals
// v1beta2.
var renamed = map[string]func() (conversion.Convertible, conversion.Hub){
	"clusterqueues": func() (conversion.Convertible, conversion.Hub) {
		return &v1beta1.ClusterQueue{}, &v1beta2.ClusterQueue{}
	},
	"cohorts":     func() (conversion.Convertible, conversion.Hub) { return &v1beta1.Cohort{}, &v1beta2.Cohort{} },
	"localqueues": func() (conversion.Convertible, conversion.Hub) { return &v1beta1.LocalQueue{}, &v1beta2.LocalQueue{} },
	"multikueueclusters": func() (conversion.Convertible, conversion.Hub) {
		return &v1beta1.MultiKueueCluster{}, &v1beta2.MultiKueueCluster{}
	},
	"workloads": func() (conversion.Convertible, conversion.Hub) { return &v1beta1.Workload{}, &v1beta2.Workload{} },
}

// The keys of an object that are not converted.
var envelope = []string{"apiVersion", "kind", "metadata"}

const status = "status"

// converted returns an object, read with the fields as they were stored, as v1beta2. The
// version in which an object was stored is not part of it, so it is inferred from the
// fields, separately for the status and the rest: these are written one after the other, and
// the migration may have been interrupted in between.
func converted(plural string, o *unstructured.Unstructured) (out *unstructured.Unstructured, main, state bool, err error) {
	out = o.DeepCopy()
	if renamed[plural] == nil {
		return out, false, false, nil
	}
	for _, part := range []struct {
		changed *bool
		has     func(key string) bool
	}{
		{&main, func(key string) bool { return key != status && !slices.Contains(envelope, key) }},
		{&state, func(key string) bool { return key == status }},
	} {
		before := map[string]any{}
		for key, v := range o.Object {
			if part.has(key) {
				before[key] = v
			}
		}
		if len(before) == 0 {
			continue
		}
		after, err := convertedPart(plural, before)
		if err != nil {
			return nil, false, false, err
		}
		maps.DeleteFunc(after, func(key string, _ any) bool { return !part.has(key) })
		if !apiequality.Semantic.DeepEqual(before, after) {
			*part.changed = true
			maps.DeleteFunc(out.Object, func(key string, _ any) bool { return part.has(key) })
			maps.Copy(out.Object, after)
		}
	}
	return out, main, state, nil
}

// convertedPart converts fields of v1beta1 and keeps those of v1beta2. A field of both
// versions has the same meaning in both.
func convertedPart(plural string, part map[string]any) (map[string]any, error) {
	text, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	old, hub := renamed[plural]()
	unknownInOld, notOld := strictjson.UnmarshalStrict(text, old)
	unknownInNew, notNew := strictjson.UnmarshalStrict(text, hub)
	switch {
	case notOld != nil && notNew != nil:
		return nil, fmt.Errorf("it is valid neither as v1beta1 (%w) nor as v1beta2 (%w)", notOld, notNew)
	case notOld != nil || notNew == nil && len(unknownInNew) < len(unknownInOld):
		return part, nil
	case notNew == nil && len(unknownInOld) > 0 && len(unknownInOld) == len(unknownInNew):
		return nil, fmt.Errorf("it has fields of both versions: v1beta1 lacks %w, v1beta2 lacks %w; remove the fields of one version",
			errors.Join(unknownInOld...), errors.Join(unknownInNew...))
	}
	_, hub = renamed[plural]()
	if err := old.ConvertTo(hub); err != nil {
		return nil, fmt.Errorf("converting it from v1beta1: %w", err)
	}
	if text, err = json.Marshal(hub); err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, strictjson.UnmarshalCaseSensitivePreserveInts(text, &out)
}
