package cache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/config"
)

// The amounts are those that Kueue 0.19.2 counts for the same pods and settings, except for excluded inputs and multipliers: Kueue leaves
// out their outputs, and counts one.
func TestCountedResources(t *testing.T) {
	outputs := func(pairs ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	replace, retain := new(kueueconfig.Replace), new(kueueconfig.Retain)
	type rules = []kueueconfig.ResourceTransformation
	allowance := rules{
		{Input: "gpumem", Strategy: replace, MultiplyBy: "gpu", Outputs: outputs("overage", "1")},
		{Input: "gpu", Strategy: retain, Outputs: outputs("overage", "-1024")},
	}
	const far = 1 << 62
	for name, tt := range map[string]struct {
		exclude   []string
		rules     rules
		pod, want nodegroups.Resources
	}{
		"an input gives way to its outputs": {
			rules: rules{{Input: "mig", Strategy: replace, Outputs: outputs("memory", "5Ki", "credits", "10")}},
			pod:   nodegroups.Resources{"mig": 2, "cpu": 1000}, want: nodegroups.Resources{"memory": 10 << 10, "credits": 20, "cpu": 1000},
		},
		"without a strategy an input is kept": {
			rules: rules{{Input: "gpu", Outputs: outputs("credits", "3")}},
			pod:   nodegroups.Resources{"gpu": 2}, want: nodegroups.Resources{"gpu": 2, "credits": 6},
		},
		"outputs of several inputs are added, and to what is requested": {
			rules: rules{{Input: "a", Strategy: replace, Outputs: outputs("gpu", "1")},
				{Input: "gpu", Strategy: retain, Outputs: outputs("gpu", "5")}},
			pod: nodegroups.Resources{"a": 2, "gpu": 1}, want: nodegroups.Resources{"gpu": 8},
		},
		"parts of a unit are added before they are rounded up": {
			rules: rules{{Input: "a", Strategy: replace, Outputs: outputs("credits", "500m")},
				{Input: "b", Strategy: replace, Outputs: outputs("credits", "0.25")}},
			pod: nodegroups.Resources{"a": 3, "b": 1}, want: nodegroups.Resources{"credits": 2},
		},
		"a byte is worth little": {
			rules: rules{{Input: "memory", Outputs: outputs("credits", "1n")}},
			pod:   nodegroups.Resources{"memory": 16_000_000_000}, want: nodegroups.Resources{"memory": 16_000_000_000, "credits": 16},
		},
		"a part of a core is rounded up": {
			rules: rules{{Input: "cpu", Strategy: replace, Outputs: outputs("credits", "1")}},
			pod:   nodegroups.Resources{"cpu": 500}, want: nodegroups.Resources{"credits": 1},
		},
		"cores that come of something": {
			rules: rules{{Input: "gpu", Outputs: outputs("cpu", "1500m")}},
			pod:   nodegroups.Resources{"gpu": 3, "cpu": 1}, want: nodegroups.Resources{"gpu": 3, "cpu": 4501},
		},
		"outputs are multiplied, what is kept is not": {
			rules: rules{{Input: "gpumem", Strategy: retain, MultiplyBy: "gpu", Outputs: outputs("total", "1")}},
			pod:   nodegroups.Resources{"gpumem": 1024, "gpu": 2}, want: nodegroups.Resources{"gpumem": 1024, "gpu": 2, "total": 2048},
		},
		"by half a core": {
			rules: rules{{Input: "gpumem", MultiplyBy: "cpu", Outputs: outputs("total", "1")}},
			pod:   nodegroups.Resources{"gpumem": 1024, "cpu": 500}, want: nodegroups.Resources{"gpumem": 1024, "cpu": 500, "total": 512},
		},
		"a pod without the multiplier counts once": {
			rules: rules{{Input: "gpumem", Strategy: replace, MultiplyBy: "gpu", Outputs: outputs("total", "1")}},
			pod:   nodegroups.Resources{"gpumem": 1024}, want: nodegroups.Resources{"total": 1024},
		},
		"more than an allowance":      {rules: allowance, pod: nodegroups.Resources{"gpumem": 2048, "gpu": 2}, want: nodegroups.Resources{"gpu": 2, "overage": 2048}},
		"less than an allowance":      {rules: allowance, pod: nodegroups.Resources{"gpumem": 512, "gpu": 2}, want: nodegroups.Resources{"gpu": 2, "overage": 0}},
		"an allowance gives no other": {rules: rules{{Input: "credit", Strategy: replace, Outputs: outputs("gpu", "-1")}}, pod: nodegroups.Resources{"gpu": 8, "credit": 3}, want: nodegroups.Resources{"gpu": 8}},
		"what is excluded counts as its outputs, and multiplies": {
			exclude: []string{"networking.example.com/"},
			rules: rules{{Input: "networking.example.com/vpc", Outputs: outputs("credits", "1")},
				{Input: "gpu", MultiplyBy: "networking.example.com/vpc", Outputs: outputs("total", "1")}},
			pod: nodegroups.Resources{"networking.example.com/vpc": 7, "gpu": 2}, want: nodegroups.Resources{"gpu": 2, "credits": 7, "total": 14},
		},
		"more than can be counted": {
			rules: rules{{Input: "a", Strategy: replace, MultiplyBy: "a", Outputs: outputs("credits", "8E")}},
			pod:   nodegroups.Resources{"a": far}, want: nodegroups.Resources{"credits": 1<<63 - 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Settings{Config: config.Config{Resources: &kueueconfig.Resources{ExcludeResourcePrefixes: tt.exclude, Transformations: tt.rules}}}
			if diff := cmp.Diff(tt.want, s.counted(tt.pod)); diff != "" {
				t.Errorf("counted (-want +got)\n%s", diff)
			}
		})
	}
}
