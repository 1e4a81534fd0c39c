package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestLevels: what GKE reports about nodes of a machine type, and what the instance template says.
func TestLevels(t *testing.T) {
	gke := map[string]string{"cloud.google.com/gke-nodepool": "pool"}
	block, subblock := v1alpha1.TopologyLevel{NodeLabel: "cloud.google.com/gce-topology-block"},
		v1alpha1.TopologyLevel{NodeLabel: "cloud.google.com/gce-topology-subblock"}
	nvlink := subblock
	nvlink.MachinesPerDomain = 18
	for name, c := range map[string]struct {
		machineType string
		labels      map[string]string
		says        string
		want        []v1alpha1.TopologyLevel
		wrong       string
	}{
		"GKE":                    {machineType: "a3-highgpu-8g", labels: gke, want: []v1alpha1.TopologyLevel{block, subblock}},
		"GKE, smaller":           {machineType: "a3-highgpu-4g", labels: gke},
		"GKE, A4X":               {machineType: "a4x-highgpu-4g", labels: gke, want: []v1alpha1.TopologyLevel{block, nvlink}},
		"a cluster of one's own": {machineType: "a3-highgpu-8g"},
		"said": {machineType: "a3-highgpu-8g", labels: gke, says: "example.com/rack=4, cloud.google.com/gce-topology-block",
			want: []v1alpha1.TopologyLevel{subblock, {NodeLabel: "example.com/rack", MachinesPerDomain: 4}, block}},
		"wrong": {machineType: "a3-highgpu-8g", says: "rack=none", wrong: `muster-dev-topology is "rack=none": "none" is no number of machines`},
	} {
		t.Run(name, func(t *testing.T) {
			template := &Template{Labels: c.labels, Keys: map[string]string{keyTopology: c.says}}
			got, err := template.Levels(c.machineType)
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("error is %v, want %q", err, c.wrong)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("levels (-want +got):\n%s", diff)
			}
		})
	}
}
