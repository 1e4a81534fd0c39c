package multikueue

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/testbed"
)

func (s *site) pod(name, runFor string, annotations ...string) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Name, Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name},
		Annotations: map[string]string{"kwok.muster.dev/run-for": runFor},
	}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "main", Resources: testbed.WholeMachine()}}
	s.Create(p)
	return p
}

// phases are those of the pods of the test in a cluster, by name, with their nodes.
func phases(in *testbed.Site, namespace string) string {
	in.Helper()
	out := ""
	var pods corev1.PodList
	in.List(&pods, client.InNamespace(namespace))
	for _, p := range pods.Items {
		out += fmt.Sprintf("%s %s on %q, ", p.Name, p.Status.Phase, p.Spec.NodeName)
	}
	return out
}

// TestPodsRunInOtherClusters that no field delegates: one on its own, a group, and those of a StatefulSet. Here they stay gated.
func TestPodsRunInOtherClusters(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	standing := func() string {
		var all kueue.WorkloadList
		s.List(&all, client.InNamespace(s.Name))
		out := phases(s.Site, s.Name) + "\nin worker-1: " + phases(s.workers[0], s.Name)
		for _, w := range all.Items {
			out += fmt.Sprintf("\n%s: %+v %v", w.Name, w.Status, w.Annotations)
		}
		s.workers[0].List(&all, client.InNamespace(s.Name))
		for _, w := range all.Items {
			out += fmt.Sprintf("\nin worker-1 %s: %+v %v %v", w.Name, w.Status, w.Annotations, w.OwnerReferences)
		}
		return out
	}
	pods := []*corev1.Pod{s.pod("alone", "3s")}
	for _, name := range []string{"a", "b"} {
		pods = append(pods, s.pod(name, "3s", "kueue.x-k8s.io/pod-group-name", "ring", "kueue.x-k8s.io/pod-group-total-count", "2"))
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "db"}}
	set.Labels = map[string]string{"kueue.x-k8s.io/queue-name": s.Name}
	set.Spec.Replicas = new(int32(2))
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	set.Spec.Template.Labels = map[string]string{"app": "db"}
	set.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "1h"}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "main", Resources: testbed.WholeMachine()}}
	s.Create(set)
	s.Eventually("the pods have run, as they show here", func() bool {
		for _, p := range pods {
			if !s.Get(p) || p.Status.Phase != corev1.PodSucceeded || p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) == 0 {
				return false
			}
		}
		return true
	}, standing)
	theirs := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "db"}}
	s.Eventually("the StatefulSet has its pods in the first cluster", func() bool {
		return s.workers[0].Get(theirs) && theirs.Status.ReadyReplicas == 2
	}, standing)
	s.Delete(set)
	s.Eventually("nothing is left in the first cluster", func() bool {
		var all kueue.WorkloadList
		s.workers[0].List(&all, client.InNamespace(s.Name))
		return len(all.Items) == 0 && phases(s.workers[0], s.Name) == "" && !s.workers[0].Get(theirs)
	}, standing)
	s.wantLaunched(5, 0)
}
