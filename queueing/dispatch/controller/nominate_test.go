package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestANominationIsKueuesOwn: the clusters are applied together with the fields that Kueue owns, and without fields of other managers.
func TestANominationIsKueuesOwn(t *testing.T) {
	quota := map[string]any{"type": "QuotaReserved", "status": "True"}
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
		"metadata": map[string]any{"namespace": "team-a", "name": "job-1", "uid": "1", "resourceVersion": "7", "labels": map[string]any{"a": "b"}},
		"spec":     map[string]any{"queueName": "gpus"},
		"status": map[string]any{
			"admission":             map[string]any{"clusterQueue": "cq"},
			"conditions":            []any{quota, map[string]any{"type": "Custom", "status": "True"}},
			"nominatedClusterNames": []any{"a"},
			"custom":                "of others",
		},
	}}
	if got, err := nomination(w, []string{"b"}); got != nil || err != nil {
		t.Errorf("where Kueue owns nothing: %v, %v", got, err)
	}
	w.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "kueue", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
		{Manager: admissionOwner, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", FieldsV1: metav1.NewFieldsV1(
			`{"f:status":{"f:admission":{"f:clusterQueue":{}},"f:conditions":{"k:{\"type\":\"QuotaReserved\"}":` +
				`{".":{},"f:status":{}}},"f:nominatedClusterNames":{}}}`)},
	})
	for _, clusters := range [][]string{{"b"}, nil} {
		got, err := nomination(w, clusters)
		if err != nil {
			t.Fatal(err)
		}
		status := map[string]any{"admission": map[string]any{"clusterQueue": "cq"}, "conditions": []any{quota}}
		if clusters != nil {
			status["nominatedClusterNames"] = []any{"b"}
		}
		want := map[string]any{
			"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "status": status,
			"metadata": map[string]any{"namespace": "team-a", "name": "job-1", "uid": "1", "resourceVersion": "7"},
		}
		if diff := cmp.Diff(want, got.Object); diff != "" {
			t.Errorf("applied is (-want +got):\n%s", diff)
		}
	}
}
