package snapshots

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// generation is the least time for which a keeper can find a part that it stored.
const generation = 10 * time.Minute

// keeper stores equal parts of the workers' objects once: nodes of a pool, pods of a gang and jobs of a team differ in little but their
// names.
type keeper struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// young are the parts that were stored in this generation, and old those of the one before. Older parts are dropped, so that the
	// garbage collector frees those that no object has.
	young, old map[[sha256.Size]byte]any
	turns      time.Time
}

func newKeeper(c clock.PassiveClock) *keeper {
	return &keeper{clock: c, young: map[[sha256.Size]byte]any{}, turns: c.Now().Add(generation)}
}

// share returns the part, or an equal one that is stored already. The result must not be changed.
func share[T any](k *keeper, part T) T {
	text, err := json.Marshal(part)
	if err != nil {
		return part
	}
	key := sha256.Sum256(fmt.Appendf(text, " %T", part))
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.clock.Now(); now.After(k.turns) {
		k.old, k.young, k.turns = k.young, map[[sha256.Size]byte]any{}, now.Add(generation)
	}
	known, ok := k.young[key]
	if !ok {
		if known, ok = k.old[key]; !ok {
			known = part
		}
		k.young[key] = known
	}
	return known.(T)
}

// keep removes the fields of an object that no forecast reads.
func (k *keeper) keep(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil
	}
	o.SetNamespace(unique.Make(o.GetNamespace()).Value())
	o.SetGenerateName("")
	switch o := o.(type) {
	case *corev1.Node:
		o.Labels, o.Annotations = interned(o.Labels), interned(o.Annotations)
		o.Spec.Taints = share(k, o.Spec.Taints)
		ready := slices.Clone(slices.DeleteFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady }))
		for i := range ready {
			ready[i].LastHeartbeatTime.Reset()
			ready[i].Message = ""
		}
		o.Status = corev1.NodeStatus{Capacity: share(k, o.Status.Capacity), Allocatable: share(k, o.Status.Allocatable), Conditions: ready}
		return o, nil
	case *corev1.Pod:
		return k.keepPod(o), nil
	case *corev1.PodTemplate:
		strip(&o.Template.Spec)
		o.Template = share(k, o.Template)
	case *kueue.Workload:
		o.Spec.PodSets = slices.Clone(o.Spec.PodSets) // a decoder allocates too much capacity
		for i := range o.Spec.PodSets {
			t := &o.Spec.PodSets[i].Template
			strip(&t.Spec)
			t.Labels, t.Annotations, t.Spec = share(k, t.Labels), share(k, t.Annotations), share(k, t.Spec)
		}
	}
	o.SetLabels(share(k, o.GetLabels()))
	o.SetAnnotations(share(k, o.GetAnnotations()))
	return object, nil
}

// KeptPod is the stored part of a pod. Pods outnumber all other objects, and most differ only in their names.
type KeptPod struct {
	metav1.ObjectMeta

	node string
	// spec has no node name. It is shared, as the status is.
	spec   *corev1.PodSpec
	status *corev1.PodStatus
}

func (k *keeper) keepPod(o *corev1.Pod) *KeptPod {
	out := &KeptPod{ObjectMeta: o.ObjectMeta, node: unique.Make(o.Spec.NodeName).Value()}
	out.Labels, out.Annotations, out.OwnerReferences = share(k, o.Labels), share(k, o.Annotations), share(k, o.OwnerReferences)
	spec := o.Spec
	spec.NodeName = ""
	out.spec = share(k, &spec)
	status := corev1.PodStatus{
		Phase: o.Status.Phase, NominatedNodeName: o.Status.NominatedNodeName, Resize: o.Status.Resize, Resources: o.Status.Resources,
		AllocatedResources: o.Status.AllocatedResources, InitContainerStatuses: o.Status.InitContainerStatuses,
		ContainerStatuses: o.Status.ContainerStatuses,
	}
	for _, c := range o.Status.Conditions {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodResizePending, corev1.PodResizeInProgress:
			c.LastProbeTime.Reset()
			c.Message = ""
			status.Conditions = append(status.Conditions, c)
		}
	}
	out.status = share(k, &status)
	return out
}

// Whole returns the pod with all fields that were stored.
func (p *KeptPod) Whole() *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: *p.spec, Status: *p.status}
	out.Spec.NodeName = p.node
	return out
}

// GetObjectKind implements client.Object.
func (p *KeptPod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements client.Object.
func (p *KeptPod) DeepCopyObject() runtime.Object {
	out := *p
	p.DeepCopyInto(&out.ObjectMeta)
	return &out // nothing changes the other fields
}

// interned returns a new map with shared strings. The map itself differs from object to object.
func interned(all map[string]string) map[string]string {
	out := make(map[string]string, len(all))
	for key, value := range all {
		out[unique.Make(key).Value()] = unique.Make(value).Value()
	}
	return out
}

// strip reduces the containers of a template to their resources and to what decides where they may run.
func strip(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			// The image is kept, because run times of jobs are estimated by it.
			*c = corev1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		}
	}
}

// Kept returns the transform of the objects of all workers. trim is applied first.
func Kept(c clock.PassiveClock, trim toolscache.TransformFunc) toolscache.TransformFunc {
	k := newKeeper(c)
	return func(object any) (any, error) {
		trimmed, err := trim(object)
		if err != nil {
			return nil, err
		}
		return k.keep(trimmed)
	}
}
