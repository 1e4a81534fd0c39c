package queueing

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Workload is a Workload object with what a cycle needs of it, worked out once.
type Workload struct {
	// Object is shared and not to be changed.
	Object *kueue.Workload
	// Pod is what one pod of each podSet asks for, by the index of the podSet.
	Pod []nodegroups.Resources
	// Keys are the node labels that its pods select or depend on.
	Keys []string
	// Usage is the quota that the Workload has reserved; empty without one.
	Usage Usage

	// shape is the same for Workloads whose podSets are the same.
	shape uint64
}

// NewWorkload reads a Workload object. Old is an earlier reading of the same
// object or nil; what depends only on the spec is taken over from it.
func NewWorkload(object *kueue.Workload, old *Workload) *Workload {
	w := &Workload{Object: object, Usage: usageOf(object)}
	if old != nil && old.Object.UID == object.UID && old.Object.Generation == object.Generation {
		w.Pod, w.Keys, w.shape = old.Pod, old.Keys, old.shape
		return w
	}
	for i := range object.Spec.PodSets {
		template := &object.Spec.PodSets[i].Template
		w.Pod = append(w.Pod, podRequests(&template.Spec))
		w.Keys = append(w.Keys, fit.SelectedKeys(&template.Spec)...)
	}
	w.shape = shapeOf(object.Spec.PodSets)
	return w
}

// podRequests is what a pod of the spec asks for, including init and sidecar
// containers and overhead. A container that has a limit and no request gets the
// limit as request when its pod is created, so it counts.
func podRequests(spec *corev1.PodSpec) nodegroups.Resources {
	pod := &corev1.Pod{Spec: *fit.WithRequests(spec)}
	return nodegroups.ResourcesFrom(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
}

func shapeOf(podSets []kueue.PodSet) uint64 {
	h := fnv.New64a()
	// Encoding API types cannot fail, and a wrong hash only costs time.
	_ = json.NewEncoder(h).Encode(podSets)
	return h.Sum64()
}

// usageOf reads the reservation of a Workload that holds one.
func usageOf(w *kueue.Workload) Usage {
	if !HasQuota(w) {
		return nil
	}
	u := Usage{}
	for _, ps := range w.Status.Admission.PodSetAssignments {
		for name, v := range nodegroups.ResourcesFrom(ps.ResourceUsage) {
			if flavor, ok := ps.Flavors[name]; ok {
				u[FlavorResource{flavor, name}] += v
			}
		}
	}
	return u
}

// HasQuota says that the Workload holds a reservation that counts.
func HasQuota(w *kueue.Workload) bool {
	return w.Status.Admission != nil && isTrue(w, kueue.WorkloadQuotaReserved) && !IsFinished(w)
}

// IsAdmitted says that the Workload may run.
func IsAdmitted(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadAdmitted) }

// IsFinished says that the Workload is over and uses no quota.
func IsFinished(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadFinished) }

// IsEvicted says that the Workload has to stop, or had to.
func IsEvicted(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadEvicted) }

// IsActive says that nobody has deactivated the Workload.
func IsActive(w *kueue.Workload) bool { return w.Spec.Active == nil || *w.Spec.Active }

func isTrue(w *kueue.Workload, condition string) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

func priority(w *kueue.Workload) int32 {
	if w.Spec.Priority == nil {
		return 0
	}
	return *w.Spec.Priority
}

// queuedSince is where the Workload stands in its queue among its priority: an
// attempt that an admission check ended sends it to the back.
func queuedSince(w *kueue.Workload) time.Time {
	evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	if evicted != nil && evicted.Status == metav1.ConditionTrue && evicted.Reason == kueue.WorkloadEvictedByAdmissionCheck {
		return evicted.LastTransitionTime.Time
	}
	return w.CreationTimestamp.Time
}

// times multiplies an amount by a number of pods and stops at the largest int64
// instead of wrapping around to a small one.
func times(v int64, n int32) int64 {
	if n > 0 && v > math.MaxInt64/int64(n) {
		return math.MaxInt64
	}
	return v * int64(n)
}
