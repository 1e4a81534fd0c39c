package templates

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestPodsGoToTheirDomains by a write for each, unless the template can determine the domains of all.
func TestPodsGoToTheirDomains(t *testing.T) {
	hosts := []string{corev1.LabelHostname}
	racks := []string{"block", "rack"}
	booked := kueue.PodSetUpdate{Name: "main", NodeSelector: map[string]string{"booked.muster.dev/x": "ns"}}
	filled := booked
	filled.Annotations = map[string]string{workload.FillsNodesAnnotation: "true"}
	required := &kueue.PodSetTopologyRequest{Required: new("rack")}
	for name, c := range map[string]struct {
		levels   []string
		domains  []placement.Domain
		asks     *kueue.PodSetTopologyRequest
		update   kueue.PodSetUpdate
		gated    bool
		selector map[string]string
		implied  bool
	}{
		"nodes":                       {levels: hosts, domains: []placement.Domain{{Values: []string{"a"}, Count: 1}, {Values: []string{"b"}, Count: 1}}, asks: required, gated: true},
		"one node, which may be lost": {levels: hosts, domains: []placement.Domain{{Values: []string{"a"}, Count: 2}}, asks: required, gated: true},
		"one rack": {levels: racks, domains: []placement.Domain{{Values: []string{"b1", "r1"}, Count: 2}}, asks: required,
			selector: map[string]string{"block": "b1", "rack": "r1"}},
		"two racks": {levels: racks, domains: []placement.Domain{{Values: []string{"b1", "r1"}, Count: 1}, {Values: []string{"b1", "r2"}, Count: 1}}, gated: true,
			implied: true},
		"booked nodes with room to spare": {levels: hosts, domains: []placement.Domain{{Values: []string{"a"}, Count: 2}}, asks: required, update: booked,
			gated: true, selector: booked.NodeSelector},
		"booked nodes that are filled": {levels: hosts, domains: []placement.Domain{{Values: []string{"a"}, Count: 2}}, asks: required, update: filled,
			selector: booked.NodeSelector},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
			ps := &kueue.PodSet{Name: "main", TopologyRequest: c.asks}
			p := Placement{Updates: []kueue.PodSetUpdate{c.update}}
			p.inTopology(w, ps, placement.Encode(c.levels, c.domains))
			template := &corev1.PodTemplateSpec{}
			before, err := p.Apply(template)
			if err != nil {
				t.Fatal(err)
			}
			if gated := slices.ContainsFunc(template.Spec.SchedulingGates, IsTopologyGate); gated != c.gated {
				t.Errorf("gated is %t", gated)
			}
			if !maps.Equal(template.Spec.NodeSelector, c.selector) {
				t.Errorf("the node selector is %v, want %v", template.Spec.NodeSelector, c.selector)
			}
			if _, implied := template.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation]; implied != c.implied {
				t.Errorf("annotations are %v", template.Annotations)
			}
			if template.Annotations[kueue.WorkloadAnnotation] != "w" {
				t.Errorf("annotations are %v, want that of the Workload", template.Annotations)
			}
			before.Restore(template)
			if len(template.Spec.SchedulingGates)+len(template.Spec.NodeSelector)+len(template.Annotations) > 0 {
				t.Errorf("restored it is %+v, annotations %v", template.Spec, template.Annotations)
			}
		})
	}
}
