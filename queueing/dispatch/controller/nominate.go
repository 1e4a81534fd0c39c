package controller

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// admissionOwner is the field manager that Kueue applies an admission with. Kueue removes nominations by applying without them, so they
// have to be owned by it.
const admissionOwner = "kueue-admission"

// nomination returns the object to apply as that field manager: Kueue's own fields, with these clusters nominated. It returns nil if
// Kueue owns no field, so that any patch will do.
func nomination(w *unstructured.Unstructured, clusters []string) (*unstructured.Unstructured, error) {
	var owned map[string]any
	for _, m := range w.GetManagedFields() {
		if m.Manager != admissionOwner || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "status" || m.FieldsV1 == nil {
			continue
		}
		if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &owned); err != nil {
			return nil, fmt.Errorf("reading the fields of %s: %w", admissionOwner, err)
		}
	}
	if owned == nil {
		return nil, nil
	}
	fields, _ := owned["f:status"].(map[string]any)
	status, _, err := unstructured.NestedMap(w.Object, "status")
	if err != nil {
		return nil, err
	}
	mine := map[string]any{}
	for field, below := range fields {
		name := strings.TrimPrefix(field, "f:")
		value, there := status[name]
		if !there {
			continue
		}
		if list, ok := value.([]any); ok {
			value = ownItems(list, below)
		}
		mine[name] = value
	}
	delete(mine, "nominatedClusterNames")
	if len(clusters) > 0 {
		names := make([]any, len(clusters))
		for i, c := range clusters {
			names[i] = c
		}
		mine["nominatedClusterNames"] = names
	}
	out := &unstructured.Unstructured{Object: map[string]any{"status": mine}}
	out.SetGroupVersionKind(w.GroupVersionKind())
	out.SetNamespace(w.GetNamespace())
	out.SetName(w.GetName())
	out.SetUID(w.GetUID())
	out.SetResourceVersion(w.GetResourceVersion())
	return out, nil
}

// ownItems returns the items of a list that the fields name, or all if the list is owned as a whole.
func ownItems(list []any, below any) []any {
	fields, _ := below.(map[string]any)
	var keys []map[string]any
	for field := range fields {
		if text, ok := strings.CutPrefix(field, "k:"); ok {
			var key map[string]any
			if json.Unmarshal([]byte(text), &key) == nil {
				keys = append(keys, key)
			}
		}
	}
	if len(keys) == 0 {
		return list
	}
	out := []any{}
	for _, item := range list {
		for _, key := range keys {
			if has(item, key) {
				out = append(out, item)
			}
		}
	}
	return out
}

func has(item any, key map[string]any) bool {
	fields, ok := item.(map[string]any)
	for name, value := range key {
		ok = ok && fields[name] == value
	}
	return ok
}
