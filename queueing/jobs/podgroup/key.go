package podgroup

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// Gate keeps a pod from being scheduled until it has quota. Kueue adds the other where it
	// places pods by topology.
	Gate         = "kueue.x-k8s.io/admission"
	topologyGate = "kueue.x-k8s.io/topology"

	fastAnnotation        = "kueue.x-k8s.io/pod-group-fast-admission"
	servingAnnotation     = "kueue.x-k8s.io/pod-group-serving"
	retriableAnnotation   = "kueue.x-k8s.io/retriable-in-group"
	roleHashAnnotation    = "kueue.x-k8s.io/role-hash"
	parentAnnotation      = "kueue.x-k8s.io/pod-suspending-parent"
	statefulSetParent     = "statefulset"
	leaderWorkerSetParent = "leaderworkerset.x-k8s.io/leaderworkerset"

	workerIndexLabel = "leaderworkerset.sigs.k8s.io/worker-index"
)

var (
	podKind             = corev1.SchemeGroupVersion.WithKind("Pod")
	statefulSetKind     = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	leaderWorkerSetKind = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}
)

// family is what makes pods a gang.
type family int

const (
	// single: a pod on its own, by its name.
	single family = iota
	// group: pods that bear the name of a group.
	group
	// ofStatefulSet: the pods of a StatefulSet, by its name.
	ofStatefulSet
	// ofLeaderWorkerSet: one group of a LeaderWorkerSet, by the name of that and an index.
	ofLeaderWorkerSet
)

// key is the identity of a gang.
type key struct {
	family          family
	namespace, name string
	index           int
}

func (k key) String() string {
	return fmt.Sprintf("%d/%s/%s/%d", k.family, k.namespace, k.name, k.index)
}

// keyOf returns the gang of a pod, or false if the pod is not queued by itself. The policy that gates pods labels them.
func keyOf(pod client.Object) (k key, ok bool) {
	labels, annotations := pod.GetLabels(), pod.GetAnnotations()
	if labels[jobs.QueueLabel] == "" || labels[workload.ManagedLabel] != "true" {
		return k, false
	}
	k.namespace = pod.GetNamespace()
	controller := metav1.GetControllerOf(pod)
	switch {
	case annotations[parentAnnotation] == statefulSetParent && controller != nil && controller.Kind == statefulSetKind.Kind:
		k.family, k.name = ofStatefulSet, controller.Name
	case annotations[parentAnnotation] == leaderWorkerSetParent && labels[workload.LeaderWorkerSetLabel] != "":
		index, err := strconv.Atoi(labels[workload.GroupIndexLabel])
		if err != nil {
			return k, false
		}
		k.family, k.name, k.index = ofLeaderWorkerSet, labels[workload.LeaderWorkerSetLabel], index
	case groupOf(pod) != "":
		k.family, k.name = group, groupOf(pod)
	default:
		k.family, k.name = single, pod.GetName()
	}
	return k, true
}

// Gang returns the object with which a pod queues, as in "StatefulSet db"; empty if it queues by itself or not at all.
func Gang(pod client.Object) string {
	switch k, _ := keyOf(pod); k.family {
	case group:
		return "pod group " + k.name
	case ofStatefulSet:
		return "StatefulSet " + k.name
	case ofLeaderWorkerSet:
		return fmt.Sprintf("group %d of LeaderWorkerSet %s", k.index, k.name)
	}
	return ""
}

// HasWorkload reports whether a Workload is the one with which the pod queues.
func HasWorkload(pod client.Object, w *kueue.Workload) bool {
	of, isQueued := keyOf(pod)
	k, isOfPods := keyOfWorkload(w)
	return isQueued && isOfPods && k == of
}

func groupOf(pod client.Object) string {
	return cmp.Or(pod.GetAnnotations()[workload.GroupName], pod.GetLabels()[workload.GroupName])
}

// keyOfWorkload is the gang of a Workload; false if it is of something else.
func keyOfWorkload(w *kueue.Workload) (k key, ok bool) {
	owner := metav1.GetControllerOf(w)
	if owner == nil && workload.IsGroup(w) {
		owner = makerOf(w)
	}
	switch {
	case owner == nil && workload.IsGroup(w):
		return key{family: group, namespace: w.Namespace, name: w.Name}, true
	case owner == nil:
		return k, false
	}
	k = key{namespace: w.Namespace, name: owner.Name}
	switch group, _, _ := strings.Cut(owner.APIVersion, "/"); {
	case owner.Kind == podKind.Kind && owner.APIVersion == "v1":
		k.family = single
	case owner.Kind == statefulSetKind.Kind && group == statefulSetKind.Group:
		k.family = ofStatefulSet
	case owner.Kind == leaderWorkerSetKind.Kind && group == leaderWorkerSetKind.Group:
		index, err := strconv.Atoi(w.Annotations[workload.GroupIndexAnnotation])
		k.family, k.index = ofLeaderWorkerSet, index
		return k, err == nil
	default:
		return k, false
	}
	return k, true
}

// makerOf is what makes the pods of a group, as Kueue marks it: it owns their Workload beside them and
// controls it no more than they do. It is nil for pods that bear the name of a group.
func makerOf(w *kueue.Workload) *metav1.OwnerReference {
	for i := range w.OwnerReferences {
		if o := &w.OwnerReferences[i]; o.Kind != podKind.Kind && string(o.UID) == w.Labels[jobs.JobUIDLabel] {
			return o
		}
	}
	return nil
}

func isGate(g corev1.PodSchedulingGate) bool { return g.Name == Gate || g.Name == topologyGate }

func isGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == Gate })
}
