package model

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/fit"
)

// objects are what pod templates refer to.
type objects struct {
	claims          table[types.NamespacedName, *corev1.PersistentVolumeClaim]
	volumes         table[string, *corev1.PersistentVolume]
	storageClasses  table[string, *storagev1.StorageClass]
	csiDrivers      table[string, *storagev1.CSIDriver]
	csiNodes        table[string, *storagev1.CSINode]
	runtimeClasses  table[string, *nodev1.RuntimeClass]
	priorityClasses table[string, *schedulingv1.PriorityClass]
}

// table is a map that is copied before it is written to while snapshots have it.
type table[K comparable, T metav1.Object] struct {
	of     map[K]T
	shared bool
}

func (t *table[K, T]) own() map[K]T {
	switch {
	case t.of == nil:
		t.of = map[K]T{}
	case t.shared:
		t.of = maps.Clone(t.of)
	}
	t.shared = false
	return t.of
}

func (t *table[K, T]) set(key K, obj T) effect { return effectOf(put(t.own(), key, obj)) }

func (t *table[K, T]) remove(key K) effect { return removed(t.own(), key) }

// copy is the objects as they are, for a snapshot.
func (o *objects) copy() fit.Objects {
	o.claims.shared, o.volumes.shared, o.storageClasses.shared = true, true, true
	o.csiDrivers.shared, o.csiNodes.shared, o.runtimeClasses.shared = true, true, true
	return o.lookup()
}

// lookup is for use before the objects change.
func (o *objects) lookup() fit.Objects {
	claims, volumes, storageClasses := o.claims.of, o.volumes.of, o.storageClasses.of
	csiDrivers, csiNodes, runtimeClasses := o.csiDrivers.of, o.csiNodes.of, o.runtimeClasses.of
	return fit.Objects{
		Claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
			return claims[types.NamespacedName{Namespace: namespace, Name: name}]
		},
		Volume:       func(name string) *corev1.PersistentVolume { return volumes[name] },
		StorageClass: func(name string) *storagev1.StorageClass { return storageClasses[name] },
		CSIDriver:    func(name string) *storagev1.CSIDriver { return csiDrivers[name] },
		RuntimeClass: func(name string) *nodev1.RuntimeClass { return runtimeClasses[name] },
		Limited: func(driver string) bool {
			for _, n := range csiNodes {
				for i := range n.Spec.Drivers {
					if d := &n.Spec.Drivers[i]; d.Name == driver && d.Allocatable != nil && d.Allocatable.Count != nil {
						return true
					}
				}
			}
			return false
		},
	}
}

// set stores an object that templates may refer to.
func (o *objects) set(obj metav1.Object) (e effect) {
	switch obj := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		e = o.claims.set(types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, obj)
	case *corev1.PersistentVolume:
		e = o.volumes.set(obj.Name, obj)
	case *storagev1.StorageClass:
		e = o.storageClasses.set(obj.Name, obj)
	case *storagev1.CSIDriver:
		e = o.csiDrivers.set(obj.Name, obj)
	case *storagev1.CSINode:
		e = o.csiNodes.set(obj.Name, obj)
	case *nodev1.RuntimeClass:
		e = o.runtimeClasses.set(obj.Name, obj)
	case *schedulingv1.PriorityClass:
		e = o.priorityClasses.set(obj.Name, obj)
	}
	return e
}

func (o *objects) remove(obj metav1.Object) (e effect) {
	name := obj.GetName()
	switch obj.(type) {
	case *corev1.PersistentVolumeClaim:
		e = o.claims.remove(types.NamespacedName{Namespace: obj.GetNamespace(), Name: name})
	case *corev1.PersistentVolume:
		e = o.volumes.remove(name)
	case *storagev1.StorageClass:
		e = o.storageClasses.remove(name)
	case *storagev1.CSIDriver:
		e = o.csiDrivers.remove(name)
	case *storagev1.CSINode:
		e = o.csiNodes.remove(name)
	case *nodev1.RuntimeClass:
		e = o.runtimeClasses.remove(name)
	case *schedulingv1.PriorityClass:
		e = o.priorityClasses.remove(name)
	}
	return e
}

// priority of pods: the API server fills it in when pods are created, not in their
// templates.
func (o *objects) priority(spec *corev1.PodSpec) int32 {
	if spec.Priority != nil {
		return *spec.Priority
	}
	if c := o.priorityClasses.of[spec.PriorityClassName]; c != nil {
		return c.Value
	}
	if spec.PriorityClassName == "" {
		for _, c := range o.priorityClasses.of {
			if c.GlobalDefault {
				return c.Value
			}
		}
	}
	return 0
}
