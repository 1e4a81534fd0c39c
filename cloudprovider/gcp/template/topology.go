package template

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Labels by which GKE reports where a node is. On A4X a sub-block is one NVLink domain.
const (
	BlockLabel         = "cloud.google.com/gce-topology-block"
	SubblockLabel      = "cloud.google.com/gce-topology-subblock"
	mostInA4XSubblock  = 18
	machineTypesOfA4X  = "a4x-"
	machineTypeA3High8 = "a3-highgpu-8g"
)

// reported are the prefixes of the machine types whose VMs report their physical host.
var reported = []string{machineTypeA3High8, "a3-megagpu-", "a3-ultragpu-", "a4-highgpu-", machineTypesOfA4X, "h4d-"}

// Levels returns the node labels that name the topology domains of machines of the type, and those in the template's
// muster-dev-topology, the coarsest first.
func (t *Template) Levels(machineType string) (out []v1alpha1.TopologyLevel, err error) {
	if t.IsGKE() && slices.ContainsFunc(reported, func(prefix string) bool { return strings.HasPrefix(machineType, prefix) }) {
		out = []v1alpha1.TopologyLevel{{NodeLabel: BlockLabel}, {NodeLabel: SubblockLabel}}
		if strings.HasPrefix(machineType, machineTypesOfA4X) {
			out[1].MachinesPerDomain = mostInA4XSubblock
		}
	}
	text := t.Keys[keyTopology]
	if text == "" {
		return out, nil
	}
	for entry := range strings.SplitSeq(text, ",") {
		label, amount, _ := strings.Cut(strings.TrimSpace(entry), "=")
		l, err := cloudprovider.ReadLevel(label, amount)
		if err != nil {
			return nil, Unusable("the instance template's %s is %q: %s; write labels like example.com/rack=18", keyTopology, text, err)
		}
		out = cloudprovider.WithLevel(out, l)
	}
	return out, nil
}
