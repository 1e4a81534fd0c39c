package cache

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/workload"
)

// Set adds or updates an object. It ignores other kinds.
func (s *Cache) Set(object metav1.Object) {
	switch o := object.(type) {
	case *kueue.Workload:
		s.setWorkload(o)
	case *autoscaling.ProvisioningRequest:
		s.setRequest(o)
	case *kueue.ClusterQueue:
		s.replaced(o, existing(s.ClusterQueues, o.Name))
		s.ClusterQueues[o.Name] = o
		if q := s.Queues[kueue.ClusterQueueReference(o.Name)]; q != nil {
			q.Object = o
		}
	case *kueue.LocalQueue:
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		lq := s.LocalQueues[key]
		if lq == nil {
			lq = &LocalQueue{counts: newCounts(), consumption: consumptionOf(o)}
			s.LocalQueues[key] = lq
			s.Outdated = true
		} else {
			s.replaced(o, lq.Object)
		}
		lq.Object = o
	case *kueue.Cohort:
		s.replaced(o, existing(s.Cohorts, kueue.CohortReference(o.Name)))
		s.Cohorts[kueue.CohortReference(o.Name)] = o
	case *kueue.ResourceFlavor:
		have := s.Flavors[kueue.ResourceFlavorReference(o.Name)]
		s.replaced(o, existing(s.Flavors, kueue.ResourceFlavorReference(o.Name)))
		s.selects(flavorKeys(have), -1)
		s.selects(flavorKeys(o), +1)
		s.Flavors[kueue.ResourceFlavorReference(o.Name)] = o
	case *kueue.Topology:
		s.replaced(o, existing(s.Topologies, kueue.TopologyReference(o.Name)))
		s.Topologies[kueue.TopologyReference(o.Name)] = o
	case *kueue.AdmissionCheck:
		have := s.Checks[kueue.AdmissionCheckReference(o.Name)]
		if have == nil || have.Generation != o.Generation || !equality.Semantic.DeepEqual(have.Status, o.Status) {
			s.Outdated = true
		}
		s.Checks[kueue.AdmissionCheckReference(o.Name)] = o
	case *v1alpha1.CapacityPolicy:
		s.replaced(o, existing(s.Policies, o.Name))
		s.Policies[o.Name] = o
	case *kueue.ProvisioningRequestConfig:
		s.replaced(o, existing(s.RequestConfig, o.Name))
		s.RequestConfig[o.Name] = o
	case *corev1.Namespace:
		ns := s.Namespaces.At(o.Name)
		if !maps.Equal(ns.Labels, o.Labels) {
			s.Outdated = true
		}
		ns.Labels = o.Labels
	case *corev1.Node:
		s.Nodes.SetNode(o)
	case *corev1.Pod:
		s.setPod(o)
	case *corev1.ResourceQuota:
		s.setQuota(o)
	case *corev1.LimitRange:
		s.setRange(o)
	case *nodev1.RuntimeClass:
		s.setRuntime(o)
	case *kueue.WorkloadPriorityClass:
		s.setClass(o)
	case *resourcev1.DeviceClass:
		s.setDeviceClass(o, false)
	case *resourcev1.ResourceClaimTemplate:
		s.setClaimTemplate(o, false)
	case *resourcev1.ResourceSlice:
		s.setSlice(o, false)
	case *v1alpha1.NodeGroup:
		s.setGroup(o, false)
	}
}

// Delete removes a deleted object.
func (s *Cache) Delete(object metav1.Object) {
	switch o := object.(type) {
	case *kueue.Workload:
		if w := s.Workloads[o.UID]; w != nil {
			s.forget(w)
		}
		return
	case *autoscaling.ProvisioningRequest:
		s.deleteRequest(o)
		return
	case *corev1.ResourceQuota:
		s.deleteQuota(o)
		return
	case *corev1.LimitRange:
		s.deleteRange(o)
		return
	case *nodev1.RuntimeClass:
		s.deleteRuntime(o)
		return
	case *resourcev1.DeviceClass:
		s.setDeviceClass(o, true)
		return
	case *resourcev1.ResourceClaimTemplate:
		s.setClaimTemplate(o, true)
		return
	case *resourcev1.ResourceSlice:
		s.setSlice(o, true)
		return
	case *v1alpha1.NodeGroup:
		s.setGroup(o, true)
		return
	case *kueue.WorkloadPriorityClass:
		delete(s.Classes, o.Name)
		return
	case *corev1.Node:
		s.Nodes.DeleteNode(o.Name)
		return
	case *corev1.Pod:
		s.Nodes.DeletePod(o.UID)
		return
	case *kueue.ClusterQueue:
		delete(s.ClusterQueues, o.Name)
	case *kueue.LocalQueue:
		delete(s.LocalQueues, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	case *kueue.Cohort:
		delete(s.Cohorts, kueue.CohortReference(o.Name))
	case *kueue.ResourceFlavor:
		s.selects(flavorKeys(s.Flavors[kueue.ResourceFlavorReference(o.Name)]), -1)
		delete(s.Flavors, kueue.ResourceFlavorReference(o.Name))
	case *kueue.Topology:
		delete(s.Topologies, kueue.TopologyReference(o.Name))
	case *kueue.AdmissionCheck:
		delete(s.Checks, kueue.AdmissionCheckReference(o.Name))
	case *v1alpha1.CapacityPolicy:
		delete(s.Policies, o.Name)
	case *kueue.ProvisioningRequestConfig:
		delete(s.RequestConfig, o.Name)
	case *corev1.Namespace:
		s.Namespaces.At(o.Name).Labels = nil
		s.Namespaces.forgetEmpty(o.Name)
	default:
		return
	}
	s.Outdated = true
}

// existing returns the object of a name, or a nil interface.
func existing[K comparable, T metav1.Object](objects map[K]T, name K) metav1.Object {
	if o, ok := objects[name]; ok {
		return o
	}
	return nil
}

// replaced marks the cache outdated if more than the status of an object has changed.
func (s *Cache) replaced(now, before metav1.Object) {
	if before == nil || before.GetUID() != now.GetUID() || before.GetGeneration() != now.GetGeneration() ||
		before.GetDeletionTimestamp().IsZero() != now.GetDeletionTimestamp().IsZero() ||
		!maps.Equal(before.GetAnnotations(), now.GetAnnotations()) {
		s.Outdated = true
	}
}

// RequeueForCapacity evaluates the Workloads that wait for machines again in the next cycle.
func (s *Cache) RequeueForCapacity() {
	for _, q := range s.Order {
		if q.WaitsForCapacity {
			q.RequeueInadmissible(s.Cycles + 1)
		}
	}
}

// RequeueForNodes evaluates the Workloads again that did not fit in the domains of a Topology, if nodes have more free
// capacity now. It also evaluates those that wait for booked nodes, before they start or to replace lost ones.
func (s *Cache) RequeueForNodes() {
	if s.Nodes.NodeChanged() {
		for uid, w := range s.Unadmitted {
			if workload.AwaitsTopology(w.Object.Status.Admission) {
				s.Due[uid] = w
			}
		}
		maps.Copy(s.Due, s.Unhealthy)
	}
	if suspects := s.Nodes.SuspectWorkloads(); len(suspects) > 0 {
		for uid, w := range s.Workloads {
			if slices.Contains(suspects, workload.KeyOf(w.Object)) {
				s.Due[uid] = w
			}
		}
	}
	if s.Nodes.PodEnded() {
		for _, w := range s.Reclaimed {
			s.Nodes.Move(w, s.topologyUsageOf(w))
		}
	}
	if !s.Nodes.CapacityFreed() {
		return
	}
	for _, q := range s.Order {
		if q.WaitsForTopology {
			q.RequeueInadmissible(s.Cycles + 1)
		}
	}
}

// WantsCapacity reports whether a Workload waits for machines, so that a capacity change matters.
func (s *Cache) WantsCapacity() bool {
	return slices.ContainsFunc(s.Order, func(q *ClusterQueue) bool { return q.WaitsForCapacity })
}

// WakeAt returns the earliest time at which something may change without an event; zero if nothing can.
func (s *Cache) WakeAt() time.Time {
	at := workload.Earliest(workload.Earliest(s.Timers.next(), s.sampleAt), s.ResumeAt)
	for _, t := range s.Trees {
		at = workload.Earliest(at, t.RequeueAt)
	}
	return at
}

// setRequest stores a ProvisioningRequest that queueing created.
func (s *Cache) setRequest(r *autoscaling.ProvisioningRequest) {
	owner := ownerOf(r)
	if owner == "" {
		return
	}
	list := s.Requests[owner]
	if i := slices.IndexFunc(list, func(x *autoscaling.ProvisioningRequest) bool { return x.UID == r.UID }); i >= 0 {
		if !list[i].DeletionTimestamp.IsZero() && r.DeletionTimestamp.IsZero() {
			// Deleted marked it; the caller's view is older.
			return
		}
		list[i] = r
	} else {
		s.Requests[owner] = append(list, r)
	}
	s.MarkDue(owner)
}

func (s *Cache) deleteRequest(r *autoscaling.ProvisioningRequest) {
	owner := ownerOf(r)
	list := slices.DeleteFunc(s.Requests[owner], func(x *autoscaling.ProvisioningRequest) bool { return x.UID == r.UID })
	if len(list) == 0 {
		delete(s.Requests, owner)
	} else {
		s.Requests[owner] = list
	}
	s.MarkDue(owner)
}

// Deleted records that the caller has deleted a request, even if later views still show it.
func (s *Cache) Deleted(r *autoscaling.ProvisioningRequest, at time.Time) {
	marked := r.DeepCopy()
	marked.DeletionTimestamp = new(metav1.NewTime(at))
	s.setRequest(marked)
}
