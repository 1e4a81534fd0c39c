package discover

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// What the cloud controller manager reports about instances of a type.
func TestLevels(t *testing.T) {
	layers := func(n int) (out []v1alpha1.TopologyLevel) {
		for i := range n {
			out = append(out, v1alpha1.TopologyLevel{NodeLabel: fmt.Sprint("topology.k8s.aws/network-node-layer-", i+1)})
		}
		return out
	}
	for kind, want := range map[string][]v1alpha1.TopologyLevel{
		"p5.48xlarge": layers(3), "p6-b200.48xlarge": layers(4), "m7i.large": nil, "g5.48xlarge": nil,
		"p6e-gb200.36xlarge": layers(3), "trn2u.48xlarge": layers(3),
	} {
		got, err := levelsOf(kind, nil)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("levels of %s (-want +got), %v:\n%s", kind, err, diff)
		}
	}
}
