package scheduler

import (
	"slices"

	"github.com/muster-dev/muster/queueing/cache"
)

// line is what is to be judged of one queue in a cycle, in its order.
type line struct {
	queue *cache.ClusterQueue
	rest  []*cache.Workload
	// first is how the first of the rest could have its quota, nil if it cannot;
	// version is that of the drain at which it was found out.
	first   *Proposal
	notes   *assigner
	version int
	// blocked: nobody else of the queue may start in this cycle.
	blocked bool
	// distance is from how far the first borrows, as far as is known.
	distance int
	// locals are those in line by LocalQueue, in a ClusterQueue that orders them by
	// what they have used; the rest above is that of the lot whose turn it is.
	locals []*localLine
	turn   int
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
