package model

import (
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
	claims          map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes         map[string]*corev1.PersistentVolume
	storageClasses  map[string]*storagev1.StorageClass
	csiDrivers      map[string]*storagev1.CSIDriver
	csiNodes        map[string]*storagev1.CSINode
	runtimeClasses  map[string]*nodev1.RuntimeClass
	priorityClasses map[string]*schedulingv1.PriorityClass
}

func newObjects() objects {
	return objects{
		claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		storageClasses: map[string]*storagev1.StorageClass{}, csiDrivers: map[string]*storagev1.CSIDriver{},
		csiNodes: map[string]*storagev1.CSINode{}, runtimeClasses: map[string]*nodev1.RuntimeClass{},
		priorityClasses: map[string]*schedulingv1.PriorityClass{},
	}
}

func (o *objects) lookup() fit.Objects {
	return fit.Objects{
		Claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
			return o.claims[types.NamespacedName{Namespace: namespace, Name: name}]
		},
		Volume:       func(name string) *corev1.PersistentVolume { return o.volumes[name] },
		StorageClass: func(name string) *storagev1.StorageClass { return o.storageClasses[name] },
		CSIDriver:    func(name string) *storagev1.CSIDriver { return o.csiDrivers[name] },
		RuntimeClass: func(name string) *nodev1.RuntimeClass { return o.runtimeClasses[name] },
		Limited: func(driver string) bool {
			for _, n := range o.csiNodes {
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

// lookup is for callers that do not hold the model's lock.
func (m *Model) lookup() fit.Objects {
	o := m.objects.lookup()
	return fit.Objects{
		Claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
			m.mu.Lock()
			defer m.mu.Unlock()
			return o.Claim(namespace, name)
		},
		Volume:       locked(m, o.Volume),
		StorageClass: locked(m, o.StorageClass),
		CSIDriver:    locked(m, o.CSIDriver),
		RuntimeClass: locked(m, o.RuntimeClass),
		Limited:      locked(m, o.Limited),
	}
}

// locked calls f under the model's lock.
func locked[T any](m *Model, f func(string) T) func(string) T {
	return func(name string) T {
		m.mu.Lock()
		defer m.mu.Unlock()
		return f(name)
	}
}

// priority of pods: the API server fills it in when pods are created, not in their
// templates.
func (o *objects) priority(spec *corev1.PodSpec) int32 {
	if spec.Priority != nil {
		return *spec.Priority
	}
	if c := o.priorityClasses[spec.PriorityClassName]; c != nil {
		return c.Value
	}
	if spec.PriorityClassName == "" {
		for _, c := range o.priorityClasses {
			if c.GlobalDefault {
				return c.Value
			}
		}
	}
	return 0
}

// refers says that pods of the spec depend on objects that this file looks up.
func refers(spec *corev1.PodSpec) bool {
	if spec.RuntimeClassName != nil || spec.PriorityClassName != "" {
		return true
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}

// SetClaim tells of a PersistentVolumeClaim.
func (m *Model) SetClaim(c *corev1.PersistentVolumeClaim) {
	setObject(m, m.objects.claims, types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, c)
}

// DeleteClaim tells that a PersistentVolumeClaim is gone.
func (m *Model) DeleteClaim(c *corev1.PersistentVolumeClaim) {
	deleteObject(m, m.objects.claims, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
}

// SetVolume tells of a PersistentVolume.
func (m *Model) SetVolume(v *corev1.PersistentVolume) { setObject(m, m.objects.volumes, v.Name, v) }

// DeleteVolume tells that a PersistentVolume is gone.
func (m *Model) DeleteVolume(v *corev1.PersistentVolume) {
	deleteObject(m, m.objects.volumes, v.Name)
}

// SetStorageClass tells of a StorageClass.
func (m *Model) SetStorageClass(c *storagev1.StorageClass) {
	setObject(m, m.objects.storageClasses, c.Name, c)
}

// DeleteStorageClass tells that a StorageClass is gone.
func (m *Model) DeleteStorageClass(c *storagev1.StorageClass) {
	deleteObject(m, m.objects.storageClasses, c.Name)
}

// SetCSIDriver tells of a CSIDriver.
func (m *Model) SetCSIDriver(d *storagev1.CSIDriver) { setObject(m, m.objects.csiDrivers, d.Name, d) }

// DeleteCSIDriver tells that a CSIDriver is gone.
func (m *Model) DeleteCSIDriver(d *storagev1.CSIDriver) {
	deleteObject(m, m.objects.csiDrivers, d.Name)
}

// SetCSINode tells of a CSINode.
func (m *Model) SetCSINode(n *storagev1.CSINode) { setObject(m, m.objects.csiNodes, n.Name, n) }

// DeleteCSINode tells that a CSINode is gone.
func (m *Model) DeleteCSINode(n *storagev1.CSINode) { deleteObject(m, m.objects.csiNodes, n.Name) }

// SetRuntimeClass tells of a RuntimeClass.
func (m *Model) SetRuntimeClass(c *nodev1.RuntimeClass) {
	setObject(m, m.objects.runtimeClasses, c.Name, c)
}

// DeleteRuntimeClass tells that a RuntimeClass is gone.
func (m *Model) DeleteRuntimeClass(c *nodev1.RuntimeClass) {
	deleteObject(m, m.objects.runtimeClasses, c.Name)
}

// SetPriorityClass tells of a PriorityClass.
func (m *Model) SetPriorityClass(c *schedulingv1.PriorityClass) {
	setObject(m, m.objects.priorityClasses, c.Name, c)
}

// DeletePriorityClass tells that a PriorityClass is gone.
func (m *Model) DeletePriorityClass(c *schedulingv1.PriorityClass) {
	deleteObject(m, m.objects.priorityClasses, c.Name)
}

func setObject[K comparable, T metav1.Object](m *Model, into map[K]T, key K, obj T) {
	m.update(func() bool { return put(into, key, obj) && m.rereadReferring() })
}

func deleteObject[K comparable, T metav1.Object](m *Model, from map[K]T, key K) {
	m.update(func() bool { delete(from, key); return m.rereadReferring() })
}

// rereadReferring has those requests read again whose pods refer to such objects.
func (m *Model) rereadReferring() (any bool) {
	for uid := range m.requests.live {
		if m.requests.byUID[uid].looksUp {
			m.reread(uid)
			any = true
		}
	}
	return any
}
