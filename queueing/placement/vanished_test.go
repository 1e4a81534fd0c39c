package placement

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
)

// TestManyNodesThatVanishMayReturn while pods are bound to them, those of the Workload among them; a few that vanish are lost.
func TestManyNodesThatVanishMayReturn(t *testing.T) {
	train := types.NamespacedName{Namespace: "default", Name: "train"}
	for _, tc := range []struct {
		nodes, vanish, unready, back, podsGo int
		want                                 bool
	}{
		{nodes: 6, vanish: 3},
		{nodes: 6, vanish: 4, want: true},
		{nodes: 6, unready: 6},
		{nodes: 6, vanish: 4, back: 1},
		{nodes: 6, vanish: 6, podsGo: 2, want: true},
		{nodes: 6, vanish: 6, podsGo: 3},
		{nodes: 60, vanish: 6},
		{nodes: 60, vanish: 7, want: true},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			f := NewForest()
			use := Use{Flavor: "h100", Pod: nodegroups.Resources{gpu: 2}}
			f.Plant([]Flavor{{
				Name: "h100", NodeLabels: map[string]string{"pool": "h100"}, Topology: "racks", Levels: []string{"rack", corev1.LabelHostname},
			}}, nil)
			name := func(i int) string { return fmt.Sprint("n", i) }
			pod := func(i int, workload string) *corev1.Pod {
				return gpuPod(fmt.Sprint(workload, "-", i), name(i), workload, 2)
			}
			for i := range tc.nodes {
				f.SetNode(rackNode(name(i), "b1", false))
				f.SetPod(pod(i, "train"), func(*corev1.PodSpec) nodegroups.Resources { return use.Pod })
				use.Domains = append(use.Domains, Domain{Values: []string{name(i)}, Count: 1})
			}
			f.Hold(train, []Use{use})
			for i := range tc.vanish {
				f.DeleteNode(name(i))
			}
			for i := range tc.unready {
				n := rackNode(name(i), "b1", false)
				n.Status.Conditions = nil
				f.SetNode(n)
			}
			for i := range tc.back {
				f.SetNode(rackNode(name(i), "b1", false))
			}
			for i := range tc.podsGo {
				f.DeletePod(pod(i, "train").UID)
			}
			if got := f.MayReturn(train, f.Lost(train, []Use{use})); got != tc.want {
				t.Errorf("the lost nodes %v may return: %t, want %t", f.Lost(train, []Use{use}), got, tc.want)
			}
			if f.MayReturn(types.NamespacedName{Namespace: "default", Name: "other"}, f.Lost(train, []Use{use})) {
				t.Error("the nodes are waited for by a Workload without pods on them")
			}
		})
	}
}
