package cluster

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWhatIsReadFromADefinition(t *testing.T) {
	condition := func(kind, status string) any { return map[string]any{"type": kind, "status": status} }
	definition := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"group": "example.dev", "versions": []any{
			map[string]any{"name": "v1alpha1", "served": false},
			map[string]any{"name": "v1", "served": true},
		}},
	}}
	if got, want := openAPIPaths(definition), []string{"apis/example.dev/v1"}; !slices.Equal(got, want) {
		t.Errorf("documents %v, want %v", got, want)
	}
	for name, c := range map[string]struct {
		conditions []any
		want       bool
	}{
		"just made":        {},
		"names accepted":   {conditions: []any{condition("NamesAccepted", "True")}},
		"not established":  {conditions: []any{condition("Established", "False")}},
		"established last": {conditions: []any{condition("NamesAccepted", "True"), condition("Established", "True")}, want: true},
	} {
		definition.Object["status"] = map[string]any{"conditions": c.conditions}
		if got := isEstablished(definition); got != c.want {
			t.Errorf("%s: established = %v, want %v", name, got, c.want)
		}
	}
}
