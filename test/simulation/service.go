package simulation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// service simulates the ReplicaSet of one movable pod that does not use Muster: while it exists, it replaces the pod when it is deleted.
type service struct {
	name string
	spec corev1.PodSpec
	// budget: its pod must not be evicted.
	budget      bool
	from, until time.Time
	made        int
}

func (s *service) offer(w *world, offer func(option)) {
	pod := find[*corev1.Pod](w.store, unbookedNamespace, s.podName())
	lasts := pod != nil && pod.DeletionTimestamp == nil && !finished(pod)
	if lasts {
		offer(option{key: "service " + s.name + " ends", at: s.until, within: kubeletTime, do: func() { change(w.store, pod, markDeleted) }})
		return
	}
	if time.Now().Before(s.until) {
		offer(option{key: "service " + s.name + " makes a pod", at: s.from, within: kubeletTime, do: func() {
			if time.Now().Before(s.until) {
				s.made++
				w.create(s.newPod())
			}
		}})
	}
}

func (s *service) podName() string { return fmt.Sprintf("%s-%d", s.name, s.made) }

func (s *service) newPod() *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: unbookedNamespace, Name: s.podName(),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: s.name, UID: "replicaset", Controller: &yes}},
	}, Spec: *s.spec.DeepCopy()}
	p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: gpuTaint.Key, Operator: corev1.TolerationOpExists})
	if s.budget {
		p.Annotations = map[string]string{budgetAnnotation: "true"}
	}
	p.Status.Phase = corev1.PodPending
	return p
}
