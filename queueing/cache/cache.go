package cache

import (
	"maps"
	"slices"
	"strings"
	"time"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// Cache holds all that queueing decides on. Watch events update it object by object, so a cycle costs what has changed
// and not what exists. Its objects are shared and never modified. It is not safe for concurrent use.
//
// Decisions of a cycle take effect in the Cache at once: assumed quota counts as used. Settle reports the outcome of
// each decision.
type Cache struct {
	Settings
	Namespaces  Namespaces
	runtimes    map[string]*nodev1.RuntimeClass
	devices     devices
	LocalQueues map[types.NamespacedName]*LocalQueue
	Workloads   map[types.UID]*Workload
	// Replacements are the slices that have replaced another Workload, by the name of that Workload.
	Replacements map[types.NamespacedName]*Workload
	// Slices index the Workloads of elastic jobs.
	Slices   *Slices
	Requests Requests
	Nodes    Nodes

	// Queues and Trees are derived from the objects above. Outdated: they have to be rebuilt.
	Queues map[kueue.ClusterQueueReference]*ClusterQueue
	Order  []*ClusterQueue
	Trees  []*Tree
	// CohortNodes are the nodes of all cohorts, including those without an object.
	CohortNodes map[kueue.CohortReference]*quota.Node
	Outdated    bool
	// Cycles counts the cycles. ResumeAt is when the next one continues with what the last has deferred; zero if that is
	// nothing.
	Cycles   int
	ResumeAt time.Time

	// sampleAt is when the next sample of admission fair sharing is taken; zero while no LocalQueue has usage.
	sampleAt time.Time

	// Due are the Workloads to evaluate in the next cycle.
	Due    map[types.UID]*Workload
	Timers timers
	// Unadmitted have quota and wait for their admission checks.
	Unadmitted map[types.UID]*Workload
	// Unhealthy run, and wait for replacements of lost nodes.
	Unhealthy map[types.UID]*Workload
	// Reclaimed have a topology assignment, and some of their pods have ended.
	Reclaimed map[types.UID]*Workload
	// PodsNotReady have quota, and their pods are not ready.
	PodsNotReady map[types.UID]*Workload
	// selected counts the Workloads and flavors that select a node label.
	selected map[string]int
	// Dirty are the objects whose status may have changed since the last report.
	Dirty DirtyStatuses
}

// New returns an empty Cache.
func New(c config.Config) *Cache {
	out := &Cache{
		Settings: newSettings(c), Outdated: true,
		Namespaces:   Namespaces{},
		runtimes:     map[string]*nodev1.RuntimeClass{},
		devices:      newDevices(),
		LocalQueues:  map[types.NamespacedName]*LocalQueue{},
		Workloads:    map[types.UID]*Workload{},
		Replacements: map[types.NamespacedName]*Workload{},
		Requests:     Requests{},
		Nodes:        newNodes(),
		Queues:       map[kueue.ClusterQueueReference]*ClusterQueue{},
		Due:          map[types.UID]*Workload{},
		Unadmitted:   map[types.UID]*Workload{},
		Unhealthy:    map[types.UID]*Workload{},
		Reclaimed:    map[types.UID]*Workload{},
		PodsNotReady: map[types.UID]*Workload{},
		selected:     map[string]int{},
		Dirty:        NewDirtyStatuses(),
	}
	out.Slices = newSlices(out)
	return out
}

// localQueueKey returns the key of the LocalQueue of a Workload.
func localQueueKey(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
}

func (s *Cache) LocalQueueOf(w *Workload) *kueue.LocalQueue {
	if lq := s.LocalQueues[localQueueKey(w.Object)]; lq != nil {
		return lq.Object
	}
	return nil
}

// MarkAllDirty includes the statuses of all objects in the next report.
func (s *Cache) MarkAllDirty() {
	s.Dirty = NewDirtyStatuses()
	for _, q := range s.Order {
		s.Dirty.ClusterQueues[q] = true
	}
	for _, lq := range s.LocalQueues {
		s.Dirty.LocalQueues[lq] = true
	}
	s.Dirty.Checks, s.Dirty.Trees = true, true
}

// ReplacementOf returns the slice that has replaced a Workload; nil if there is none.
func (s *Cache) ReplacementOf(w *Workload) *Workload {
	if by := s.Replacements[workload.KeyOf(w.Object)]; by != nil && workload.SameJob(by.Object, w.Object) {
		return by
	}
	return nil
}

// Wake evaluates a Workload again at the given time at the latest; zero is never.
func (s *Cache) Wake(w *Workload, at time.Time) {
	if !at.IsZero() && (w.wakeAt.IsZero() || at.Before(w.wakeAt)) {
		s.Timers.Set(w, at)
	}
}

// MarkDue evaluates a Workload in the next cycle. If it is finished, this includes the other slices of its job, which
// inherit its requests.
func (s *Cache) MarkDue(uid types.UID) {
	w := s.Workloads[uid]
	if w == nil {
		return
	}
	s.Due[uid] = w
	if workload.IsFinished(w.Object) {
		for _, heir := range s.Slices.Beside(w) {
			s.Due[heir.Object.UID] = heir
		}
	}
}

// ByName returns Workloads sorted by name, for a deterministic order.
func ByName(workloads map[types.UID]*Workload) []*Workload {
	return slices.SortedFunc(maps.Values(workloads), func(a, b *Workload) int {
		if c := strings.Compare(a.Object.Namespace, b.Object.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Object.Name, b.Object.Name)
	})
}
