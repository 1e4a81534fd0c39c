package bench

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// BenchmarkStartInRack starts a gang of 512 pods on 512 nodes of one rack, each pod on the node that its Workload says: of a Job
// whose pods are numbered, which are created there, and of one whose pods are not, which are sent there by a write each. A run
// lasts from the creation of the Job until all pods are bound; the ratio of the two is what counts.
func BenchmarkStartInRack(b *testing.B) {
	const pods = 512
	s := newSite(b)
	s.racks(pods)
	for _, tc := range []struct {
		name string
		mode batchv1.CompletionMode
	}{{"numbered", batchv1.IndexedCompletion}, {"unnumbered", batchv1.NonIndexedCompletion}} {
		b.Run(tc.name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
					Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s-%d", tc.name, n),
					Labels: map[string]string{"kueue.x-k8s.io/queue-name": "racks"},
				}}
				j.Spec.Parallelism, j.Spec.Completions, j.Spec.CompletionMode = new(int32(pods)), new(int32(pods)), &tc.mode
				j.Spec.Template.Annotations = map[string]string{kueue.PodSetRequiredTopologyAnnotation: "rack", "kwok.muster.dev/run-for": "1h"}
				j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
					Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("8")}},
				}}}
				before, writes, began := s.count(), s.scrape()("muster_api_writes_total", `resource="pods"`), time.Now()
				s.create(j)
				s.poll("all pods are bound", func() bool { return s.bound(j.Name) == pods })
				took, after := time.Since(began), s.count()
				b.ReportMetric(took.Seconds(), "s/gang")
				b.ReportMetric((s.scrape()("muster_api_writes_total", `resource="pods"`)-writes)/pods, "writes/pod")
				b.ReportMetric(after.musterCPU-before.musterCPU, "muster-CPU-s")
				b.ReportMetric(after.apiserverCPU-before.apiserverCPU, "apiserver-CPU-s")
				b.StopTimer()
				if err := s.kube.Delete(b.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
					b.Fatal(err)
				}
				s.poll("its pods are gone", func() bool { return len(s.podsOf(j.Name)) == 0 })
				b.StartTimer()
			}
		})
	}
}

// racks are nodes of one rack, and a queue for them.
func (s *site) racks(nodes int) {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
	flavor.Spec.NodeLabels, flavor.Spec.TopologyName = map[string]string{"rack": "one"}, new(kueue.TopologyReference("racks"))
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "racks", Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: *resource.NewQuantity(int64(8*nodes), resource.DecimalSI)},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "racks"}}
	lq.Spec.ClusterQueue = "racks"
	s.create(topology, flavor, cq, lq)
	s.nodes(nodes, map[string]string{"rack": "one"}, corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("1Ti")})
}

// nodes creates nodes that no group has, and waits until they are Ready.
func (s *site) nodes(count int, labels map[string]string, has corev1.ResourceList) {
	objects := make([]client.Object, count)
	for i := range objects {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("ip-10-0-%d-%d.compute.internal", i/250, i%250), Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		}}
		n.Labels = map[string]string{corev1.LabelHostname: n.Name}
		maps.Copy(n.Labels, labels)
		n.Status.Capacity = maps.Clone(has)
		n.Status.Capacity["pods"] = resource.MustParse("110")
		n.Status.Allocatable = n.Status.Capacity
		objects[i] = n
	}
	s.create(objects...)
	s.poll("the nodes are Ready", func() bool {
		var list corev1.NodeList
		if err := s.kube.List(s.Context(), &list); err != nil {
			s.Fatal(err)
		}
		ready := slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
			return len(n.Spec.Taints) > 0 || !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
		})
		return len(ready) == count
	})
}

func (s *site) podsOf(job string) []corev1.Pod {
	var list corev1.PodList
	if err := s.kube.List(s.Context(), &list, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
		s.Fatal(err)
	}
	return list.Items
}

func (s *site) bound(job string) (n int) {
	for _, pod := range s.podsOf(job) {
		if pod.Spec.NodeName != "" && pod.Spec.NodeSelector[corev1.LabelHostname] == pod.Spec.NodeName {
			n++
		}
	}
	return n
}
