package cache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/queueing/placement"
)

// TestNodesMayReturn if the provisioner reports that their machines run: for a moment, or as long as many are gone. A process that
// started after they had gone does not have their names.
func TestNodesMayReturn(t *testing.T) {
	node := func(host string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + host, Labels: map[string]string{corev1.LabelHostname: host}}}
		n.Spec.ProviderID = "cloud://" + host
		return n
	}
	use := placement.Usage{Flavor: "gpu"}
	for _, host := range []string{"a", "b"} {
		use.Domains = append(use.Domains, placement.Domain{Values: []string{host}, Count: 1})
	}
	only := func(host string, many bool) scaledown.Vanished {
		return scaledown.Vanished{Machines: map[string]bool{"cloud://" + host: many}, Many: many}
	}
	for _, tc := range []struct {
		name       string
		vanished   scaledown.Vanished
		restarted  bool
		there      string
		soon, many bool
	}{
		{name: "its machine has ended"},
		{name: "too soon to tell", vanished: only("a", false), soon: true},
		{name: "one of many", vanished: only("a", true), soon: true, many: true},
		{name: "others are many", vanished: only("c", true)},
		{name: "before this process began", vanished: only("a", true), restarted: true, many: true},
		{name: "a few, before this process began", vanished: only("a", false), restarted: true},
		{name: "there, and not Ready", vanished: only("c", true), restarted: true, there: "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := newNodes()
			nodes.SetUsage(types.NamespacedName{Name: "train"}, []placement.Usage{use})
			if !tc.restarted {
				for _, host := range []string{"a", "b"} {
					nodes.SetNode(node(host))
				}
				nodes.DeleteNode(node("a").Name)
			}
			if tc.there != "" {
				nodes.SetNode(node(tc.there))
			}
			nodes.Vanished = tc.vanished
			if soon, many := nodes.MayReturn(map[string]bool{"a": true}); soon != tc.soon || many != tc.many {
				t.Errorf("soon %t and many %t, want %t and %t", soon, many, tc.soon, tc.many)
			}
			if got := len(nodes.DeletedNodes()); (got == 1) != !tc.restarted {
				t.Errorf("%d nodes to which pods are assigned have gone", got)
			}
			if nodes.SetUsage(types.NamespacedName{Name: "train"}, nil); len(nodes.DeletedNodes()) > 0 {
				t.Error("it is remembered for no Workload")
			}
		})
	}
}
