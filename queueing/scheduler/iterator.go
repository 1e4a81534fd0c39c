package scheduler

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/quota"
)

// BackfillAnnotation on a ClusterQueue, if it is "true", reserves quota in time for the first Workload that does not
// fit. Workloads behind it start only if they cannot delay it. Backfill relies on maximum execution times; a Workload
// without one is assumed to run forever.
const BackfillAnnotation = "muster.dev/backfill"

func backfills(cq *kueue.ClusterQueue) bool { return cq.Annotations[BackfillAnnotation] == "true" }

// isStrict reports whether no Workload of the queue may start before those ahead of it.
func isStrict(q *cache.ClusterQueue) bool {
	return q.Object.Spec.QueueingStrategy == kueue.StrictFIFO && !backfills(q.Object)
}

// startReservation is the earliest time at which a Workload can start, and its usage.
type startReservation struct {
	w     *cache.Workload
	queue *cache.ClusterQueue
	usage quota.Amounts
	at    time.Time
	// ended is the usage that is released by then.
	ended []queueUsage
}

// queueUsage is usage in a queue.
type queueUsage struct {
	queue         *cache.ClusterQueue
	usage         quota.Amounts
	topologyUsage []placement.Usage
}

// preemptorReservation is quota that is reserved for a Workload whose victims still use it.
type preemptorReservation struct {
	queue         *cache.ClusterQueue
	usage         quota.Amounts
	topologyUsage []placement.Usage
	victims       []victim
	// victimsEvicted: the victims are being evicted. Otherwise they run until the machines are booked.
	victimsEvicted bool
}

// treeIterator evaluates the Workloads of one tree.
type treeIterator struct {
	s      *Cycle
	tree   *cache.Tree
	queues []*queueIterator
	// version changes with every change of free quota.
	version      int
	reservations []preemptorReservation
	// startReservations must not be delayed by backfill.
	startReservations []startReservation
	// backfillBlocked: a start is unknown, so backfill lets no Workload of the queue start.
	backfillBlocked bool
	verdicts        []lifecycle.Verdict
}

// queueIterator iterates over the Workloads of one queue in order.
type queueIterator struct {
	queue   *cache.ClusterQueue
	pending []*cache.Workload
	// unexpanded: quota was released, and it is not known yet which Workloads it may help. pending is the first of the
	// queue then, and borrowingLevel the lowest that any may have.
	unexpanded bool
	// assignment is the assignment of the head; nil if there is none. version is the version of free quota that it was
	// found with.
	assignment *Assignment
	assigner   *assigner
	version    int
	// effort is what its evaluations cost in this cycle, and effortInOrder what they cost in the order of the queue.
	// leastRecent: from there on those come first that were not evaluated for the longest time.
	effort, effortInOrder int
	leastRecent           bool
	// blocked: no other Workload of the queue may start in this cycle.
	blocked bool
	// borrowingLevel is that of the head's assignment, as far as it is known.
	borrowingLevel int
	// localQueues are the iterators of the LocalQueues, if the ClusterQueue orders them by their usage; pending is
	// that of the current one.
	localQueues  []*localQueueIterator
	currentLocal int
	// lastInadmissible is the result of the last lookup, for lastClass. Workloads of one class are often adjacent.
	lastClass        cache.EquivalenceClass
	lastInadmissible *cache.Inadmissible
}

// inadmissible returns the result for an equivalence class; nil if there is none.
func (l *queueIterator) inadmissible(class cache.EquivalenceClass) *cache.Inadmissible {
	if l.lastInadmissible == nil || l.lastClass != class {
		l.lastClass, l.lastInadmissible = class, l.queue.Inadmissible[class]
	}
	return l.lastInadmissible
}

// pop removes the head.
func (l *queueIterator) pop() {
	l.pending, l.assignment, l.version, l.borrowingLevel = l.pending[1:], nil, -1, 0
	if l.localQueues == nil {
		return
	}
	if l.localQueues[l.currentLocal].pending = l.pending; len(l.pending) == 0 {
		l.localQueues = slices.Delete(l.localQueues, l.currentLocal, l.currentLocal+1)
	}
	l.selectLocal()
}

// selectLocal makes the LocalQueue that is first in order the current one.
func (l *queueIterator) selectLocal() {
	for i, o := range l.localQueues {
		if i == 0 || o.before(l.localQueues[l.currentLocal]) {
			l.currentLocal, l.pending = i, o.pending
		}
	}
}

// remaining returns all remaining Workloads.
func (l *queueIterator) remaining() []*cache.Workload {
	if l.localQueues == nil {
		return l.pending
	}
	var out []*cache.Workload
	for _, o := range l.localQueues {
		out = append(out, o.pending...)
	}
	return out
}

// contains reports whether a Workload is still to be evaluated.
func (l *queueIterator) contains(w *cache.Workload) bool {
	if l.localQueues == nil {
		return slices.Contains(l.pending, w)
	}
	return slices.ContainsFunc(l.localQueues, func(o *localQueueIterator) bool { return slices.Contains(o.pending, w) })
}

// localQueueIterator iterates over the Workloads of one LocalQueue.
type localQueueIterator struct {
	local   *cache.LocalQueue
	pending []*cache.Workload
}

// localQueueIterators groups Workloads by LocalQueue.
func localQueueIterators(list []*cache.Workload) []*localQueueIterator {
	var out []*localQueueIterator
	of := map[*cache.LocalQueue]*localQueueIterator{}
	for _, w := range list {
		if of[w.Local] == nil {
			of[w.Local] = &localQueueIterator{local: w.Local}
			out = append(out, of[w.Local])
		}
		of[w.Local].pending = append(of[w.Local].pending, w)
	}
	return out
}

// before orders LocalQueues by usage, then by their heads.
func (a *localQueueIterator) before(b *localQueueIterator) bool {
	if a.local.Usage != b.local.Usage {
		return a.local.Usage < b.local.Usage
	}
	return cache.Less(a.pending[0], b.pending[0])
}

// inadmissible is the result for a Workload that has to wait.
type inadmissible struct {
	cache.Inadmissible
	// verdict is the next step for the ProvisioningRequest of a Workload that is provisioned first; nil deletes the
	// request.
	verdict *lifecycle.Verdict
}

func newInadmissible(reason, message string) *inadmissible {
	return &inadmissible{Inadmissible: cache.Inadmissible{Reason: reason, Message: message}}
}
