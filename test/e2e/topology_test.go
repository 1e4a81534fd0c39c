package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/test/testbed"
)

const rackLabel = "example.com/rack"

// topology is one of racks and nodes, of the site's name.
func (s *site) topology() {
	s.Helper()
	t := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	t.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: rackLabel}, {NodeLabel: corev1.LabelHostname}}
	s.Create(t)
}

// placed are the pods of a Job by host, as its Workload says, and by rack, as they are.
func (s *site) placed(j *batchv1.Job) (assigned map[string]int32, racks map[string]int32) {
	s.Helper()
	assigned, racks = map[string]int32{}, map[string]int32{}
	if w := s.Workload(j); w != nil && w.Status.Admission != nil && w.Status.Admission.PodSetAssignments[0].TopologyAssignment != nil {
		domains, err := placement.Decode(w.Status.Admission.PodSetAssignments[0].TopologyAssignment)
		if err != nil {
			s.Fatal(err)
		}
		for _, d := range domains {
			assigned[d.Values[0]] = d.Count
		}
	}
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name), client.MatchingLabels{batchv1.JobNameLabel: j.Name})
	for i := range pods.Items {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pods.Items[i].Spec.NodeName}}
		if node.Name == "" || !s.Get(node) {
			continue
		}
		racks[node.Labels[rackLabel]]++
		assigned[node.Labels[corev1.LabelHostname]]--
	}
	return assigned, racks
}

// inOneRack fails unless all pods of the Job are where its Workload says, in one rack.
func (s *site) inOneRack(j *batchv1.Job) (rack string) {
	s.Helper()
	assigned, racks := s.placed(j)
	for node, n := range assigned {
		if n != 0 {
			s.Errorf("%s: %d pods more are assigned to node %s than run there", j.Name, n, node)
		}
	}
	if len(racks) != 1 {
		s.Errorf("%s is in racks %v, want it in one", j.Name, racks)
	}
	for rack = range racks {
	}
	return rack
}

func requiresRack(j *batchv1.Job) {
	j.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = rackLabel
}

// TestAJobIsInOneRack of nodes that are there: its pods run on the nodes that its Workload names, and a Job
// for which no rack has room waits until one has.
func TestAJobIsInOneRack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.topology()
	for rack, count := range map[string]int{"a": 4, "b": 3} {
		for i := range count {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-%d", s.Name, rack, i), Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			}}
			n.Labels = map[string]string{testbed.SiteLabel: s.Name, rackLabel: rack, corev1.LabelHostname: "host-" + n.Name}
			n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Ti"), "pods": resource.MustParse("100")}
			n.Status.Allocatable = n.Status.Capacity
			s.Create(n)
			s.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), n) })
		}
	}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels, flavor.Spec.TopologyName = map[string]string{testbed.SiteLabel: s.Name}, new(kueue.TopologyReference(s.Name))
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("64")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(flavor, cq, lq)

	large := s.plainJob("large", 7, "1h", requiresRack)
	s.runs(large)
	small := s.plainJob("small", 5, "1h", requiresRack)
	s.runs(small)
	if a, b := s.inOneRack(large), s.inOneRack(small); a != "a" || b != "b" {
		t.Errorf("the large gang is in rack %s and the small one in %s, want a and b", a, b)
	}
	late := s.plainJob("late", 2, "1h", requiresRack)
	s.Eventually("it is told that no rack has room", func() bool {
		w := s.Workload(late)
		return w != nil && len(w.Status.Conditions) > 0 && strings.Contains(w.Status.Conditions[0].Message, "allows to fit only 1 out of 2 pod(s)")
	}, func() string { return fmt.Sprint(s.Workload(late)) })
	s.Delete(small, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.runs(late)
	if rack := s.inOneRack(late); rack != "b" {
		t.Errorf("the late gang is in rack %s, want b", rack)
	}
}

// TestALaunchedGangIsPlacedInItsRack: the annotation of its pods has the machines gathered in one rack, though the cloud
// scatters them; then the pods are told where to go.
func TestALaunchedGangIsPlacedInItsRack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.topology()
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes = 16
		g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rackLabel}}
		g.Spec.Kwok.Domains = &v1alpha1.KwokDomains{
			NodeLabel: rackLabel, Of: []v1alpha1.KwokDomain{{Name: "small", Machines: 1}, {Name: "large", Machines: 8}},
			Placement: v1alpha1.PlacedScattered, LabelDelay: metav1.Duration{Duration: time.Second},
		}
	})
	s.queue(g)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
	s.edit(flavor, func() { flavor.Spec.TopologyName = new(kueue.TopologyReference(s.Name)) })
	j := s.job("gang", 4, func(j *batchv1.Job) {
		j.Spec.Template.Annotations = map[string]string{}
		requiresRack(j)
	})
	s.Eventually("all pods run", func() bool {
		_, racks := s.placed(j)
		return racks["large"] == 4
	}, func() string { return fmt.Sprint(s.Workload(j)) })
	s.inOneRack(j)
	if w := s.Workload(j); w != nil && w.Status.Admission != nil {
		if state := w.Status.Admission.PodSetAssignments[0].DelayedTopologyRequest; state == nil || *state != kueue.DelayedTopologyRequestStateReady {
			t.Errorf("the delayed topology request is %v", state)
		}
	}
	s.complete(j)
}
