// Package objects stores the objects that pod templates refer to, such as PersistentVolumeClaims, and returns copies for snapshots.
package objects

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/muster-dev/muster/provisioning/fit"
)

// Objects are the objects that pod templates refer to.
type Objects struct {
	claims          table[types.NamespacedName, *corev1.PersistentVolumeClaim]
	volumes         table[string, *corev1.PersistentVolume]
	storageClasses  table[string, *storagev1.StorageClass]
	csiDrivers      table[string, *storagev1.CSIDriver]
	csiNodes        table[string, *storagev1.CSINode]
	runtimeClasses  table[string, *nodev1.RuntimeClass]
	priorityClasses table[string, *schedulingv1.PriorityClass]
	claimTemplates  table[types.NamespacedName, *resourcev1.ResourceClaimTemplate]
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

func (t *table[K, T]) set(key K, obj T) bool { return Put(t.own(), key, obj) }

func (t *table[K, T]) remove(key K) bool {
	of := t.own()
	_, known := of[key]
	delete(of, key)
	return known
}

// Copy returns the current objects for a snapshot.
func (o *Objects) Copy() fit.Objects {
	o.claims.shared, o.volumes.shared, o.storageClasses.shared = true, true, true
	o.csiDrivers.shared, o.csiNodes.shared, o.runtimeClasses.shared, o.claimTemplates.shared = true, true, true, true
	return o.Lookup()
}

// Lookup is for use before the objects change.
func (o *Objects) Lookup() fit.Objects {
	claims, volumes, storageClasses := o.claims.of, o.volumes.of, o.storageClasses.of
	csiDrivers, csiNodes, runtimeClasses := o.csiDrivers.of, o.csiNodes.of, o.runtimeClasses.of
	claimTemplates := o.claimTemplates.of
	return fit.Objects{
		Claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
			return claims[types.NamespacedName{Namespace: namespace, Name: name}]
		},
		Volume:       func(name string) *corev1.PersistentVolume { return volumes[name] },
		StorageClass: func(name string) *storagev1.StorageClass { return storageClasses[name] },
		CSIDriver:    func(name string) *storagev1.CSIDriver { return csiDrivers[name] },
		RuntimeClass: func(name string) *nodev1.RuntimeClass { return runtimeClasses[name] },
		ClaimTemplate: func(namespace, name string) *resourcev1.ResourceClaimTemplate {
			return claimTemplates[types.NamespacedName{Namespace: namespace, Name: name}]
		},
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

// Set stores an object that templates may refer to, and reports whether it has changed.
func (o *Objects) Set(obj metav1.Object) (news bool) {
	switch obj := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		news = o.claims.set(types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, obj)
	case *corev1.PersistentVolume:
		news = o.volumes.set(obj.Name, obj)
	case *storagev1.StorageClass:
		news = o.storageClasses.set(obj.Name, obj)
	case *storagev1.CSIDriver:
		news = o.csiDrivers.set(obj.Name, obj)
	case *storagev1.CSINode:
		news = o.csiNodes.set(obj.Name, obj)
	case *nodev1.RuntimeClass:
		news = o.runtimeClasses.set(obj.Name, obj)
	case *resourcev1.ResourceClaimTemplate:
		news = o.claimTemplates.set(types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, obj)
	case *schedulingv1.PriorityClass:
		news = o.priorityClasses.set(obj.Name, obj)
	}
	return news
}

// Remove takes an object out, and reports whether it was there.
func (o *Objects) Remove(obj metav1.Object) (known bool) {
	name := obj.GetName()
	switch obj.(type) {
	case *corev1.PersistentVolumeClaim:
		known = o.claims.remove(types.NamespacedName{Namespace: obj.GetNamespace(), Name: name})
	case *corev1.PersistentVolume:
		known = o.volumes.remove(name)
	case *storagev1.StorageClass:
		known = o.storageClasses.remove(name)
	case *storagev1.CSIDriver:
		known = o.csiDrivers.remove(name)
	case *storagev1.CSINode:
		known = o.csiNodes.remove(name)
	case *nodev1.RuntimeClass:
		known = o.runtimeClasses.remove(name)
	case *resourcev1.ResourceClaimTemplate:
		known = o.claimTemplates.remove(types.NamespacedName{Namespace: obj.GetNamespace(), Name: name})
	case *schedulingv1.PriorityClass:
		known = o.priorityClasses.remove(name)
	}
	return known
}

// Priority of pods: the API server fills it in when pods are created, not in their
// templates.
func (o *Objects) Priority(spec *corev1.PodSpec) int32 {
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

// Newer reports whether the version of an object is at least as new as another's.
func Newer(obj, than metav1.Object) bool {
	c, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), than.GetResourceVersion())
	return err != nil || c >= 0
}

// Put stores an object under a key unless a newer one is there, and reports whether it did.
func Put[K comparable, T metav1.Object](into map[K]T, key K, obj T) bool {
	if old, ok := into[key]; ok && !Newer(obj, old) {
		return false
	}
	into[key] = obj
	return true
}
