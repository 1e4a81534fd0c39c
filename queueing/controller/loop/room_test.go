package loop

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestChangesOfPodsThatMatterToNodes: an end, a deletion and a resize are passed on. Other updates by the kubelet are not.
func TestChangesOfPodsThatMatterToNodes(t *testing.T) {
	pod := func() *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}, Spec: corev1.PodSpec{NodeName: "a"}}
		p.Spec.Containers = make([]corev1.Container, 1)
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		return p
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		passed bool
	}{
		"it is ready":        {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, false},
		"it ends":            {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		"it is told to stop": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"it grows":           {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") }, true},
		"it shrinks":         {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("500m") }, true},
	} {
		passed := false
		handler := roomEvents(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { passed = true }})
		now := pod()
		c.change(now)
		if handler.OnUpdate(pod(), now); passed != c.passed {
			t.Errorf("%s: passed on %t, want %t", name, passed, c.passed)
		}
	}
}
