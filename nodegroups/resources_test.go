package nodegroups

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestMicroUSD(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "98.32": 98_320_000, "0.0000001": 1, "1k": 1_000_000_000,
		"20000000000000": maxUSD * 1e6, "10T": maxUSD * 1e6, "1Ei": maxUSD * 1e6,
	} {
		q := resource.MustParse(text)
		if got := MicroUSD(&q); got != want {
			t.Errorf("MicroUSD(%s) = %d, want %d", text, got, want)
		}
	}
}

func TestExtended(t *testing.T) {
	for name, want := range map[corev1.ResourceName]bool{
		"cpu": false, "memory": false, "pods": false, "hugepages-2Mi": false, "ephemeral-storage": false,
		"nvidia.com/gpu": true, "example.com/fpga": true, "attachable-volumes.kubernetes.io/disk": false,
	} {
		if got := Extended(name); got != want {
			t.Errorf("Extended(%s) = %t, want %t", name, got, want)
		}
	}
}

func TestTimesAndShort(t *testing.T) {
	room := Resources{"cpu": 8000, "nvidia.com/gpu": 4}
	for _, tc := range []struct {
		need  Resources
		times int
		short corev1.ResourceName
	}{
		{Resources{"cpu": 1000}, 8, ""},
		{Resources{"cpu": 1000, "nvidia.com/gpu": 1}, 4, ""},
		{Resources{"cpu": 9000}, 0, "cpu"},
		{Resources{"memory": 1}, 0, "memory"},
		{Resources{}, 100, ""},
	} {
		if got := room.Times(tc.need, 100); got != tc.times {
			t.Errorf("%v fits %d times, want %d", tc.need, got, tc.times)
		}
		if name, _, _ := room.Short(tc.need); name != tc.short {
			t.Errorf("%v is short of %q, want %q", tc.need, name, tc.short)
		}
	}
}
