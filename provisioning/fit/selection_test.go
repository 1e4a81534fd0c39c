package fit

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestSelectedKeys: the labels that have to distinguish nodes. Host names would distinguish each one.
func TestSelectedKeys(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		want       []string
	}{
		{"none", "", nil},
		{"a pod affinity", "affinity: {podAffinity: {}}", nil},
		{"a preferred node affinity", "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: " +
			"{matchExpressions: [{key: disk, operator: Exists}]}}]}}", nil},
		{"a node selector", "nodeSelector: {zone: a, rack: b, kubernetes.io/hostname: c}", []string{"rack", "zone"}},
		{"a node affinity and a selector", "nodeSelector: {zone: a}\n" +
			nodeAffinity("{matchExpressions: [{key: zone, operator: Exists}, {key: disk, operator: Exists}]}, "+
				"{matchExpressions: [{key: rack, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [a]}]}"),
			[]string{"disk", "rack", "zone"}},
	} {
		var spec corev1.PodSpec
		parse(t, tc.spec, &spec)
		if got := SelectedKeys(&spec); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestPartsOfAPod: where some pods run, the others join them by labels of the node, and it is not known which pods form a slice.
// Slices that restart as a whole, and pods that share a node, stay together.
func TestPartsOfAPod(t *testing.T) {
	whole := &Pod{Count: 8, Domains: Domains{Layers: []Layer{{"rack", 4}, {"node", 2}}, PerNode: 2}}
	for _, tc := range []struct {
		name string
		got  *Pod
		want Domains
	}{
		{"all are kept", whole.Kept(8, nil), whole.Domains},
		{"some are kept", whole.Kept(7, nil), Domains{PerNode: 1}},
		{"all are made again", whole.Again(8, nil), whole.Domains},
		{"some are made again", whole.Again(4, nil), Domains{PerNode: 2}},
		{"one is made again", whole.Again(1, nil), Domains{PerNode: 1}},
		{"a slice of each layer", whole.Slices(4, nil), whole.Domains},
		{"a slice of the finer layer", whole.Slices(2, nil), Domains{Layers: []Layer{{"node", 2}}, PerNode: 2}},
		{"less than a slice", whole.Slices(1, nil), Domains{PerNode: 1}},
		{"anywhere", whole.Unbound(), Domains{PerNode: 1}},
	} {
		if diff := cmp.Diff(tc.want, tc.got.Domains); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tc.name, diff)
		}
	}
	kept := whole.Kept(3, map[string]string{"rack": "r1"})
	if kept.Count != 3 || !kept.Matches("a", map[string]string{"rack": "r1"}, nil) || kept.Matches("a", map[string]string{"rack": "r2"}, nil) {
		t.Errorf("3 pods of rack r1 are %+v", kept)
	}
	if whole.Count != 8 || !whole.Matches("a", nil, nil) || !whole.IsBound() || whole.Unbound().IsBound() {
		t.Errorf("the pods are %+v", whole)
	}
	if !(&Pod{Domains: Domains{PerNode: 2}}).IsBound() || !(&Pod{Domains: Domains{Layers: []Layer{{"rack", 2}}, PerNode: 1}}).IsBound() {
		t.Error("pods that share a node, or a domain, are bound")
	}
}
