// Package reasons paces the status messages that say why Workloads wait. Writes are the
// budget of the whole cluster, and these admit nothing: they get what admissions leave of
// it. One token bucket has that, and spends it in the order of what readers miss most; namespaces take turns.
package reasons

import (
	"cmp"
	"time"

	"github.com/google/btree"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/fairqueue"
	"github.com/muster-dev/muster/provisioning/when"
)

const (
	// FirstAfter is how old a Workload is at least before its first reason is written.
	// Most get their quota sooner.
	FirstAfter = time.Second
	// RefreshAfter is how long a message stays at least unless its reason changes. Every
	// admission changes what is free, and with it the message of all that wait.
	RefreshAfter = 10 * time.Second
)

// Reason is why a Workload waits.
type Reason struct {
	Workload        types.UID
	Reason, Message string

	namespace string
	urgency   urgency
	// due is when the reason may be written. number orders reasons that are due together as the queues do.
	due    time.Time
	number int64
	// ready: the reason is due, and has its place among those of its namespace.
	ready bool
}

// urgency is how much readers miss a reason, the most first.
type urgency int

const (
	// first: the Workload has none yet.
	first urgency = iota
	// changed: it has another one. So is one that could not be written.
	changed
	// reworded: it has the same one with another message.
	reworded

	urgencies
)

// Queue has the newest reason of each Workload that waits until it is written.
type Queue struct {
	bucket

	reasons map[types.UID]*Reason
	// byDue has the reasons that are not due yet. ready has those that are, and some that have been replaced or removed since.
	byDue [urgencies]*btree.BTreeG[*Reason]
	ready [urgencies]*fairqueue.Queue[*Reason]
	count int64
	// written is when a reason of a Workload was written last.
	written map[types.UID]time.Time
}

// New returns an empty Queue.
func New() *Queue {
	q := &Queue{bucket: newBucket(), reasons: map[types.UID]*Reason{}, written: map[types.UID]time.Time{}}
	for u := range q.byDue {
		q.byDue[u] = btree.NewG(32, func(a, b *Reason) bool { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.number, b.number)) < 0 })
		q.ready[u] = fairqueue.New(func(r *Reason) string { return r.namespace })
	}
	return q
}

// Set makes a reason that of a Workload, in place of one that is not written yet.
func (q *Queue) Set(w *kueue.Workload, reason, message string, now time.Time) {
	r := &Reason{Workload: w.UID, Reason: reason, Message: message, namespace: w.Namespace, due: w.CreationTimestamp.Add(FirstAfter)}
	have := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	written, again := q.written[w.UID]
	pause := FirstAfter
	switch {
	case have == nil && !again:
		r.urgency = first
	case have == nil || have.Reason != reason:
		r.urgency = changed
	default:
		r.urgency, pause = reworded, RefreshAfter
	}
	if again {
		r.due = when.Latest(r.due, written.Add(pause))
	} else if latest := now.Add(FirstAfter); r.due.After(latest) {
		// The clock of the API server may be ahead.
		r.due = latest
	}
	r.due = when.Latest(r.due, now)
	if before := q.reasons[w.UID]; before != nil && before.ready && before.urgency == r.urgency {
		before.Reason, before.Message = reason, message // it keeps its place
		return
	}
	q.put(r)
}

func (q *Queue) put(r *Reason) {
	q.drop(r.Workload)
	r.number, r.ready = q.count, false
	q.count++
	q.reasons[r.Workload] = r
	q.byDue[r.urgency].ReplaceOrInsert(r)
}

func (q *Queue) drop(uid types.UID) {
	if r := q.reasons[uid]; r != nil {
		q.byDue[r.urgency].Delete(r)
		delete(q.reasons, uid)
	}
}

// Has reports whether a Workload has a reason that is not written yet.
func (q *Queue) Has(uid types.UID) bool { return q.reasons[uid] != nil }

// Remove drops all of a Workload that waits no more.
func (q *Queue) Remove(uid types.UID) {
	q.drop(uid)
	delete(q.written, uid)
}

// Next removes and returns the reason to write now; nil if none is due, or the bucket is empty. Spend takes from the bucket once it is
// certain that there is something to write.
func (q *Queue) Next(now time.Time) *Reason {
	q.refill(now)
	for u, ready := range q.ready {
		q.makeReady(urgency(u), now)
		for ready.Len() > 0 {
			if !q.has(urgency(u)) {
				return nil
			}
			if r := ready.Pop(); q.reasons[r.Workload] == r {
				q.drop(r.Workload)
				return r
			}
		}
		if urgency(u) == first {
			q.settleDebt()
		}
	}
	return nil
}

// makeReady gives each reason that is due its place among those of its namespace.
func (q *Queue) makeReady(u urgency, now time.Time) {
	for {
		r, ok := q.byDue[u].Min()
		if !ok || now.Before(r.due) {
			return
		}
		q.byDue[u].DeleteMin()
		r.ready = true
		q.ready[u].Push(r)
	}
}

// Written says that a reason was written.
func (q *Queue) Written(uid types.UID, now time.Time) { q.written[uid] = now }

// Again returns a reason that could not be written, unless there is a newer one.
func (q *Queue) Again(r *Reason, now time.Time) {
	if !q.Has(r.Workload) {
		r.due, r.urgency = now.Add(FirstAfter), max(r.urgency, changed)
		q.put(r)
	}
}

// WakeAt is when the next reason is due; zero if there is none.
func (q *Queue) WakeAt(now time.Time) (at time.Time) {
	for u, reasons := range q.byDue {
		if q.ready[u].Len() > 0 {
			return now.Add(refillEvery)
		}
		if r, ok := reasons.Min(); ok && (at.IsZero() || r.due.Before(at)) {
			at = r.due
		}
	}
	if !at.IsZero() {
		at = when.Latest(at, now.Add(refillEvery))
	}
	return at
}
