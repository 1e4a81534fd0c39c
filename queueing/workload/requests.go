package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/quota"
)

// PodRequests returns the requests of a pod, including init and sidecar containers and overhead. As when the pod is
// created, a limit without a request counts as request.
func PodRequests(spec *corev1.PodSpec) nodegroups.Resources {
	pod := &corev1.Pod{Spec: *fit.WithRequests(spec)}
	return nodegroups.ResourcesFrom(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
}

// UsageOf returns the reserved quota of a Workload. Reclaimable pods use nothing.
func UsageOf(w *kueue.Workload) quota.Amounts {
	if !HasQuota(w) {
		return nil
	}
	u := quota.Amounts{}
	for i := range w.Status.Admission.PodSetAssignments {
		ps := &w.Status.Admission.PodSetAssignments[i]
		count, left := CountOf(ps), PodsLeft(w, ps)
		for name, v := range nodegroups.ResourcesFrom(ps.ResourceUsage) {
			flavor, ok := ps.Flavors[name]
			if !ok {
				continue
			}
			if left < count {
				v = v / int64(count) * int64(left)
			}
			if v > 0 {
				fr := quota.FlavorResource{Flavor: flavor, Resource: name}
				u[fr] = nodegroups.Plus(u[fr], v)
			}
		}
	}
	return u
}

// PodsLeft returns how many admitted pods of a podSet may still run. Reclaimable pods count from the spec, so pods that
// were left out of the admission because of them are not subtracted twice.
func PodsLeft(w *kueue.Workload, ps *kueue.PodSetAssignment) int32 {
	if over := Reclaimable(w, ps.Name); over > 0 {
		return min(CountOf(ps), max(0, FindPodSet(w, ps.Name).Count-over))
	}
	return CountOf(ps)
}

// QuotaRestored reports whether pods of a Workload whose quota had been released have it again.
func TookBack(before, now *kueue.Workload) bool {
	return HasQuota(before) && HasQuota(now) && slices.ContainsFunc(before.Status.ReclaimablePods, func(r kueue.ReclaimablePod) bool {
		return Reclaimable(now, r.Name) < r.Count
	})
}

// Reclaimable returns how many pods of a podSet will not run any more.
func Reclaimable(w *kueue.Workload, podSet kueue.PodSetReference) int32 {
	for _, r := range w.Status.ReclaimablePods {
		if r.Name == podSet {
			return max(0, r.Count)
		}
	}
	return 0
}
