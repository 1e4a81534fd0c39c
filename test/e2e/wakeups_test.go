package e2e

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestWhatComesLaterWakesWhatWaits for it: the classes that a Job and a pod name, and what a LimitRange has pods request.
func TestWhatComesLaterWakesWhatWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	ranges := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "defaults"}}
	requests := func(cpu string) {
		ranges.Spec.Limits = []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse(cpu)},
		}}
	}
	requests("20") // of 8 that there are
	s.Create(ranges)

	s.plainJob("job", 1, "1h", func(j *batchv1.Job) { j.Spec.Template.Spec.RuntimeClassName = &s.Name })
	s.pod("pod", "1h", func(p *corev1.Pod) {
		p.Labels["kueue.x-k8s.io/priority-class"] = s.Name
		p.Spec = s.newPlainJob("like", 1, "1h").Spec.Template.Spec
	})
	small := s.plainJob("small", 1, "1h", func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Resources.Limits = nil })
	s.Eventually("all are told what they wait for", func() bool {
		told := fmt.Sprint(s.workloads())
		return strings.Count(told, "doesn't exist; create it") == 2 && strings.Contains(told, "> maximum capacity")
	}, func() string { return fmt.Sprint(s.workloads()) })
	s.runs(s.plainJob("meanwhile", 1, "1h")) // no event of the statuses written before is pending

	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Value: 10}
	runtime := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Handler: "runc"}
	s.Create(class, runtime)
	s.Cleanup(func() { _, _ = s.Kube.Delete(s.cleanup(), class), s.Kube.Delete(s.cleanup(), runtime) })
	s.arePods(3, "Running")
	s.edit(ranges, func() { requests("1") })
	s.runs(small)
}
