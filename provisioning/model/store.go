package model

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Set stores an object. The caller must not change it later; this is true of all objects that are passed to the model. A
// ProvisioningRequest that is being deleted counts as gone when it holds nothing, see transaction.LetsGo. A request that was handed over
// to another instance counts as gone at once.
func (m *Model) Set(o metav1.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := refOf(o)
	if p, ok := o.(*v1alpha1.CapacityPolicy); ok && m.policies.sameSpec(p) {
		of.kind = policyStatus
	}
	m.store(of, func() effect { return m.set(o) })
}

// Restored stores an object of which the API server has an older version than before, since its etcd was restored from a backup. The newer
// version is dropped.
func (m *Model) Restored(o metav1.Object) {
	m.change(refOf(o), func() effect {
		if n, ok := o.(*corev1.Node); ok {
			m.nodes.remove(n.Name) // the machine of the node keeps its node in between
		} else {
			m.remove(o)
		}
		m.set(o)
		return frees
	})
}

// Delete removes an object.
func (m *Model) Delete(o metav1.Object) {
	m.change(refOf(o), func() effect {
		switch o := o.(type) {
		case *corev1.Node:
			delete(m.nodes.gone, o.Name)
		case *provreq.ProvisioningRequest:
			delete(m.requests.gone, state.ConsumerKey{Namespace: o.Namespace, Name: o.Name})
		}
		return m.remove(o)
	})
}

// Written stores an object that Muster has just written. Unlike Set, it does not restore an object that has been deleted meanwhile.
func (m *Model) Written(o metav1.Object) {
	m.change(refOf(o), func() effect {
		switch o := o.(type) {
		case *corev1.Node:
			if m.nodes.object(o.Name) == nil {
				return unchanged
			}
			e := m.set(o)
			m.nodes.written(o.Name)
			return e
		case *provreq.ProvisioningRequest:
			if m.requests.byUID[o.UID] == nil {
				return unchanged
			}
		case *v1alpha1.NodeGroup:
			if m.groups.objects[o.Name] == nil {
				return unchanged
			}
		case *v1alpha1.CapacityPolicy:
			if m.policies.byName[o.Name] == nil {
				return unchanged
			}
			if m.policies.set(o) == changed {
				m.budgets.Written(o)
			}
			return unchanged
		}
		return m.set(o)
	})
}

// Gone removes a node or ProvisioningRequest that was not found by a write. Until the informers catch up, their versions of it are old. An
// object that was created again with the same name stays.
func (m *Model) Gone(o metav1.Object) {
	m.change(refOf(o), func() effect {
		switch o := o.(type) {
		case *corev1.Node:
			if known := m.nodes.object(o.Name); known == nil || known.UID != o.UID {
				return unchanged
			}
			m.nodes.gone[o.Name] = o.UID
		case *provreq.ProvisioningRequest:
			if m.requests.byUID[o.UID] == nil {
				return unchanged
			}
			m.requests.gone[state.ConsumerKey{Namespace: o.Namespace, Name: o.Name}] = o.UID
		}
		return m.remove(o)
	})
}

// refOf returns the ref of an object.
func refOf(o metav1.Object) ref {
	switch o := o.(type) {
	case *corev1.Node:
		return ref{nodeObject, "", o.Name}
	case *corev1.Pod:
		return ref{podObject, "", string(o.UID)}
	case *provreq.ProvisioningRequest:
		return ref{requestObject, "", string(o.UID)}
	case *corev1.PodTemplate:
		return ref{templateObject, o.Namespace, o.Name}
	case *v1alpha1.NodeGroup:
		return ref{groupObject, "", o.Name}
	case *appsv1.DaemonSet:
		return ref{daemonSetObject, "", string(o.UID)}
	case *v1alpha1.CapacityPolicy:
		return ref{policyObject, "", o.Name}
	case *corev1.Namespace:
		return ref{namespaceObject, "", o.Name}
	case *resourcev1.ResourceSlice:
		return ref{sliceObject, "", o.Name}
	case *resourcev1.ResourceClaim:
		return ref{claimObject, o.Namespace, o.Name}
	case *resourcev1.DeviceClass, *resourcev1.DeviceTaintRule:
		return ref{kind: classObject}
	default:
		return ref{kind: referredObject}
	}
}

// set stores an object, unless it is old.
func (m *Model) set(o metav1.Object) effect {
	now := m.clock.Now()
	switch o := o.(type) {
	case *corev1.Node:
		return m.setNode(o, now)
	case *corev1.Pod:
		return m.setPod(o, now)
	case *provreq.ProvisioningRequest:
		return m.setRequest(o, now)
	case *corev1.PodTemplate:
		return effectOf(objects.Put(m.specs.templates, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, o))
	case *v1alpha1.NodeGroup:
		m.distinguish(labelsOf(o))
		return m.groups.set(o)
	case *appsv1.DaemonSet:
		return m.groups.setDaemonSet(o)
	case *v1alpha1.CapacityPolicy:
		return m.policies.set(o)
	case *corev1.Namespace:
		return m.policies.setNamespace(o)
	case *resourcev1.ResourceSlice:
		return m.claimable.setSlice(o)
	case *resourcev1.ResourceClaim:
		return m.setClaim(o)
	case *resourcev1.DeviceClass:
		return m.setClass(o, false)
	case *resourcev1.DeviceTaintRule:
		return m.claimable.setRule(o, false)
	default:
		return effectOf(m.objects.Set(o))
	}
}

func (m *Model) remove(o metav1.Object) effect {
	now := m.clock.Now()
	switch o := o.(type) {
	case *corev1.Node:
		m.machines.leave(o.Name, m.groups.listed, now)
		return m.nodes.remove(o.Name)
	case *corev1.Pod:
		old := m.nodes.pods[o.UID]
		if old == nil {
			return unchanged
		}
		m.consumers.Set(o.UID, old, nil, now)
		m.nodes.removePod(o.UID, now)
		return changed
	case *provreq.ProvisioningRequest:
		m.consumers.Ended[state.ConsumerKey{Namespace: o.Namespace, Name: o.Name}.Booking()] = now
		delete(m.losses, o.UID)
		return m.requests.remove(o.UID, m.machines.bought.Of(o.UID), now)
	case *corev1.PodTemplate:
		return removed(m.specs.templates, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	case *v1alpha1.NodeGroup:
		return m.groups.remove(o.Name)
	case *appsv1.DaemonSet:
		return m.groups.removeDaemonSet(o.UID)
	case *v1alpha1.CapacityPolicy:
		return m.policies.remove(o.Name)
	case *corev1.Namespace:
		return m.policies.removeNamespace(o.Name)
	case *resourcev1.ResourceSlice:
		return m.claimable.removeSlice(o.Name)
	case *resourcev1.ResourceClaim:
		return m.claimable.removeClaim(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	case *resourcev1.DeviceClass:
		return m.setClass(o, true)
	case *resourcev1.DeviceTaintRule:
		return m.claimable.setRule(o, true)
	default:
		return effectOf(m.objects.Remove(o))
	}
}

func (m *Model) setNode(o *corev1.Node, now time.Time) effect {
	if uid, gone := m.nodes.gone[o.Name]; gone && uid == o.UID {
		return unchanged
	}
	delete(m.nodes.gone, o.Name)
	e := m.nodes.put(o, now)
	if e != unchanged {
		m.machines.setNode(o.Name, o, m.groups.listed)
	}
	return e
}

func (m *Model) setPod(o *corev1.Pod, now time.Time) effect {
	old := m.nodes.pods[o.UID]
	if old != nil && !objects.Newer(o, old.Version) {
		return unchanged
	}
	p := state.ReadPod(o)
	m.consumers.Set(o.UID, old, p, now)
	if name := m.nodes.setPod(o.UID, p, state.EndOf(o), now); name != "" {
		m.mark(ref{kind: keptRoom, name: name})
	}
	return changed
}

// setClaim stores a claim and charges its devices to its pods.
func (m *Model) setClaim(o *resourcev1.ResourceClaim) effect {
	e := m.claimable.setClaim(o)
	if e == unchanged {
		return e
	}
	for _, uid := range podsOf(o) {
		m.nodes.claim(uid, m.claimable.chargeOf(uid))
	}
	return e
}

// setClass stores a DeviceClass, or removes a deleted one. Devices are counted by the resource that their class names, so pods with
// claims are counted again.
func (m *Model) setClass(o *resourcev1.DeviceClass, deleted bool) effect {
	e := m.claimable.setClass(o, deleted)
	if e != unchanged {
		for uid := range m.claimable.charges {
			m.nodes.claim(uid, m.claimable.chargeOf(uid))
		}
	}
	return e
}

// lookup returns the objects that pod templates refer to. It is valid until the next change.
func (m *Model) lookup() fit.Objects { return m.claimable.lookup(m.objects.Lookup()) }

func (m *Model) setRequest(o *provreq.ProvisioningRequest, now time.Time) effect {
	key := state.ConsumerKey{Namespace: o.Namespace, Name: o.Name}
	if uid, gone := m.requests.gone[key]; gone && uid == o.UID {
		return unchanged
	}
	delete(m.requests.gone, key)
	known := m.requests.byUID[o.UID] != nil
	if transaction.LetsGo(o) || !m.served.Serves(o) {
		if !known {
			return unchanged
		}
		return m.remove(o)
	}
	e := m.requests.set(o, now)
	if !known {
		m.recall(m.requests.byUID[o.UID], now)
	}
	return e
}

// recallable is how long a failure may be recorded in a request and not in the status of its group.
const recallable = time.Minute

// recall records the outcome of the last failure of a request that is new here: the process that saw the failure may have ended before it
// wrote the status of the group.
func (m *Model) recall(e *request, now time.Time) {
	f := e.attempt.Failure
	if f == nil || f.Class == "" || now.Sub(f.Time) > recallable {
		return
	}
	l := f.Outcome(e.object.Namespace + "/" + e.object.Name)
	m.groups.learn(l.Group, l.LaunchAttempt)
	m.mark(ref{kind: launchOutcome, name: l.Group})
}

// Learn records the outcome of a launch. It affects plans at once.
func (m *Model) Learn(group string, a v1alpha1.LaunchAttempt) {
	m.change(ref{kind: launchOutcome, name: group}, func() effect { return m.groups.learn(group, a) })
}

// SetMachine stores a state of a machine. An old state changes nothing.
func (m *Model) SetMachine(c cloudprovider.Machine) {
	key := machineKey{c.Group, c.Name}
	m.change(ref{machineObject, c.Group, c.Name}, func() effect { return m.machines.set(c, m.groups.listed(key), m.clock.Now()) })
}

// MachineLaunched stores a machine that a launch has returned. The watch of its cloud has reported it already, or will soon.
func (m *Model) MachineLaunched(c cloudprovider.Machine) {
	key := machineKey{c.Group, c.Name}
	m.change(ref{machineObject, c.Group, c.Name}, func() effect { return m.machines.answered(c, m.groups.listed(key), m.clock.Now()) })
}

// MachineTerminated records that a machine is being terminated, unless it is gone already.
func (m *Model) MachineTerminated(c cloudprovider.Machine) {
	key := machineKey{c.Group, c.Name}
	m.change(ref{machineObject, c.Group, c.Name}, func() effect { return m.machines.take(key, m.groups.listed(key)) })
}

// listed reports whether the NodeGroup of a machine exists.
func (gs *groups) listed(key machineKey) bool { return gs.objects[key.group] != nil }

// SetLeaving records that a node is about to be terminated, before its cordon is observed.
func (m *Model) SetLeaving(name string, leaving bool) {
	m.change(ref{kind: scaleDown, name: name}, func() effect { return m.nodes.leave(name, leaving) })
}

// LossReported records that the loss of these nodes was reported to the request. held reports whether its gang is not stopped for them for
// now.
func (m *Model) LossReported(uid types.UID, lost []transaction.LostNode, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.losses.Reported(uid, lost, held)
}

// Distinguish adds labels by which plans distinguish nodes, since pods select on them. Without the label, a plan that selects on it visits
// every node.
func (m *Model) Distinguish(labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.distinguish(labels)
}

func (m *Model) distinguish(labels []string) {
	if m.nodes.distinguish(labels) {
		m.dirty.mark(ref{kind: upcomingBaseView}, span{})
		m.dirty.mark(ref{kind: snapshotView}, span{})
	}
}
