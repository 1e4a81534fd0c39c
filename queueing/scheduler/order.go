package scheduler

import (
	"cmp"
	"container/heap"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

// runByBorrowing processes heads in the order of borrowing level, priority and time.
func (d *treeIterator) runByBorrowing() {
	heap.Init(d)
	for d.Len() > 0 {
		l := d.queues[0]
		if l.unexpanded {
			d.expand(l)
		} else {
			d.nominate(l)
			// The nomination may have moved it behind another head. A head that is not nominated again can only be worse
			// than assumed, because free quota only shrinks.
			if heap.Fix(d, 0); d.queues[0] != l {
				continue
			}
			d.processHead(l)
		}
		if len(l.pending) == 0 {
			heap.Remove(d, 0)
		} else {
			heap.Fix(d, 0)
		}
	}
}

// runByShare processes heads in the order of fair sharing, from the root down: first those whose subtree would not
// borrow the requested resources, then by the lowest share including the head. Heads whose victims were evicted come
// before all others: a head with a lower share would take the released quota, only to be preempted in turn.
func (d *treeIterator) runByShare() {
	lines := map[*quota.Node]*queueIterator{}
	for _, l := range d.queues {
		if l.unexpanded {
			d.expand(l)
		}
		lines[l.queue.Node] = l
	}
	for len(lines) > 0 {
		for _, l := range d.queues {
			// Process heads without an assignment at once; only the others compete.
			for len(l.pending) > 0 && l.assignment == nil {
				if d.nominate(l); l.assignment == nil {
					d.processHead(l)
				}
			}
			if len(l.pending) == 0 {
				delete(lines, l.queue.Node)
			}
		}
		l := firstAwaitingVictims(lines)
		if l == nil {
			l = lowestShare(d.tree.Root, lines)
		}
		if l != nil {
			d.nominate(l)
			d.processHead(l)
		}
	}
}

// firstAwaitingVictims returns the first queue whose head waits for its victims; nil if there is none.
func firstAwaitingVictims(lines map[*quota.Node]*queueIterator) (out *queueIterator) {
	for _, l := range lines {
		if l.pending[0].AwaitsVictims && (out == nil || cache.Less(l.pending[0], out.pending[0])) {
			out = l
		}
	}
	return out
}

// lowestShare returns the queue below a node that is first by fair sharing; nil if there is none.
func lowestShare(n *quota.Node, lines map[*quota.Node]*queueIterator) *queueIterator {
	if l := lines[n]; l != nil {
		return l
	}
	var best *queueIterator
	var smallest headShare
	for _, child := range n.Children() {
		l := lowestShare(child, lines)
		if l == nil {
			continue
		}
		own := headShareOf(child, l)
		if c := own.compare(smallest); best == nil || c < 0 || c == 0 && cache.Less(l.pending[0], best.pending[0]) {
			best, smallest = l, own
		}
	}
	return best
}

// Len, Less, Swap, Push and Pop implement a heap with the next queue on top.
func (d *treeIterator) Len() int { return len(d.queues) }

func (d *treeIterator) Swap(i, j int) { d.queues[i], d.queues[j] = d.queues[j], d.queues[i] }

func (d *treeIterator) Push(any) {}

func (d *treeIterator) Pop() any {
	last := len(d.queues) - 1
	l := d.queues[last]
	d.queues = d.queues[:last]
	return l
}

// Less orders two queues by their heads. A head that is not nominated yet might be the best, so it comes first.
func (d *treeIterator) Less(i, j int) bool {
	a, b := d.queues[i], d.queues[j]
	if len(a.pending) == 0 || len(b.pending) == 0 {
		return len(a.pending) > len(b.pending)
	}
	if x, y := a.pending[0].AwaitsVictims, b.pending[0].AwaitsVictims; x != y {
		return x
	}
	if a.borrowingLevel != b.borrowingLevel {
		return a.borrowingLevel < b.borrowingLevel
	}
	return cache.Less(a.pending[0], b.pending[0])
}

// headShare is the share of a node with the head of a queue below it.
type headShare struct {
	// borrows: the node would borrow some of the resources that the head requests.
	borrows bool
	share   quota.Share
}

// headShareOf returns the share of a node with the head of a queue below it.
func headShareOf(n *quota.Node, l *queueIterator) (out headShare) {
	growth := l.assignment.addedUsage()
	l.queue.Node.Add(growth)
	defer l.queue.Node.Sub(growth)
	for fr, v := range growth {
		out.borrows = out.borrows || v > 0 && n.Borrows(fr, 0)
	}
	out.share = n.Share()
	return out
}

// compare orders nodes that do not borrow the requested resources first, whatever they borrow of other flavors, then by
// share.
func (s headShare) compare(o headShare) int {
	return cmp.Or(cmp.Compare(btoi(s.borrows), btoi(o.borrows)), s.share.Compare(o.share))
}
