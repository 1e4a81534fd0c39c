package placement

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
)

// TestManyNodesThatVanishStopNothing until their pods are gone, too: a few that vanish are lost at once.
func TestManyNodesThatVanishStopNothing(t *testing.T) {
	train := types.NamespacedName{Namespace: "default", Name: "train"}
	for _, tc := range []struct {
		nodes, vanish, back, podsGo int
		want                        []string
	}{
		{nodes: 6, vanish: 3, want: []string{"n0", "n1", "n2"}},
		{nodes: 6, vanish: 4},
		{nodes: 6, vanish: 4, back: 1, want: []string{"n1", "n2", "n3"}},
		{nodes: 6, vanish: 5, podsGo: 1, want: []string{"n0"}},
		{nodes: 6, vanish: 4, podsGo: 4, want: []string{"n0", "n1", "n2", "n3"}},
		{nodes: 60, vanish: 6, want: []string{"n0", "n1", "n2", "n3", "n4", "n5"}},
		{nodes: 60, vanish: 7},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			f := NewForest()
			use := Use{Flavor: "h100", Pod: nodegroups.Resources{gpu: 2}}
			f.Plant([]Flavor{{
				Name: "h100", NodeLabels: map[string]string{"pool": "h100"}, Topology: "racks", Levels: []string{"rack", corev1.LabelHostname},
			}}, nil)
			pod := func(i int) *corev1.Pod { return gpuPod(fmt.Sprint("train-", i), fmt.Sprint("n", i), "train", 2) }
			for i := range tc.nodes {
				name := fmt.Sprint("n", i)
				f.SetNode(rackNode(name, "b1", false))
				f.SetPod(pod(i), func(*corev1.PodSpec) nodegroups.Resources { return use.Pod })
				use.Domains = append(use.Domains, Domain{Values: []string{name}, Count: 1})
			}
			f.Hold(train, []Use{use})
			for i := range tc.vanish {
				f.DeleteNode(fmt.Sprint("n", i))
			}
			for i := range tc.back {
				f.SetNode(rackNode(fmt.Sprint("n", i), "b1", false))
			}
			for i := range tc.podsGo {
				f.DeletePod(pod(i).UID)
			}
			if got := slices.Sorted(maps.Keys(f.Clone().Lost(train, []Use{use}))); got != nil {
				t.Errorf("a forest without trees has lost %v", got)
			}
			if got := slices.Sorted(maps.Keys(f.Lost(train, []Use{use}))); !slices.Equal(got, tc.want) {
				t.Errorf("lost are %v, want %v", got, tc.want)
			}
		})
	}
}
