package main

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/queueing"
)

// picture is a cluster as Muster would see it, and what Muster would do now.
type picture struct {
	now      time.Time
	served   model.Server
	queues   *queueing.State
	machines *model.Model
	snapshot *provisioning.Snapshot
	// verdicts of one cycle, by the Workload.
	verdicts map[types.UID]queueing.Verdict
	// workloads and requests in the order in which they were read; groups by name.
	workloads     []*kueue.Workload
	requests      []*provreq.ProvisioningRequest
	clusterQueues []*kueue.ClusterQueue
	groups        map[string]*v1alpha1.NodeGroup
	// missing rights: with some missing nothing can be decided here.
	missing []right
}

// newPicture decides what Muster would do next with what was read.
func newPicture(c clock.PassiveClock, s settings, r *reading) *picture {
	p := &picture{
		now: c.Now(), served: s.served, missing: r.missing, groups: map[string]*v1alpha1.NodeGroup{}, verdicts: map[types.UID]queueing.Verdict{},
		queues: queueing.New(s.queues, provisioning.Plan), machines: model.New(c, s.served),
	}
	// Workloads go before the queues: a State counts nothing in a queue that no cycle
	// has seen.
	for _, workloads := range []bool{true, false} {
		for _, o := range r.objects {
			if _, ok := o.(*kueue.Workload); ok == workloads {
				p.queues.Set(o)
				p.take(o)
			}
		}
	}
	alone := r.absent[schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "capacitypolicies"}]
	if alone {
		p.queues.Alone()
	}
	// Else plans that select on them would look at every node.
	p.machines.Distinguish(p.queues.SelectedKeys()...)
	p.snapshot = p.machines.Snapshot(p.now)
	p.snapshot.Groups = slices.Clone(p.snapshot.Groups)
	for i := range p.snapshot.Groups {
		// The clouds are not asked, so what Muster has counted there is believed.
		g := &p.snapshot.Groups[i]
		g.Machines = max(g.Machines, int(p.groups[g.Name].Status.Machines))
	}
	if len(p.missing) > 0 {
		return p
	}
	if !alone {
		p.queues.SetCapacity(p.snapshot)
	}
	for _, v := range p.queues.Cycle(p.now) {
		p.verdicts[v.Workload.Object.UID] = v
	}
	return p
}

// take tells the machines' side of an object.
func (p *picture) take(object metav1.Object) {
	m := p.machines
	switch o := object.(type) {
	case *kueue.Workload:
		p.workloads = append(p.workloads, o)
	case *kueue.ClusterQueue:
		p.clusterQueues = append(p.clusterQueues, o)
	case *v1alpha1.NodeGroup:
		p.groups[o.Name] = o
		m.SetGroup(o)
	case *provreq.ProvisioningRequest:
		p.requests = append(p.requests, o)
		m.SetRequest(o)
	case *v1alpha1.CapacityPolicy:
		m.SetPolicy(o)
	case *corev1.Namespace:
		m.SetNamespace(o)
	case *corev1.Node:
		m.SetNode(o)
	case *corev1.Pod:
		m.SetPod(o)
	case *corev1.PodTemplate:
		m.SetTemplate(o)
	case *corev1.PersistentVolumeClaim:
		m.SetClaim(o)
	case *corev1.PersistentVolume:
		m.SetVolume(o)
	case *appsv1.DaemonSet:
		m.SetDaemonSet(o)
	case *storagev1.StorageClass:
		m.SetStorageClass(o)
	case *storagev1.CSIDriver:
		m.SetCSIDriver(o)
	case *storagev1.CSINode:
		m.SetCSINode(o)
	case *nodev1.RuntimeClass:
		m.SetRuntimeClass(o)
	case *schedulingv1.PriorityClass:
		m.SetPriorityClass(o)
	}
}

// knowsQueues says that the queues and all Workloads are there.
func (p *picture) knowsQueues() bool {
	return !slices.ContainsFunc(p.missing, func(m right) bool {
		return slices.ContainsFunc(queueKinds, func(k kind) bool { return k.resource.String() == m.Resource })
	})
}

// decides says that all is there that a decision needs.
func (p *picture) decides() bool { return len(p.missing) == 0 }

// workloadOf is the Workload of a job: of several, as an elastic Job has, the one that
// is not finished and came last. Nil if there is none.
func (p *picture) workloadOf(owner types.UID) (out *kueue.Workload) {
	for _, w := range p.workloads {
		c := metav1.GetControllerOf(w)
		if c == nil || c.UID != owner {
			continue
		}
		if out == nil || queueing.IsFinished(out) && !queueing.IsFinished(w) ||
			queueing.IsFinished(out) == queueing.IsFinished(w) && out.CreationTimestamp.Before(&w.CreationTimestamp) {
			out = w
		}
	}
	return out
}

// requestsOf are the ProvisioningRequests of a Workload.
func (p *picture) requestsOf(w *kueue.Workload) (out []*provreq.ProvisioningRequest) {
	for _, r := range p.requests {
		if c := metav1.GetControllerOf(r); c != nil && c.UID == w.UID {
			out = append(out, r)
		}
	}
	return out
}

// next is when a Workload is looked at again though nothing happens; zero is never.
func (p *picture) next(w *kueue.Workload) time.Time {
	if state := w.Status.RequeueState; state != nil && state.RequeueAt != nil && p.now.Before(state.RequeueAt.Time) {
		return state.RequeueAt.Time
	}
	_, _, next := p.queues.Told(w.UID)
	return next
}
