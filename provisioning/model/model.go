// Package model is the picture of the cluster that decisions are made from. It
// is fed by informers, by the clouds' machines and by what Muster itself has
// written but no informer has told of yet: the newest version of an object wins,
// whoever brings it. It hands out snapshots.
package model

import (
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// Model is safe for use by many goroutines.
type Model struct {
	clock   clock.PassiveClock
	classes Classes

	// deciding serialises decisions, see Decide.
	deciding sync.Mutex

	mu         sync.Mutex
	nodes      map[string]*node
	pods       map[types.UID]*pod
	requests   map[types.UID]*provreq.ProvisioningRequest
	templates  map[types.NamespacedName]*corev1.PodTemplate
	groups     map[string]*v1alpha1.NodeGroup
	policies   map[string]*v1alpha1.CapacityPolicy
	daemonSets map[types.UID]*appsv1.DaemonSet
	machines   map[machineKey]cloudprovider.Machine
	assumed    map[types.UID]Assumption
	leaving    map[string]bool
	// learned outcomes by group, oldest first, until its status has them.
	learned map[string][]v1alpha1.LaunchAttempt
	// consumers counts the unfinished pods that consume a request, bound or not.
	consumers map[consumerKey]int
	// ended is when the last consumer, or the request, of a booking key went. What
	// went before began is not remembered.
	ended map[consumerKey]time.Time
	began time.Time

	snapshot    *provisioning.Snapshot
	subscribers []chan struct{}
}

type machineKey struct{ group, name string }

// consumerKey is a request as pods name it, or its booking key.
type consumerKey struct{ namespace, name string }

// keyOf is the booking key of a request.
func keyOf(k consumerKey) consumerKey {
	return consumerKey{k.namespace, provisioning.BookingKey(k.name)}
}

// New returns an empty model of the classes that are served.
func New(c clock.PassiveClock, classes Classes) *Model {
	return &Model{
		clock:      c,
		classes:    classes,
		nodes:      map[string]*node{},
		pods:       map[types.UID]*pod{},
		requests:   map[types.UID]*provreq.ProvisioningRequest{},
		templates:  map[types.NamespacedName]*corev1.PodTemplate{},
		groups:     map[string]*v1alpha1.NodeGroup{},
		policies:   map[string]*v1alpha1.CapacityPolicy{},
		daemonSets: map[types.UID]*appsv1.DaemonSet{},
		machines:   map[machineKey]cloudprovider.Machine{},
		assumed:    map[types.UID]Assumption{},
		leaving:    map[string]bool{},
		learned:    map[string][]v1alpha1.LaunchAttempt{},
		consumers:  map[consumerKey]int{},
		ended:      map[consumerKey]time.Time{},
		began:      c.Now(),
	}
}

// Changed returns a channel that gets a value soon after each change; changes
// that nobody has read of yet are told as one. Each call is a subscription of
// its own.
func (m *Model) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	m.subscribers = append(m.subscribers, c)
	return c
}

// update runs f under the lock, then tells subscribers if f reports a change.
func (m *Model) update(f func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !f() {
		return
	}
	m.snapshot = nil
	for _, c := range m.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Decide runs f alone among all deciders: what f decides it must record with
// Assume or SetLeaving before it returns, so that the next decider sees it.
func (m *Model) Decide(f func()) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	f()
}

// Assumption is what has been decided for a request and is being written.
type Assumption struct {
	Bookings []provisioning.Placement
	Attempt  provisioning.Attempt
}

// Assume counts what is decided for a request until Settle.
func (m *Model) Assume(uid types.UID, a Assumption) {
	m.update(func() bool { m.assumed[uid] = a; return true })
}

// Settle forgets the assumption: its writes have been observed, or have failed.
func (m *Model) Settle(uid types.UID) {
	m.update(func() bool { delete(m.assumed, uid); return true })
}

// SetLeaving says that a node is about to be given back, before its cordon is seen.
func (m *Model) SetLeaving(name string, leaving bool) {
	m.update(func() bool {
		if leaving {
			m.leaving[name] = true
		} else {
			delete(m.leaving, name)
		}
		return true
	})
}

// newer says whether the version of an object is at least as new as another's.
func newer(obj, than metav1.Object) bool {
	c, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), than.GetResourceVersion())
	return err != nil || c >= 0
}

// put stores obj under key unless the model has a newer one.
func put[K comparable, T metav1.Object](into map[K]T, key K, obj T) bool {
	if old, ok := into[key]; ok && !newer(obj, old) {
		return false
	}
	into[key] = obj
	return true
}

// SetRequest tells of a ProvisioningRequest. The caller does not change it later;
// that goes for all objects that the model is told of.
func (m *Model) SetRequest(r *provreq.ProvisioningRequest) {
	if !m.classes.Serves(r) {
		return
	}
	m.update(func() bool { return put(m.requests, r.UID, r) })
}

// RequestWritten tells of a request that Muster has just written. Unlike
// SetRequest it does not bring back one that has been deleted meanwhile.
func (m *Model) RequestWritten(r *provreq.ProvisioningRequest) {
	m.update(func() bool {
		_, exists := m.requests[r.UID]
		return exists && put(m.requests, r.UID, r)
	})
}

// DeleteRequest tells that a request is gone.
func (m *Model) DeleteRequest(r *provreq.ProvisioningRequest) {
	m.update(func() bool {
		delete(m.requests, r.UID)
		m.ended[keyOf(consumerKey{r.Namespace, r.Name})] = m.now()
		return true
	})
}

// SetTemplate tells of a PodTemplate.
func (m *Model) SetTemplate(t *corev1.PodTemplate) {
	m.update(func() bool { return put(m.templates, types.NamespacedName{Namespace: t.Namespace, Name: t.Name}, t) })
}

// DeleteTemplate tells that a PodTemplate is gone.
func (m *Model) DeleteTemplate(t *corev1.PodTemplate) {
	m.update(func() bool {
		delete(m.templates, types.NamespacedName{Namespace: t.Namespace, Name: t.Name})
		return true
	})
}

// SetGroup tells of a NodeGroup.
func (m *Model) SetGroup(g *v1alpha1.NodeGroup) {
	m.update(func() bool { return put(m.groups, g.Name, g) })
}

// GroupWritten tells of a group whose status Muster has just written.
func (m *Model) GroupWritten(g *v1alpha1.NodeGroup) {
	m.update(func() bool {
		_, exists := m.groups[g.Name]
		return exists && put(m.groups, g.Name, g)
	})
}

// DeleteGroup tells that a NodeGroup is gone.
func (m *Model) DeleteGroup(name string) {
	m.update(func() bool { delete(m.groups, name); return true })
}

// Learn tells of the outcome of a launch. Plans see it at once.
func (m *Model) Learn(group string, a v1alpha1.LaunchAttempt) {
	m.update(func() bool { m.learned[group] = append(m.learned[group], a); return true })
}

// Learned returns the status of the group with all that has been learned in it.
func (m *Model) Learned(group string) v1alpha1.NodeGroupStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.learnedStatus(group)
}

func (m *Model) learnedStatus(group string) v1alpha1.NodeGroupStatus {
	g := m.groups[group]
	if g == nil {
		return v1alpha1.NodeGroupStatus{}
	}
	status := *g.Status.DeepCopy()
	m.learned[group] = slices.DeleteFunc(m.learned[group], func(a v1alpha1.LaunchAttempt) bool {
		return nodegroups.Knows(status, a)
	})
	for _, a := range m.learned[group] {
		status = nodegroups.Learn(status, a)
	}
	return status
}

// SetPolicy tells of a CapacityPolicy.
func (m *Model) SetPolicy(p *v1alpha1.CapacityPolicy) {
	m.update(func() bool { return put(m.policies, p.Name, p) })
}

// DeletePolicy tells that a CapacityPolicy is gone.
func (m *Model) DeletePolicy(name string) {
	m.update(func() bool { delete(m.policies, name); return true })
}

// SetDaemonSet tells of a DaemonSet.
func (m *Model) SetDaemonSet(d *appsv1.DaemonSet) {
	m.update(func() bool { return put(m.daemonSets, d.UID, d) })
}

// DeleteDaemonSet tells that a DaemonSet is gone.
func (m *Model) DeleteDaemonSet(uid types.UID) {
	m.update(func() bool { delete(m.daemonSets, uid); return true })
}

// SetMachine tells of a machine. States only grow, so old news changes nothing.
func (m *Model) SetMachine(c cloudprovider.Machine) {
	m.update(func() bool {
		key := machineKey{c.Group, c.Name}
		old, known := m.machines[key]
		switch {
		case c.State == cloudprovider.Gone:
			delete(m.machines, key)
			return known
		case known && c.State <= old.State:
			return false
		}
		m.machines[key] = c
		return true
	})
}

// MachineTaken tells that a machine is being deleted, unless it is gone already.
func (m *Model) MachineTaken(c cloudprovider.Machine) {
	m.update(func() bool {
		key := machineKey{c.Group, c.Name}
		known, ok := m.machines[key]
		if ok {
			known.State = cloudprovider.Terminated
			m.machines[key] = known
		}
		return ok
	})
}

// now is the model's time.
func (m *Model) now() time.Time { return m.clock.Now() }
