package state

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/fit"
)

// Stray is a pod on a machine with devices that uses none of them, and that may be moved elsewhere so that the machine can be terminated.
// A machine without devices has no strays: each of its pods is what the machine is for.
type Stray struct {
	Namespace, Name string
	UID             types.UID
	// Terminating: it has been deleted and is not gone yet.
	Terminating bool
	// Replica is the pod that its controller will create in its place.
	Replica PodSet
}

// NewStray reads a pod that is Movable; objects are the objects that it refers to.
func NewStray(p *corev1.Pod, objects fit.Objects) Stray {
	replica := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
	replica.Spec.NodeName = ""
	return Stray{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Terminating: p.DeletionTimestamp != nil,
		Replica: NewPodSet(p.Namespace, p.Name, 1, replica, objects),
	}
}

// String returns namespace/name.
func (s *Stray) String() string { return s.Namespace + "/" + s.Name }

// Keys returns the node labels that the pod selects or depends on.
func (s *Stray) Keys() []string { return s.Replica.Keys() }

// Annotations of pods by which their owners say whether they may be moved: those
// of cluster-autoscaler and of Karpenter.
const (
	safeToEvict             = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	safeToEvictLocalVolumes = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
	doNotDisrupt            = "karpenter.sh/do-not-disrupt"
)

// Movable reports whether a pod may be evicted for scale-down: it uses no devices, a controller recreates it, and its owner does not
// object. Without a statement of the owner, only interchangeable pods without data on the node are moved: those of a ReplicaSet or
// ReplicationController. The work of a gang may depend on all others, even if they use no device: a launcher, a leader, a Job's pod that
// would start again.
func Movable(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	if owner == nil || usesDevices(p) {
		return false
	}
	// Beside true, the value may be a duration of protection from the pod's start.
	if v := p.Annotations[doNotDisrupt]; v != "" && v != "false" {
		return false
	}
	switch p.Annotations[safeToEvict] {
	case "true":
		return true
	case "":
		return (owner.Kind == "ReplicaSet" || owner.Kind == "ReplicationController") && !keepsData(p)
	default:
		return false
	}
}

func usesDevices(p *corev1.Pod) bool {
	return takesDevices(fit.PodRequests(p)) || len(p.Spec.ResourceClaims) > 0
}

// keepsData reports whether the pod has volumes on its node's disk that its owner has not
// given up.
func keepsData(p *corev1.Pod) bool {
	givenUp := map[string]bool{}
	for name := range strings.SplitSeq(p.Annotations[safeToEvictLocalVolumes], ",") {
		givenUp[strings.TrimSpace(name)] = true
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		onDisk := v.HostPath != nil || v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory
		if onDisk && !givenUp[v.Name] {
			return true
		}
	}
	return false
}
