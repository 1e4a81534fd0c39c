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

// BackfillAnnotation on a ClusterQueue, if it is "true", reserves quota in time for
// the first Workload that cannot start: others start around it only if that cannot
// delay it. It rests on the maximum execution times of the Workloads; one that has
// none is taken to run for ever.
const BackfillAnnotation = "muster.dev/backfill"

func backfills(cq *kueue.ClusterQueue) bool { return cq.Annotations[BackfillAnnotation] == "true" }

// reservation is the earliest time at which a Workload can start, and what it will
// use then.
type reservation struct {
	w     *cache.Workload
	queue *cache.ClusterQueue
	usage quota.Amounts
	at    time.Time
	// ended is what is given back by then.
	ended []part
}

// part is usage in a queue.
type part struct {
	queue *cache.ClusterQueue
	usage quota.Amounts
	uses  []placement.Usage
}

// claim is quota that is kept for a Workload whose victims have not left yet.
type claim struct {
	queue   *cache.ClusterQueue
	usage   quota.Amounts
	uses    []placement.Usage
	victims []victim
	// leaving: the victims are on their way. Else they stay until its machines are
	// there.
	leaving bool
}

// drainer gives out the quota of one tree.
type drainer struct {
	s     *Cycle
	tree  *cache.Tree
	lines []*line
	// version counts the changes of what is free.
	version int
	claims  []claim
	// reservations are quota in time, which backfill must not delay.
	reservations []reservation
	// barred says that backfill keeps a whole queue from starting.
	barred bool
	out    []lifecycle.Verdict
}

// line is what is to be judged of one queue in a cycle, in its order.
type line struct {
	queue *cache.ClusterQueue
	rest  []*cache.Workload
	// first is how the first of the rest could have its quota, nil if it cannot;
	// version is that of the drain at which it was found out.
	first   *Proposal
	notes   *assigner
	version int
	// blocked: no other Workload of the queue may start in this cycle.
	blocked bool
	// distance is from how far the first borrows, as far as is known.
	distance int
	// locals are those in line by LocalQueue, in a ClusterQueue that orders them by
	// what they have used; the rest above is that of the lot whose turn it is.
	locals []*localLine
	turn   int
	// known is the answer to the last equivalence class that was looked up: those of one class stand together.
	class cache.EquivalenceClass
	known *cache.Inadmissible
}

// answer is that to an equivalence class; nil if there is none.
func (l *line) answer(class cache.EquivalenceClass) *cache.Inadmissible {
	if l.known == nil || l.class != class {
		l.class, l.known = class, l.queue.Inadmissible[class]
	}
	return l.known
}

// next takes the first out of the line.
func (l *line) next() {
	l.rest, l.first, l.version, l.distance = l.rest[1:], nil, -1, 0
	if l.locals == nil {
		return
	}
	if l.locals[l.turn].rest = l.rest; len(l.rest) == 0 {
		l.locals = slices.Delete(l.locals, l.turn, l.turn+1)
	}
	l.choose()
}

// choose has the lot whose turn it is come first.
func (l *line) choose() {
	for i, o := range l.locals {
		if i == 0 || o.before(l.locals[l.turn]) {
			l.turn, l.rest = i, o.rest
		}
	}
}

// all are those in line.
func (l *line) all() []*cache.Workload {
	if l.locals == nil {
		return l.rest
	}
	var out []*cache.Workload
	for _, o := range l.locals {
		out = append(out, o.rest...)
	}
	return out
}

// has reports whether a Workload is in line.
func (l *line) has(w *cache.Workload) bool {
	if l.locals == nil {
		return slices.Contains(l.rest, w)
	}
	return slices.ContainsFunc(l.locals, func(o *localLine) bool { return slices.Contains(o.rest, w) })
}

// localLine are Workloads of one LocalQueue, in their order.
type localLine struct {
	local *cache.LocalQueue
	rest  []*cache.Workload
}

// localLinesOf divides Workloads by LocalQueue.
func localLinesOf(list []*cache.Workload) []*localLine {
	var out []*localLine
	of := map[*cache.LocalQueue]*localLine{}
	for _, w := range list {
		if of[w.Local] == nil {
			of[w.Local] = &localLine{local: w.Local}
			out = append(out, of[w.Local])
		}
		of[w.Local].rest = append(of[w.Local].rest, w)
	}
	return out
}

// before says that the first of a lot comes before that of another one.
func (a *localLine) before(b *localLine) bool {
	if a.local.Usage != b.local.Usage {
		return a.local.Usage < b.local.Usage
	}
	return cache.Less(a.rest[0], b.rest[0])
}

// refusal is the answer to a Workload that has to wait.
type refusal struct {
	cache.Inadmissible
	// next is what is done about the machines that it has asked for, or is to ask for,
	// ahead of quota; nil gives them up.
	next *lifecycle.Verdict
}

func refusalOf(reason, message string) *refusal {
	return &refusal{Inadmissible: cache.Inadmissible{Reason: reason, Message: message}}
}
