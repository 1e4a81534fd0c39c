package view

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// Picture is a cluster as Muster sees it, with what Muster would do now.
type Picture struct {
	Now    time.Time
	Queues *queueing.State
	// Snapshot is the provisioner's.
	Snapshot *planner.Snapshot
	// Workloads, Requests and Pods are in the order in which they were read; Groups are by name.
	Workloads     []*kueue.Workload
	Requests      []*provreq.ProvisioningRequest
	ClusterQueues []*kueue.ClusterQueue
	Pods          []*corev1.Pod
	Groups        map[string]*v1alpha1.NodeGroup
	// Foreseen is the forecast that explanations of pending Workloads take their estimates from; nil is none.
	Foreseen *forecast.Report
	// Contexts of the caller's kubeconfig for other clusters that have not their names.
	Contexts map[string]string
	// Missing are the rights that the caller lacks; with any missing nothing is decided.
	Missing []Right

	// unread are the kinds that the caller may not even list in its namespace.
	unread map[schema.GroupResource]bool

	// delegates are the AdmissionChecks that are Ready once another cluster runs the Workload, with the names of their MultiKueueConfigs.
	delegates map[kueue.AdmissionCheckReference]string
	// namespaces that exist; none if they were not read.
	namespaces map[string]bool
	// localQueues that exist.
	localQueues map[types.NamespacedName]*kueue.LocalQueue

	served   transaction.Server
	machines *model.Model
	// verdicts of one cycle by the Workload's UID.
	verdicts map[types.UID]lifecycle.Verdict
	// hopelessOf has the answers that Picture.hopeless has found out.
	hopelessOf map[queuedClass]hopelessness
}

// New decides what Muster would do next with the objects that were read.
func New(c clock.PassiveClock, s Settings, r *Reading) *Picture {
	p := &Picture{
		Now: c.Now(), served: s.served, Missing: r.Missing, unread: r.unread, Groups: map[string]*v1alpha1.NodeGroup{},
		delegates:   map[kueue.AdmissionCheckReference]string{},
		localQueues: map[types.NamespacedName]*kueue.LocalQueue{}, namespaces: map[string]bool{},
		Queues: queueing.New(s.queues, planner.Plan), machines: model.New(c, s.served),
	}
	p.Queues.CountWith(devices.NewSelectors())
	// Workloads go before the queues: a State counts nothing in a queue that no cycle
	// has seen.
	for _, workloads := range []bool{true, false} {
		for _, o := range r.Objects {
			if _, ok := o.(*kueue.Workload); ok == workloads {
				p.Queues.Set(o)
				p.take(o)
			}
		}
	}
	alone := r.absent[schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "capacitypolicies"}]
	if alone {
		p.Queues.WithoutProvisioner()
	}
	// Without the index, plans that select on them would look at every node.
	p.Queues.Nodes.MarkKnown()
	p.machines.Distinguish(p.Queues.SelectedKeys()...)
	p.Snapshot = p.machines.Snapshot(p.Now)
	p.Snapshot.Groups = slices.Clone(p.Snapshot.Groups)
	for i := range p.Snapshot.Groups {
		// The clouds are not called: the counts that Muster recorded are taken.
		g := &p.Snapshot.Groups[i]
		g.Machines = max(g.Machines, int(p.Groups[g.Name].Status.Machines))
	}
	if len(p.Missing) > 0 {
		return p
	}
	if !alone {
		p.Queues.SetCapacity(p.Snapshot)
	}
	p.decide()
	return p
}

// decide runs a cycle; the queues stay as the cycle leaves them.
func (p *Picture) decide() {
	p.verdicts, p.hopelessOf = map[types.UID]lifecycle.Verdict{}, map[queuedClass]hopelessness{}
	for _, v := range p.Queues.Cycle(p.Now) {
		p.verdicts[v.Workload.Object.UID] = v
	}
}

// take adds an object to the provisioner's model.
func (p *Picture) take(object metav1.Object) {
	switch o := object.(type) {
	case *kueue.Workload:
		p.Workloads = append(p.Workloads, o)
	case *kueue.ClusterQueue:
		p.ClusterQueues = append(p.ClusterQueues, o)
	case *kueue.AdmissionCheck:
		if o.Spec.ControllerName == kueue.MultiKueueControllerName {
			config := ""
			if o.Spec.Parameters != nil {
				config = o.Spec.Parameters.Name
			}
			p.delegates[kueue.AdmissionCheckReference(o.Name)] = config
		}
	case *corev1.Namespace:
		p.namespaces[o.Name] = true
	case *kueue.LocalQueue:
		p.localQueues[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
	case *v1alpha1.NodeGroup:
		p.Groups[o.Name] = o
	case *provreq.ProvisioningRequest:
		p.Requests = append(p.Requests, o)
	case *corev1.Pod:
		p.Pods = append(p.Pods, o)
	}
	p.machines.Set(object)
}

// HasNamespace reports whether a namespace exists, as far as the caller may know.
func (p *Picture) HasNamespace(name string) bool { return len(p.namespaces) == 0 || p.namespaces[name] }

// KnowsQueues reports whether the queues and all Workloads were read.
func (p *Picture) KnowsQueues() bool {
	return !slices.ContainsFunc(p.Missing, func(m Right) bool {
		return slices.ContainsFunc(QueueKinds, func(k Kind) bool { return k.Resource.String() == m.Resource })
	})
}

// Decides reports whether everything that a decision needs was read.
func (p *Picture) Decides() bool { return len(p.Missing) == 0 }

// WorkloadOf returns the Workload of a job; nil if there is none. An elastic Job may have
// several: it is then the newest that is not finished.
func (p *Picture) WorkloadOf(owner types.UID) (out *kueue.Workload) {
	for _, w := range p.Workloads {
		c := metav1.GetControllerOf(w)
		if c == nil || c.UID != owner {
			continue
		}
		if out == nil || workload.IsFinished(out) && !workload.IsFinished(w) ||
			workload.IsFinished(out) == workload.IsFinished(w) && out.CreationTimestamp.Before(&w.CreationTimestamp) {
			out = w
		}
	}
	return out
}

// WorkloadFor returns the Workload of a job, or of the pods that a pod queues with; nil without.
func (p *Picture) WorkloadFor(job client.Object) *kueue.Workload {
	if w := p.WorkloadOf(job.GetUID()); w != nil {
		return w
	}
	for _, w := range p.Workloads {
		if podgroup.HasWorkload(job, w) {
			return w
		}
	}
	return nil
}

// WorkloadNamed returns the Workload of a name; nil if there is none.
func (p *Picture) WorkloadNamed(namespace, name string) *kueue.Workload {
	i := slices.IndexFunc(p.Workloads, func(w *kueue.Workload) bool { return w.Namespace == namespace && w.Name == name })
	if i < 0 {
		return nil
	}
	return p.Workloads[i]
}

// requestsOf returns the ProvisioningRequests of a Workload.
func (p *Picture) requestsOf(w *kueue.Workload) (out []*provreq.ProvisioningRequest) {
	for _, r := range p.Requests {
		if c := metav1.GetControllerOf(r); c != nil && c.UID == w.UID {
			out = append(out, r)
		}
	}
	return out
}

// holderOf returns the Workload of a ProvisioningRequest; nil if there is none.
func (p *Picture) holderOf(r *provreq.ProvisioningRequest) *kueue.Workload {
	owner := metav1.GetControllerOf(r)
	i := slices.IndexFunc(p.Workloads, func(w *kueue.Workload) bool { return owner != nil && w.UID == owner.UID })
	if i < 0 {
		return nil
	}
	return p.Workloads[i]
}

// next is when a Workload is evaluated again without an event; zero is never.
func (p *Picture) next(w *kueue.Workload) time.Time {
	if state := w.Status.RequeueState; state != nil && state.RequeueAt != nil && p.Now.Before(state.RequeueAt.Time) {
		return state.RequeueAt.Time
	}
	_, _, next := p.Queues.WaitingReason(w.UID)
	return next
}
