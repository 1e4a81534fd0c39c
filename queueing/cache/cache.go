package cache

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/usage"
	"github.com/muster-dev/muster/queueing/workload"
)

// Cache is all that queueing decides on, kept up to date object by object, so that a
// cycle costs what has changed and not what is there. The objects in it are shared and
// never changed. It is not safe for concurrent use.
//
// What a cycle decides takes effect in the Cache at once: quota that it gives out is
// gone. Settle says what became of each decision.
type Cache struct {
	Config config.Config
	// withoutProvisioner: nothing in the cluster serves requests for machines.
	withoutProvisioner bool

	ClusterQueues map[string]*kueue.ClusterQueue
	Cohorts       map[kueue.CohortReference]*kueue.Cohort
	Flavors       map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	Classes       map[string]*kueue.WorkloadPriorityClass
	Checks        map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck
	Policies      map[string]*v1alpha1.CapacityPolicy
	RequestConfig map[string]*kueue.ProvisioningRequestConfig
	Namespaces    map[string]*Namespace
	Runtimes      map[string]*nodev1.RuntimeClass
	LocalQueues   map[types.NamespacedName]*LocalQueue
	Workloads     map[types.UID]*Workload
	// Replacements are the slices that have quota in the place of another Workload, by
	// that one's name.
	Replacements map[types.NamespacedName]*Workload
	// Requests are the ProvisioningRequests by the UID of the Workload that controls
	// them, in no order.
	Requests map[types.UID][]*autoscaling.ProvisioningRequest

	// Queues and trees are worked out of the objects above; outdated says that they
	// have to be again.
	Queues map[kueue.ClusterQueueReference]*ClusterQueue
	Order  []*ClusterQueue
	Trees  []*Tree
	// cohortNodes are those of all cohorts that somebody names.
	cohortNodes map[kueue.CohortReference]*quota.Node
	Outdated    bool

	// Sharing are the rules of admission fair sharing, nil without it; sampleAt is
	// when the next sample is taken, zero while no LocalQueue uses anything.
	Sharing  *usage.Rules
	SampleAt time.Time

	// Due are the Workloads to look at in the next cycle.
	Due    map[types.UID]*Workload
	Timers timers
	// Unadmitted hold quota and wait for their checks.
	Unadmitted map[types.UID]*Workload
	// PodsNotReady hold quota, and their pods are not ready.
	PodsNotReady map[types.UID]*Workload
	// selected counts the Workloads and flavors that select on a node label.
	selected map[string]int
	// Dirty are the objects whose status may have changed since the last report.
	Dirty dirtyStatuses
}

// New returns a Cache without objects.
func New(c config.Config) *Cache {
	s := &Cache{
		Config: c, Outdated: true,
		ClusterQueues: map[string]*kueue.ClusterQueue{},
		Cohorts:       map[kueue.CohortReference]*kueue.Cohort{},
		Flavors:       map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{},
		Classes:       map[string]*kueue.WorkloadPriorityClass{},
		Checks:        map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck{},
		Policies:      map[string]*v1alpha1.CapacityPolicy{},
		RequestConfig: map[string]*kueue.ProvisioningRequestConfig{},
		Namespaces:    map[string]*Namespace{},
		Runtimes:      map[string]*nodev1.RuntimeClass{},
		LocalQueues:   map[types.NamespacedName]*LocalQueue{},
		Workloads:     map[types.UID]*Workload{},
		Replacements:  map[types.NamespacedName]*Workload{},
		Requests:      map[types.UID][]*autoscaling.ProvisioningRequest{},
		Queues:        map[kueue.ClusterQueueReference]*ClusterQueue{},
		Due:           map[types.UID]*Workload{},
		Unadmitted:    map[types.UID]*Workload{},
		PodsNotReady:  map[types.UID]*Workload{},
		selected:      map[string]int{},
		Dirty:         newDirtyStatuses(),
	}
	if c.AdmissionFairSharing != nil {
		s.Sharing = new(usage.RulesFrom(c.AdmissionFairSharing))
	}
	return s
}

// WithoutProvisioner says that nothing in the cluster serves requests for machines:
// capacity checks are inactive.
func (s *Cache) WithoutProvisioner() { s.withoutProvisioner = true }

// Set takes in an object as it is now. Of kinds that queueing does not know it
// keeps nothing.
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
			lq = &LocalQueue{counts: NewCounts(), consumption: consumptionOf(o)}
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
		s.Selects(FlavorKeys(have), -1)
		s.Selects(FlavorKeys(o), +1)
		s.Flavors[kueue.ResourceFlavorReference(o.Name)] = o
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
		ns := s.Namespace(o.Name)
		if !maps.Equal(ns.Labels, o.Labels) {
			s.Outdated = true
		}
		ns.Labels = o.Labels
	case *corev1.ResourceQuota:
		s.setQuota(o)
	case *corev1.LimitRange:
		s.setRange(o)
	case *nodev1.RuntimeClass:
		s.setRuntime(o)
	case *kueue.WorkloadPriorityClass:
		s.setClass(o)
	}
}

// Delete takes out an object that is gone.
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
	case *kueue.WorkloadPriorityClass:
		delete(s.Classes, o.Name)
		return
	case *kueue.ClusterQueue:
		delete(s.ClusterQueues, o.Name)
	case *kueue.LocalQueue:
		delete(s.LocalQueues, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	case *kueue.Cohort:
		delete(s.Cohorts, kueue.CohortReference(o.Name))
	case *kueue.ResourceFlavor:
		s.Selects(FlavorKeys(s.Flavors[kueue.ResourceFlavorReference(o.Name)]), -1)
		delete(s.Flavors, kueue.ResourceFlavorReference(o.Name))
	case *kueue.AdmissionCheck:
		delete(s.Checks, kueue.AdmissionCheckReference(o.Name))
	case *v1alpha1.CapacityPolicy:
		delete(s.Policies, o.Name)
	case *kueue.ProvisioningRequestConfig:
		delete(s.RequestConfig, o.Name)
	case *corev1.Namespace:
		delete(s.Namespaces, o.Name)
	default:
		return
	}
	s.Outdated = true
}

// known is the object of a name, or a nil interface.
func existing[K comparable, T metav1.Object](objects map[K]T, name K) metav1.Object {
	if o, ok := objects[name]; ok {
		return o
	}
	return nil
}

// replaced notes that an object takes the place of another one: a change of more
// than its status means that all has to be worked out again.
func (s *Cache) replaced(now, before metav1.Object) {
	if before == nil || before.GetUID() != now.GetUID() || before.GetGeneration() != now.GetGeneration() ||
		before.GetDeletionTimestamp().IsZero() != now.GetDeletionTimestamp().IsZero() || !maps.Equal(before.GetAnnotations(), now.GetAnnotations()) {
		s.Outdated = true
	}
}

// RequeueForCapacity has the Workloads that wait for machines judged again in the next
// cycle.
func (s *Cache) RequeueForCapacity() {
	for _, q := range s.Order {
		if q.WantsMachines {
			q.RequeueInadmissible()
		}
	}
}

// WantsCapacity says that some Workload waits for machines, so that a change of
// them matters.
func (s *Cache) WantsCapacity() bool {
	return slices.ContainsFunc(s.Order, func(q *ClusterQueue) bool { return q.WantsMachines })
}

// WakeAt is the earliest time at which time alone may change something; zero if
// only events can.
func (s *Cache) WakeAt() time.Time {
	at := workload.Earliest(s.Timers.next(), s.SampleAt)
	for _, t := range s.Trees {
		at = workload.Earliest(at, t.RejudgeAt)
	}
	return at
}

// localQueueKey is that of the LocalQueue that a Workload names.
func localQueueKey(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
}

func (s *Cache) LocalQueueOf(w *Workload) *kueue.LocalQueue {
	if lq := s.LocalQueues[localQueueKey(w.Object)]; lq != nil {
		return lq.Object
	}
	return nil
}
