package discover

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// topologyTag begins the tags of a group that name a node label that an agent sets to the domain, such as a rack,
// a machine is. The value is how many machines a domain takes, or empty.
const topologyTag = "muster.dev/topology/"

// networkLayers are how many network nodes DescribeInstanceTopology returns for instances of a family, as the EC2 User Guide
// has it ("Prerequisites for Amazon EC2 topology").
var networkLayers = map[string]int{
	"g6e": 3, "g7e": 3,
	"hpc6a": 3, "hpc6id": 3, "hpc7a": 3, "hpc7g": 3, "hpc8a": 3,
	"p3dn": 3, "p4d": 3, "p4de": 3, "p5": 3, "p5e": 3, "p5en": 3, "p6e-gb200": 3, "p6-b200": 4, "p6-b300": 4,
	"trn1": 3, "trn1n": 3, "trn2": 3, "trn2u": 3,
}

// levelsOf returns the node labels that name the topology domains of machines of the type, and those of the group's tags, the coarsest
// first.
func levelsOf(kind string, tags map[string]string) (out []v1alpha1.TopologyLevel, err error) {
	family, _, _ := strings.Cut(kind, ".")
	for layer := 1; layer <= networkLayers[family]; layer++ {
		out = append(out, v1alpha1.TopologyLevel{NodeLabel: fmt.Sprint(placement.NetworkLayerLabel, layer)})
	}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		label, ok := strings.CutPrefix(tag, topologyTag)
		if !ok {
			continue
		}
		l, err := cloudprovider.ReadLevel(label, tags[tag])
		if err != nil {
			return nil, fmt.Errorf("its tag %s is %q: %w", tag, tags[tag], err)
		}
		out = cloudprovider.WithLevel(out, l)
	}
	return out, nil
}
