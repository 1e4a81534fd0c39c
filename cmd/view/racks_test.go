package view

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/placement"
)

// TestASharedDeviceIsOneInARack: its many shares are bounds of the decisions, and no numbers for people.
func TestASharedDeviceIsOneInARack(t *testing.T) {
	o := &placement.Occupancy{
		Capacity: nodegroups.Resources{"example.com/share": 3 * fit.SharesOfDevice, "example.com/gpu": 8, "example.com/port": 4000},
		Used:     nodegroups.Resources{"example.com/share": 5, "example.com/gpu": 2, "example.com/port": 1},
		Free:     nodegroups.Resources{"example.com/share": 3*fit.SharesOfDevice - 5, "example.com/gpu": 6, "example.com/port": 3999},
	}
	for _, r := range resourcesOf(o, o.Capacity, map[corev1.ResourceName]bool{"example.com/share": true}) {
		want := map[string][3]string{"example.com/share": {"3", "3", "3"}, "example.com/gpu": {"8", "2", "6"},
			"example.com/port": {"4k", "1", "3999"}}[r.Resource]
		if got := [3]string{r.Capacity, r.Used, r.Free}; got != want {
			t.Errorf("%s: capacity, used and free are %v, want %v", r.Resource, got, want)
		}
	}
}
