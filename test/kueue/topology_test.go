package kueue

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

const rack = "example.com/rack"

// TestJobsInOneRackStartOnTheFirstAttempt: Kueue requests machines in one rack by the annotation of the pods, and places the pods only on
// the booked machines, although another gang's machines are beside them. An unbooked pod that would fit on them waits.
func TestJobsInOneRackStartOnTheFirstAttempt(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, func(s *site, f *kueue.ResourceFlavor, c *kueue.ProvisioningRequestConfig) {
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
		topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: rack}, {NodeLabel: corev1.LabelHostname}}
		s.Create(topology)
		f.Spec.TopologyName = new(kueue.TopologyReference(s.Name))
		f.Spec.Tolerations = append(f.Spec.Tolerations, corev1.Toleration{Key: v1alpha1.BookedTaint, Operator: corev1.TolerationOpExists})
		c.Spec.PodSetUpdates = &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestPodSetUpdatesNodeSelector{{
			Key: v1alpha1.BookedByLabel, ValueFromProvisioningClassDetail: v1alpha1.BookedByLabel,
		}}}
	})
	s.Create(s.NewGroup("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes = 12
		g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rack}}
		g.Spec.Kwok.Domains = &v1alpha1.KwokDomains{
			NodeLabel: rack, Of: []v1alpha1.KwokDomain{{Name: "a", Machines: 1}, {Name: "b", Machines: 8}},
			Placement: v1alpha1.PlacedScattered, LabelDelay: *testbed.After(time.Second),
		}
	}))
	inRack := func(j *batchv1.Job) { j.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = rack }
	jobs := []*batchv1.Job{s.job("four", 4, 8*time.Second, inRack), s.job("three", 3, 8*time.Second, inRack)}
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "stranger"}}
	stranger.Spec = *jobs[0].Spec.Template.Spec.DeepCopy()
	stranger.Spec.NodeSelector = map[string]string{testbed.SiteLabel: s.Name}
	stranger.Spec.Tolerations = []corev1.Toleration{{Key: testbed.GPUTaint.Key, Operator: corev1.TolerationOpExists}}
	s.Create(stranger)
	for _, j := range jobs {
		s.Eventually("all pods of job "+j.Name+" run in one rack", func() bool {
			var pods corev1.PodList
			s.List(&pods, client.InNamespace(s.Name), client.MatchingLabels{batchv1.JobNameLabel: j.Name})
			racks, running := map[string]bool{}, 0
			for i := range pods.Items {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pods.Items[i].Spec.NodeName}}
				if pods.Items[i].Status.Phase == corev1.PodRunning && s.Get(node) {
					racks[node.Labels[rack]] = true
					running++
				}
			}
			return running == int(*j.Spec.Parallelism) && len(racks) == 1
		}, func() string { return s.standing(j) })
		if s.Get(stranger); stranger.Spec.NodeName != "" {
			t.Errorf("the stranger is on node %s, which was booked for a gang", stranger.Spec.NodeName)
		}
	}
	s.Delete(stranger, client.GracePeriodSeconds(0))
	for _, j := range jobs {
		s.complete(j)
		if evictions := s.evictions(j); len(evictions) > 0 {
			t.Errorf("job %s was stopped on its way: %v", j.Name, evictions)
		}
	}
	s.empty()
}
