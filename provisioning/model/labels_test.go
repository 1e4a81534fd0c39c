package model

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestLabelsThatScatterNodes: nodes are distinguished by labels that pods select on, but for those of which each node has a value of its
// own, whether the pods or the nodes come first.
func TestLabelsThatScatterNodes(t *testing.T) {
	for name, first := range map[string]bool{"pods come first": true, "nodes come first": false} {
		t.Run(name, func(t *testing.T) {
			m, v := newModel()
			if first {
				m.Distinguish("pool", "serial", "absent")
			}
			for i := range 1000 {
				m.Set(v.node(func(n *corev1.Node) {
					n.Name, n.UID = fmt.Sprint("n", i), types.UID(fmt.Sprint("n", i))
					n.Labels = map[string]string{corev1.LabelHostname: n.Name, "serial": fmt.Sprint(i), "pool": fmt.Sprint(i % 7)}
				}))
			}
			m.Distinguish("pool", "serial", "absent")
			nodes := m.Snapshot(noon).Nodes
			if lacks := nodes.Lacks([]string{"absent", "pool", "serial"}); !slices.Equal(lacks, []string{"serial"}) {
				t.Errorf("nodes are not told apart by %v", lacks)
			}
			classes := 0
			for range nodes.Classes(true) {
				classes++
			}
			if classes != 7 {
				t.Errorf("%d classes, want one for each pool", classes)
			}
		})
	}
}
