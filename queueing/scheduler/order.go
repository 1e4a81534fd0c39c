package scheduler

import (
	"cmp"
	"container/heap"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

// borrow takes those first that borrow from nearest, then by priority and time.
func (d *drainer) borrow() {
	heap.Init(d)
	for d.Len() > 0 {
		l := d.lines[0]
		d.nominate(l)
		// What was found out may have put it behind another one. What is not looked
		// at again is better than it is at most, since quota only becomes less.
		if heap.Fix(d, 0); d.lines[0] != l {
			continue
		}
		d.settleHead(l)
		if len(l.rest) == 0 {
			heap.Remove(d, 0)
		} else {
			heap.Fix(d, 0)
		}
	}
}

// share takes those first whose part of the tree would borrow nothing of what they ask
// for, then by the smallest share with them, looked at from the root down; but before all
// others those that victims have been asked to leave for. A smaller share would take what
// they leave, only to be preempted in its turn.
func (d *drainer) share() {
	lines := map[*quota.Node]*line{}
	for _, l := range d.lines {
		lines[l.queue.Node] = l
	}
	for len(lines) > 0 {
		for _, l := range d.lines {
			// One that can have nothing is answered at once, so that the others compete.
			for len(l.rest) > 0 && l.first == nil {
				if d.nominate(l); l.first == nil {
					d.settleHead(l)
				}
			}
			if len(l.rest) == 0 {
				delete(lines, l.queue.Node)
			}
		}
		l := firstAwaitingVictims(lines)
		if l == nil {
			l = least(d.tree.Root, lines)
		}
		if l != nil {
			d.nominate(l)
			d.settleHead(l)
		}
	}
}

// firstAwaitingVictims is the first of the lines whose first Workload waits for its victims; nil if there
// is none.
func firstAwaitingVictims(lines map[*quota.Node]*line) (out *line) {
	for _, l := range lines {
		if l.rest[0].AwaitsVictims && (out == nil || cache.Less(l.rest[0], out.rest[0])) {
			out = l
		}
	}
	return out
}

// least is the line below a node that comes first with fair sharing; nil if there
// is none.
func least(n *quota.Node, lines map[*quota.Node]*line) *line {
	if l := lines[n]; l != nil {
		return l
	}
	var best *line
	var smallest stake
	for _, child := range n.Children() {
		l := least(child, lines)
		if l == nil {
			continue
		}
		own := stakeOf(child, l)
		if c := own.compare(smallest); best == nil || c < 0 || c == 0 && cache.Less(l.rest[0], best.rest[0]) {
			best, smallest = l, own
		}
	}
	return best
}

// Len, Less, Swap, Push and Pop make the lines a heap, the one to look at first on
// top.
func (d *drainer) Len() int { return len(d.lines) }

func (d *drainer) Swap(i, j int) { d.lines[i], d.lines[j] = d.lines[j], d.lines[i] }

func (d *drainer) Push(any) {}

func (d *drainer) Pop() any {
	last := len(d.lines) - 1
	l := d.lines[last]
	d.lines = d.lines[:last]
	return l
}

// Less orders two lines by their first Workloads. One that has not been looked at
// might be the best, so it comes before those that it may beat.
func (d *drainer) Less(i, j int) bool {
	a, b := d.lines[i], d.lines[j]
	if len(a.rest) == 0 || len(b.rest) == 0 {
		return len(a.rest) > len(b.rest)
	}
	if x, y := a.rest[0].AwaitsVictims, b.rest[0].AwaitsVictims; x != y {
		return x
	}
	if a.distance != b.distance {
		return a.distance < b.distance
	}
	return cache.Less(a.rest[0], b.rest[0])
}

// stake is what a part of the tree would have with the first of a line below it.
type stake struct {
	// borrows: some of what that one asks for would be borrowed.
	borrows bool
	share   quota.Share
}

// stakeOf a node with the first of a line below it.
func stakeOf(n *quota.Node, l *line) (out stake) {
	growth := l.first.growth()
	l.queue.Node.Add(growth)
	defer l.queue.Node.Sub(growth)
	for fr, v := range growth {
		out.borrows = out.borrows || v > 0 && n.Borrows(fr, 0)
	}
	out.share = n.Share()
	return out
}

// compare orders stakes: one within nominal quota comes first, however much is borrowed of other flavors, then the smaller share.
func (s stake) compare(o stake) int {
	return cmp.Or(cmp.Compare(btoi(s.borrows), btoi(o.borrows)), s.share.Compare(o.share))
}
