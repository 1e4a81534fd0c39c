package placement

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// TestBalancedPlacementSpreadsEvenly; test/kueue/topology compares it with Kueue's own.
func TestBalancedPlacementSpreadsEvenly(t *testing.T) {
	tree := NewTree("racks", []string{"block", "rack", corev1.LabelHostname}, nil)
	for _, h := range []struct {
		rack string
		room int64
	}{{"a", 6}, {"b", 6}, {"c", 3}} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "in-" + h.rack}}
		n.Labels = map[string]string{"block": "one", "rack": h.rack, corev1.LabelHostname: n.Name}
		tree.SetNode(n, nodegroups.Resources{"cpu": h.room, "pods": 100})
	}
	rack := "rack"
	for _, tc := range []struct {
		count         int32
		balanced, led bool
		want          string
	}{
		{8, false, false, "in-a:6 in-c:2"},
		{8, true, false, "in-a:4 in-b:4"},
		{5, true, false, "in-a:5"},
		{14, true, false, "in-a:6 in-b:5 in-c:3"},
		{7, true, true, "in-a:4 in-c:3"},
		{16, true, false, ""},
	} {
		r := &Request{Count: tc.count, Pod: nodegroups.Resources{"cpu": 1}, Topology: &kueue.PodSetTopologyRequest{Preferred: &rack},
			Balanced: tc.balanced}
		if tc.led {
			r.Leader = nodegroups.Resources{"cpu": 1}
		}
		got := ""
		for _, d := range tree.Snapshot().Place(r).Pods {
			got += fmt.Sprintf(" %s:%d", d.Values[0], d.Count)
		}
		if got != "" {
			got = got[1:]
		}
		if got != tc.want {
			t.Errorf("%d pods, balanced %t, with a leader %t: %q, want %q", tc.count, tc.balanced, tc.led, got, tc.want)
		}
	}
}

// TestALeaderLowersTheThreshold: with the most that each of the domains can get there is no rack left for the leader, so one below is
// tried. It is Kueue's answer (test/kueue/topology).
func TestALeaderLowersTheThreshold(t *testing.T) {
	tree := NewTree("racks", []string{"rack", corev1.LabelHostname}, nil)
	for i, h := range []struct {
		rack     string
		cpu, gpu int64
	}{{"b", 3, 5}, {"a", 7, 3}, {"a", 1, 4}, {"b", 6, 5}, {"c", 4, 2}, {"c", 4, 3}} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Labels = map[string]string{"rack": h.rack, corev1.LabelHostname: n.Name}
		tree.SetNode(n, nodegroups.Resources{"cpu": h.cpu, "gpu": h.gpu, "pods": 100})
	}
	rack := "rack"
	p := tree.Snapshot().Place(&Request{Count: 13, Pod: nodegroups.Resources{"cpu": 1, "gpu": 1}, Leader: nodegroups.Resources{"cpu": 3},
		Topology: &kueue.PodSetTopologyRequest{Preferred: &rack}, Balanced: true})
	if got := fmt.Sprint(p.Leader, p.Pods); got != "[{[n1] 1}] [{[n1] 3} {[n0] 3} {[n3] 5} {[n4] 2}]" {
		t.Errorf("leader and workers are on %s", got)
	}
}

// TestALeaderIsWhereItCostsNoWorker: of three hosts in one rack, only the one with a core left over has room for the
// leader beside the workers.
func TestALeaderIsWhereItCostsNoWorker(t *testing.T) {
	tree := NewTree("racks", []string{"rack", corev1.LabelHostname}, nil)
	for name, cpu := range map[string]int64{"n2": 2, "n4": 4, "n3": 3} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Labels = map[string]string{"rack": "a", corev1.LabelHostname: name}
		tree.SetNode(n, nodegroups.Resources{"cpu": cpu, "pods": 100})
	}
	rack := "rack"
	p := tree.Snapshot().Place(&Request{Count: 4, Pod: nodegroups.Resources{"cpu": 2}, Leader: nodegroups.Resources{"cpu": 1},
		Topology: &kueue.PodSetTopologyRequest{Required: &rack}})
	if got := fmt.Sprint(p.Leader, p.Pods, p.Reason); got != "[{[n3] 1}] [{[n2] 1} {[n3] 1} {[n4] 2}]" {
		t.Errorf("leader and workers are on %s", got)
	}
}
