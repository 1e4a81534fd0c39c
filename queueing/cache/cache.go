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

// Cache is all that queueing decides on, kept up to date object by object, so that a
// cycle costs what has changed and not what is there. The objects in it are shared and
// never changed. It is not safe for concurrent use.
//
// What a cycle decides takes effect in the Cache at once: quota that it gives out is
// gone. Settle says what became of each decision.
type Cache struct {
	Settings
	Namespaces  Namespaces
	runtimes    map[string]*nodev1.RuntimeClass
	devices     devices
	LocalQueues map[types.NamespacedName]*LocalQueue
	Workloads   map[types.UID]*Workload
	// Replacements are the slices that have quota in the place of another Workload, by
	// that one's name.
	Replacements map[types.NamespacedName]*Workload
	// Slices say which of them follow which.
	Slices   *Slices
	Requests Requests
	Nodes    Nodes

	// Queues and trees are worked out of the objects above; outdated says that they
	// have to be again.
	Queues map[kueue.ClusterQueueReference]*ClusterQueue
	Order  []*ClusterQueue
	Trees  []*Tree
	// CohortNodes are those of all cohorts that are named.
	CohortNodes map[kueue.CohortReference]*quota.Node
	Outdated    bool

	// SampleAt is when the next sample of admission fair sharing is taken, zero while no
	// LocalQueue uses anything.
	sampleAt time.Time

	// Due are the Workloads to look at in the next cycle.
	Due    map[types.UID]*Workload
	Timers timers
	// Unadmitted hold quota and wait for their checks.
	Unadmitted map[types.UID]*Workload
	// Unhealthy run, and wait for nodes in place of lost ones.
	Unhealthy map[types.UID]*Workload
	// Reclaimed hold places of a Topology, and some of their pods have ended.
	Reclaimed map[types.UID]*Workload
	// PodsNotReady hold quota, and their pods are not ready.
	PodsNotReady map[types.UID]*Workload
	// selected counts the Workloads and flavors that select on a node label.
	selected map[string]int
	// Dirty are the objects whose status may have changed since the last report.
	Dirty DirtyStatuses
}

// New returns a Cache without objects.
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

// MarkAllDirty has the statuses of all objects in the next report.
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

// ReplacementOf is the slice that has quota in the place of a Workload; nil if there is
// none.
func (s *Cache) ReplacementOf(w *Workload) *Workload {
	if by := s.Replacements[workload.KeyOf(w.Object)]; by != nil && workload.SameJob(by.Object, w.Object) {
		return by
	}
	return nil
}

// Wake has a Workload looked at from a time on; zero is never.
func (s *Cache) Wake(w *Workload, at time.Time) {
	if !at.IsZero() && (w.wakeAt.IsZero() || at.Before(w.wakeAt)) {
		s.Timers.Set(w, at)
	}
}

// MarkDue has a Workload looked at in the next cycle; where it has finished, the slices of its job that have inherited its requests.
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

// ByName returns Workloads in the order of their names, so that what comes of
// them has an order.
func ByName(workloads map[types.UID]*Workload) []*Workload {
	return slices.SortedFunc(maps.Values(workloads), func(a, b *Workload) int {
		if c := strings.Compare(a.Object.Namespace, b.Object.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Object.Name, b.Object.Name)
	})
}
