package queueing

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/usage"
)

// Cache is all that queueing decides on, kept up to date object by object, so that a
// cycle costs what has changed and not what is there. The objects in it are shared and
// never changed. It is not safe for concurrent use.
//
// What a cycle decides takes effect in the Cache at once: quota that it gives out is
// gone. Settle says what became of each decision.
type Cache struct {
	config config.Config
	// withoutProvisioner: nothing in the cluster serves requests for machines.
	withoutProvisioner bool

	clusterQueues map[string]*kueue.ClusterQueue
	cohorts       map[kueue.CohortReference]*kueue.Cohort
	flavors       map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	classes       map[string]*kueue.WorkloadPriorityClass
	checks        map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck
	policies      map[string]*v1alpha1.CapacityPolicy
	requestConfig map[string]*kueue.ProvisioningRequestConfig
	namespaces    map[string]*namespace
	runtimes      map[string]*nodev1.RuntimeClass
	localQueues   map[types.NamespacedName]*localQueue
	workloads     map[types.UID]*Workload
	// successors are the slices that have quota in the place of another Workload, by
	// that one's name.
	successors map[types.NamespacedName]*Workload
	// requests are the ProvisioningRequests by the UID of the Workload that controls
	// them, in no order.
	requests map[types.UID][]*autoscaling.ProvisioningRequest

	// queues and trees are worked out of the objects above; outdated says that they
	// have to be again.
	queues map[kueue.ClusterQueueReference]*queue
	order  []*queue
	trees  []*tree
	// cohortNodes are those of all cohorts that somebody names.
	cohortNodes map[kueue.CohortReference]*quota.Node
	outdated    bool

	// sharing are the rules of admission fair sharing, nil without it; sampleAt is
	// when the next sample is taken, zero while no LocalQueue uses anything.
	sharing  *usage.Rules
	sampleAt time.Time

	// due are the Workloads to look at in the next cycle.
	due    map[types.UID]*Workload
	timers timers
	// unadmitted hold quota and wait for their checks.
	unadmitted map[types.UID]*Workload
	// starting hold quota, and their pods are not ready.
	starting map[types.UID]*Workload
	// selected counts the Workloads and flavors that select on a node label.
	selected map[string]int
	// told are the objects whose status may have changed since the last report.
	told told
}

// namespace is what the queues want to know of one.
type namespace struct {
	labels labels.Set
	quotas map[string]*corev1.ResourceQuota
	ranges map[string]*corev1.LimitRange
	// rules are what the ranges say together.
	rules podRules
	// coming are Workloads whose pods the quotas may not have counted yet, short
	// those that wait for one of the quotas.
	coming map[types.UID]comer
	short  map[types.UID]*Workload
}

// NewCache returns a Cache without objects.
func NewCache(c config.Config) *Cache {
	s := &Cache{
		config: c, outdated: true,
		clusterQueues: map[string]*kueue.ClusterQueue{},
		cohorts:       map[kueue.CohortReference]*kueue.Cohort{},
		flavors:       map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{},
		classes:       map[string]*kueue.WorkloadPriorityClass{},
		checks:        map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck{},
		policies:      map[string]*v1alpha1.CapacityPolicy{},
		requestConfig: map[string]*kueue.ProvisioningRequestConfig{},
		namespaces:    map[string]*namespace{},
		runtimes:      map[string]*nodev1.RuntimeClass{},
		localQueues:   map[types.NamespacedName]*localQueue{},
		workloads:     map[types.UID]*Workload{},
		successors:    map[types.NamespacedName]*Workload{},
		requests:      map[types.UID][]*autoscaling.ProvisioningRequest{},
		queues:        map[kueue.ClusterQueueReference]*queue{},
		due:           map[types.UID]*Workload{},
		unadmitted:    map[types.UID]*Workload{},
		starting:      map[types.UID]*Workload{},
		selected:      map[string]int{},
		told:          newTold(),
	}
	if c.AdmissionFairSharing != nil {
		s.sharing = new(usage.RulesFrom(c.AdmissionFairSharing))
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
		s.replaced(o, known(s.clusterQueues, o.Name))
		s.clusterQueues[o.Name] = o
		if q := s.queues[kueue.ClusterQueueReference(o.Name)]; q != nil {
			q.object = o
		}
	case *kueue.LocalQueue:
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		lq := s.localQueues[key]
		if lq == nil {
			lq = &localQueue{counts: newCounts(), consumption: consumptionOf(o)}
			s.localQueues[key] = lq
			s.outdated = true
		} else {
			s.replaced(o, lq.object)
		}
		lq.object = o
	case *kueue.Cohort:
		s.replaced(o, known(s.cohorts, kueue.CohortReference(o.Name)))
		s.cohorts[kueue.CohortReference(o.Name)] = o
	case *kueue.ResourceFlavor:
		have := s.flavors[kueue.ResourceFlavorReference(o.Name)]
		s.replaced(o, known(s.flavors, kueue.ResourceFlavorReference(o.Name)))
		s.selects(flavorKeys(have), -1)
		s.selects(flavorKeys(o), +1)
		s.flavors[kueue.ResourceFlavorReference(o.Name)] = o
	case *kueue.AdmissionCheck:
		have := s.checks[kueue.AdmissionCheckReference(o.Name)]
		if have == nil || have.Generation != o.Generation || !equality.Semantic.DeepEqual(have.Status, o.Status) {
			s.outdated = true
		}
		s.checks[kueue.AdmissionCheckReference(o.Name)] = o
	case *v1alpha1.CapacityPolicy:
		s.replaced(o, known(s.policies, o.Name))
		s.policies[o.Name] = o
	case *kueue.ProvisioningRequestConfig:
		s.replaced(o, known(s.requestConfig, o.Name))
		s.requestConfig[o.Name] = o
	case *corev1.Namespace:
		ns := s.namespace(o.Name)
		if !maps.Equal(ns.labels, o.Labels) {
			s.outdated = true
		}
		ns.labels = o.Labels
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
		if w := s.workloads[o.UID]; w != nil {
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
		delete(s.classes, o.Name)
		return
	case *kueue.ClusterQueue:
		delete(s.clusterQueues, o.Name)
	case *kueue.LocalQueue:
		delete(s.localQueues, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	case *kueue.Cohort:
		delete(s.cohorts, kueue.CohortReference(o.Name))
	case *kueue.ResourceFlavor:
		s.selects(flavorKeys(s.flavors[kueue.ResourceFlavorReference(o.Name)]), -1)
		delete(s.flavors, kueue.ResourceFlavorReference(o.Name))
	case *kueue.AdmissionCheck:
		delete(s.checks, kueue.AdmissionCheckReference(o.Name))
	case *v1alpha1.CapacityPolicy:
		delete(s.policies, o.Name)
	case *kueue.ProvisioningRequestConfig:
		delete(s.requestConfig, o.Name)
	case *corev1.Namespace:
		delete(s.namespaces, o.Name)
	default:
		return
	}
	s.outdated = true
}

// known is the object of a name, or a nil interface.
func known[K comparable, T metav1.Object](objects map[K]T, name K) metav1.Object {
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
		s.outdated = true
	}
}

func (s *Cache) namespace(name string) *namespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{}
		s.namespaces[name] = ns
	}
	return ns
}

// labelsOf are those of a namespace; none if it is not known.
func (s *Cache) labelsOf(name string) labels.Set {
	if ns := s.namespaces[name]; ns != nil {
		return ns.labels
	}
	return nil
}

// requeueForCapacity has the Workloads that wait for machines judged again in the next
// cycle.
func (s *Cache) requeueForCapacity() {
	for _, q := range s.order {
		if q.wantsMachines {
			q.forgive()
		}
	}
}

// WantsCapacity says that some Workload waits for machines, so that a change of
// them matters.
func (s *Cache) WantsCapacity() bool {
	return slices.ContainsFunc(s.order, func(q *queue) bool { return q.wantsMachines })
}

// WakeAt is the earliest time at which time alone may change something; zero if
// only events can.
func (s *Cache) WakeAt() time.Time {
	at := earliest(s.timers.next(), s.sampleAt)
	for _, t := range s.trees {
		at = earliest(at, t.stale)
	}
	return at
}

// SelectedKeys are the node labels that Workloads and flavors select on, in order.
func (s *Cache) SelectedKeys() []string { return slices.Sorted(maps.Keys(s.selected)) }

func (s *Cache) selects(keys []string, by int) {
	for _, k := range keys {
		if s.selected[k] += by; s.selected[k] == 0 {
			delete(s.selected, k)
		}
	}
}

func flavorKeys(f *kueue.ResourceFlavor) []string {
	if f == nil {
		return nil
	}
	return slices.Collect(maps.Keys(f.Spec.NodeLabels))
}

// setWorkload takes in a Workload. Unless something changed that matters, it
// keeps its place and is not judged again.
func (s *Cache) setWorkload(object *kueue.Workload) {
	w := s.workloads[object.UID]
	if w == nil {
		w = s.newWorkload(object)
		w.unpriced = true
		s.workloads[object.UID] = w
		s.selects(w.Keys, +1)
		s.enter(w)
		s.succeed(w, HasQuota(object))
		s.due[object.UID] = w
		return
	}
	old := w.Object
	if old.ResourceVersion == object.ResourceVersion && old.ResourceVersion != "" || onlyToldWhy(old, object) {
		w.Object = object
		return
	}
	before := w.held()
	w.unpriced = w.unpriced || classOf(old) != classOf(object)
	s.leave(w)
	s.selects(w.Keys, -1)
	s.read(w, object)
	s.selects(w.Keys, +1)
	if HasQuota(object) {
		// What a verdict gave is in the object by now.
		w.assumed, w.assumedUsage = nil, nil
	}
	s.enter(w)
	s.succeed(w, w.assumed != nil || HasQuota(object))
	s.due[object.UID] = w
	if before.queue != nil && before != w.held() {
		// Those that were refused may be able to preempt or replace it now.
		before.queue.tree.loosened = true
	}
}

// Replace has a Workload kept as another object that is equal to the one kept.
func (s *Cache) Replace(kept, equal *kueue.Workload) {
	if w := s.workloads[kept.UID]; w != nil && w.Object == kept {
		w.Object = equal
	}
}

// onlyToldWhy reports whether two versions of a Workload without quota differ at most in
// why it waits and in what it is told that it asks for.
func onlyToldWhy(a, b *kueue.Workload) bool {
	if a.Generation != b.Generation || HasQuota(a) || HasQuota(b) || a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
		!maps.Equal(a.Annotations, b.Annotations) || !maps.Equal(a.Labels, b.Labels) {
		return false
	}
	rest := func(w *kueue.Workload) *kueue.WorkloadStatus {
		status := w.Status
		status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
			return c.Type == kueue.WorkloadQuotaReserved && c.Status == metav1.ConditionFalse
		})
		status.ResourceRequests = nil
		return &status
	}
	return equality.Semantic.DeepEqual(rest(a), rest(b))
}

// forget takes out a Workload that is gone, be it before the verdict that gave it quota
// has been settled.
func (s *Cache) forget(w *Workload) {
	if w.assumed != nil {
		s.unassume(w)
	}
	s.leave(w)
	s.reckon(w)
	s.selects(w.Keys, -1)
	uid := w.Object.UID
	delete(s.workloads, uid)
	delete(s.due, uid)
	s.succeed(w, false)
	w.wakeAt = time.Time{}
}

// setRequest takes in a ProvisioningRequest that queueing made.
func (s *Cache) setRequest(r *autoscaling.ProvisioningRequest) {
	owner := ownerOf(r)
	if owner == "" {
		return
	}
	list := s.requests[owner]
	if i := slices.IndexFunc(list, func(x *autoscaling.ProvisioningRequest) bool { return x.UID == r.UID }); i >= 0 {
		if !list[i].DeletionTimestamp.IsZero() && r.DeletionTimestamp.IsZero() {
			// Marked by Deleted; the caller's view is behind.
			return
		}
		list[i] = r
	} else {
		s.requests[owner] = append(list, r)
	}
	s.touch(owner)
}

func (s *Cache) deleteRequest(r *autoscaling.ProvisioningRequest) {
	owner := ownerOf(r)
	list := slices.DeleteFunc(s.requests[owner], func(x *autoscaling.ProvisioningRequest) bool { return x.UID == r.UID })
	if len(list) == 0 {
		delete(s.requests, owner)
	} else {
		s.requests[owner] = list
	}
	s.touch(owner)
}

// Deleted says that the caller has deleted a request, whatever later views of it
// show.
func (s *Cache) Deleted(r *autoscaling.ProvisioningRequest, at time.Time) {
	marked := r.DeepCopy()
	marked.DeletionTimestamp = new(metav1.NewTime(at))
	s.setRequest(marked)
}

// ownerOf is the Workload that controls a request; empty if queueing did not make
// it.
func ownerOf(r *autoscaling.ProvisioningRequest) types.UID {
	owner := metav1.GetControllerOf(r)
	if owner == nil || owner.Kind != "Workload" || r.Labels[ManagedLabel] != "true" {
		return ""
	}
	return owner.UID
}

// touch has a Workload looked at in the next cycle.
func (s *Cache) touch(uid types.UID) {
	if w := s.workloads[uid]; w != nil {
		s.due[uid] = w
	}
}

// enter counts a Workload where it belongs. What it adds, leave and reckon take away.
func (s *Cache) enter(w *Workload) {
	lq := s.localQueues[localQueueKey(w.Object)]
	switch {
	case IsFinished(w.Object):
		w.place = over
		if lq != nil {
			w.queue = s.queues[lq.object.Spec.ClusterQueue]
		}
	case s.successor(w) != nil:
		// Its quota is part of what the slice has that took its place.
	case HasQuota(w.Object):
		w.place, w.queue = holding, s.queues[w.Object.Status.Admission.ClusterQueue]
		if !IsAdmitted(w.Object) {
			s.unadmitted[w.Object.UID] = w
		}
		s.comes(w, w.Object.Status.Admission)
	case IsActive(w.Object):
		w.place = waiting
		if lq != nil {
			w.queue = s.queues[lq.object.Spec.ClusterQueue]
		}
	}
	if w.place != nowhere {
		w.admitted = w.place == holding && IsAdmitted(w.Object)
		w.local = lq
		s.count(w, +1)
	}
	s.reckon(w)
	if w.queue != nil && w.place == holding {
		w.queue.holding[w.Object.UID] = w
		w.candidate = candidate(w)
	}
}

// held is what others have to know of a Workload with quota to judge whether it could
// leave for them, or be replaced.
type held struct {
	queue            *queue
	admitted         bool
	evicted          bool
	priority         int32
	reserved, queued int64
}

// held is empty for a Workload without quota.
func (w *Workload) held() held {
	if w.place != holding || w.queue == nil {
		return held{}
	}
	return held{w.queue, w.admitted, IsEvicted(w.Object), w.priority, reservedSince(w.Object).UnixNano(), w.since.UnixNano()}
}

// leave takes a Workload out of where it is counted by its place.
func (s *Cache) leave(w *Workload) {
	if q := w.queue; q != nil {
		switch w.place {
		case holding:
			delete(q.holding, w.Object.UID)
		case waiting:
			q.withdraw(w)
		}
	}
	delete(s.unadmitted, w.Object.UID)
	s.count(w, -1)
	w.place, w.queue, w.local, w.admitted = nowhere, nil, nil, false
}

// reckon charges the queue with what the Workload has of its quota, once: what its object
// shows or, before that shows any, what a verdict gave it. Both stand for the same quota,
// and the news of a write may come before the answer to it.
func (s *Cache) reckon(w *Workload) {
	q, usage := w.assumed, w.assumedUsage
	if w.place == holding {
		q, usage = w.queue, w.Usage
	}
	if old := w.charged; old != nil {
		old.node.Sub(w.charge)
		if q != old || !w.charge.Within(usage) {
			old.tree.loosened = true
		}
	}
	if q != nil {
		q.node.Add(usage)
		if q != w.charged || !usage.Within(w.charge) {
			q.tree.tightened()
		}
	}
	if w.unseen {
		w.charged.unseen--
	}
	seen := w.unseen && w.place == holding
	w.charged, w.charge = q, usage
	if w.unseen = q != nil && w.place != holding; w.unseen {
		q.unseen++
	}
	if seen && q != nil && q.tree.overlooked {
		q.tree.loosened, q.tree.overlooked = true, false
	}
	if q != nil && !isTrue(w.Object, kueue.WorkloadPodsReady) {
		s.starting[w.Object.UID] = w
	} else {
		s.started(w)
	}
}

// count keeps the numbers that the status of queues shows.
func (s *Cache) count(w *Workload, by int32) {
	for _, c := range []*counts{w.queue.countsOf(), w.local.countsOf()} {
		if c == nil {
			continue
		}
		switch w.place {
		case over:
			c.finished += by
		case waiting:
			c.waiting += by
		case holding:
			c.reserving += by
			c.reserved.change(w.Usage, by)
			if w.admitted {
				c.running += by
				c.admitted.change(w.Usage, by)
			}
		}
	}
	if w.place == waiting && w.queue != nil {
		w.queue.asked.change(w.requests(), by)
	}
	s.told.counted(w)
}

// Settle says what became of a verdict that changes a Workload: the Workload as
// it is now, or nil if nothing was written. Until then the Workload is not judged
// again, and quota that the verdict gave out stays given.
func (s *Cache) Settle(uid types.UID, now *kueue.Workload) {
	w := s.workloads[uid]
	if w == nil {
		return
	}
	w.busy, w.trial = false, nil
	if w.assumed != nil && (now == nil || !HasQuota(now)) {
		s.unassume(w)
	}
	if w.place == holding && w.queue != nil && w.queue.tree.claimed {
		// Somebody may wait for it to go who could not have it evicted while it was
		// busy.
		w.queue.tree.loosened = true
	}
	s.due[uid] = w
	if now != nil {
		s.setWorkload(now)
	}
	s.succeed(w, HasQuota(w.Object))
}

// assume gives quota to a Workload before its object shows it.
func (s *Cache) assume(w *Workload, q *queue, usage quota.Amounts) {
	w.assumed, w.assumedUsage = q, usage
	s.reckon(w)
	q.drop(w)
	delete(q.skipped, w.Object.UID)
}

// unassume takes back what a verdict gave that came to nothing.
func (s *Cache) unassume(w *Workload) {
	w.assumed, w.assumedUsage = nil, nil
	s.reckon(w)
	s.pardon(w)
}

// localQueueKey is that of the LocalQueue that a Workload names.
func localQueueKey(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
}

func (s *Cache) localQueueOf(w *Workload) *kueue.LocalQueue {
	if lq := s.localQueues[localQueueKey(w.Object)]; lq != nil {
		return lq.object
	}
	return nil
}

// sorted returns Workloads in the order of their names, so that what comes of
// them has an order.
func sorted(workloads map[types.UID]*Workload) []*Workload {
	return slices.SortedFunc(maps.Values(workloads), func(a, b *Workload) int {
		if c := strings.Compare(a.Object.Namespace, b.Object.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Object.Name, b.Object.Name)
	})
}
