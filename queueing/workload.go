package queueing

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// Workload is a Workload object with what a cycle needs of it, worked out once.
type Workload struct {
	// Object is shared and not to be changed.
	Object *kueue.Workload
	// Pod is what one pod of each podSet asks for, by the index of the podSet.
	Pod []nodegroups.Resources
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
		w.Pod, w.shape = old.Pod, old.shape
		return w
	}
	for i := range object.Spec.PodSets {
		w.Pod = append(w.Pod, podRequests(&object.Spec.PodSets[i].Template.Spec))
	}
	w.shape = shapeOf(object.Spec.PodSets)
	return w
}

// podRequests is what a pod of the spec asks for, including init and sidecar
// containers and overhead. A container that has a limit and no request gets the
// limit as request when its pod is created, so it counts.
func podRequests(spec *corev1.PodSpec) nodegroups.Resources {
	pod := &corev1.Pod{Spec: *withRequestsFromLimits(spec)}
	return nodegroups.ResourcesFrom(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
}

func withRequestsFromLimits(spec *corev1.PodSpec) *corev1.PodSpec {
	spec = spec.DeepCopy()
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for name, limit := range r.Limits {
				if _, ok := r.Requests[name]; !ok {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit
				}
			}
		}
	}
	if spec.Resources != nil && len(spec.Resources.Limits) > 0 {
		podLevelRequests(spec)
	}
	return spec
}

// podLevelRequests are for those resources that the pod as a whole has a limit
// for: what its containers ask for, and the limit where they ask for nothing.
func podLevelRequests(spec *corev1.PodSpec) {
	containers := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	if spec.Resources.Requests == nil {
		spec.Resources.Requests = corev1.ResourceList{}
	}
	for name, limit := range spec.Resources.Limits {
		_, set := spec.Resources.Requests[name]
		switch asked, ok := containers[name]; {
		case set || !resourcehelper.IsSupportedPodLevelResource(name):
		case ok && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			spec.Resources.Requests[name] = asked
		default:
			spec.Resources.Requests[name] = limit
		}
	}
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
