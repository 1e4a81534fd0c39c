package podgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/topology"
	"github.com/muster-dev/muster/queueing/workload"
)

// hashLength is how many hex digits of the hash are the name of a role.
const hashLength = 8

// roleOf is the role of a pod in its group, which is the name of its pod set: a hash of what
// decides what it takes and where it may go. A start writes it on the pod, since it changes
// that. Hash and annotation are Kueue's. What the user of a pod that has not started writes there
// does not count.
func roleOf(pod *corev1.Pod) string {
	if have := pod.Annotations[roleHashAnnotation]; have != "" && (!isGated(pod) || isFromManager(pod)) {
		return have
	}
	shape := shapeOf(&pod.Spec)
	shape["containers"], shape["initContainers"] = shapesOf(pod.Spec.Containers), shapesOf(pod.Spec.InitContainers)
	if pod.Spec.Resources != nil {
		shape["resources"] = pod.Spec.Resources.Requests
	}
	text, err := json.Marshal(map[string]any{"spec": shape})
	if err != nil {
		panic(err) // it was read from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:hashLength]
}

// shapeOf returns the fields of a pod, besides its containers' requests, that decide where it may run.
func shapeOf(s *corev1.PodSpec) map[string]any {
	return map[string]any{
		"affinity": s.Affinity, "nodeSelector": s.NodeSelector, "overhead": s.Overhead, "priority": s.Priority, "resourceClaims": s.ResourceClaims,
		"runtimeClassName": s.RuntimeClassName, "tolerations": s.Tolerations, "topologySpreadConstraints": s.TopologySpreadConstraints,
	}
}

// isReservedBy reports whether the quota of a Workload covers the pods of another one. During a rollout of a StatefulSet or of a
// group of a LeaderWorkerSet, pods of the new revision replace the old ones, and for a while there may be none. The Workload keeps
// its quota if the new pods request no more and may run on the same nodes, so that no other Workload takes it in between.
func (g *gang) isReservedBy(w, want *kueue.Workload) bool {
	if !g.serves || !g.awaited {
		return jobs.SamePods(w, want)
	}
	return slices.EqualFunc(w.Spec.PodSets, want.Spec.PodSets, func(have, want kueue.PodSet) bool {
		_, more := exceeds(&want.Template.Spec, &have)
		return !more && have.Count == want.Count && equality.Semantic.DeepEqual(have.MinCount, want.MinCount) &&
			equality.Semantic.DeepEqual(shapeOf(&have.Template.Spec), shapeOf(&want.Template.Spec)) &&
			topology.Same(have.TopologyRequest, want.TopologyRequest)
	})
}

func shapesOf(containers []corev1.Container) (out []any) {
	for i := range containers {
		c := &containers[i]
		out = append(out, map[string]any{"ports": c.Ports, "resources": map[string]any{"requests": c.Resources.Requests}})
	}
	return out
}

// templateOf returns the pod as a template for similar pods.
func templateOf(pod *corev1.Pod) corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}
	out.Labels, out.Annotations = pod.Labels, pod.Annotations
	out.Spec.NodeName = ""
	out.Spec.SchedulingGates = slices.DeleteFunc(out.Spec.SchedulingGates, isGate)
	return out
}

// podSetOf is the index of the pod set of a Workload that a pod belongs to; -1 if it has none
// for it.
func podSetOf(w *kueue.Workload, g *gang, pod *corev1.Pod) int {
	if len(w.Spec.PodSets) == 1 {
		return 0
	}
	name := kueue.PodSetReference(pod.Labels[jobs.PodSetLabel])
	if name == "" || isGated(pod) {
		name = g.podSet(pod)
	}
	return slices.IndexFunc(w.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == name })
}

// exceeds returns a resource that a pod requests more of than the pods of a podSet.
func exceeds(pod *corev1.PodSpec, s *kueue.PodSet) (resource corev1.ResourceName, does bool) {
	requests := workload.PodRequests(pod)
	counted := workload.PodRequests(&s.Template.Spec)
	resource, _, does = counted.Short(requests)
	return resource, does
}

// orderAs orders podSets by name like others. It reports whether both have the same names.
func orderAs(podSets, others []kueue.PodSet) bool {
	if len(podSets) != len(others) {
		return false
	}
	for i := range others {
		k := slices.IndexFunc(podSets[i:], func(s kueue.PodSet) bool { return s.Name == others[i].Name })
		if k < 0 {
			return false
		}
		podSets[i], podSets[i+k] = podSets[i+k], podSets[i]
	}
	return true
}
