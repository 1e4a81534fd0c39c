package quota

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"
)

// Share is how much of what can be borrowed a node has, by the resource of which
// it has the most, divided by its weight.
type Share struct {
	// Resource is the one that decides; empty where nothing is borrowed.
	Resource corev1.ResourceName
	// ratio is the thousandths of what can be borrowed.
	ratio float64
	// weight is in thousandths.
	weight int64
}

// Share of a node among its siblings. A root has none.
func (n *Node) Share() Share { return n.ShareWith(nil) }

// ShareWith is the share that the node would have with more usage.
func (n *Node) ShareWith(more Amounts) Share {
	out := Share{weight: n.Weight}
	if n.parent == nil {
		return out
	}
	borrowed := map[corev1.ResourceName]int64{}
	for fr, c := range n.cells {
		if over := saturated(more[fr], c.usage.amount()) - c.subtree; over > 0 {
			borrowed[fr.Resource] = Plus(borrowed[fr.Resource], over)
		}
	}
	for fr, v := range more {
		if n.cells[fr] == nil && v > 0 {
			borrowed[fr.Resource] = Plus(borrowed[fr.Resource], v)
		}
	}
	if len(borrowed) == 0 {
		return out
	}
	lendable := map[corev1.ResourceName]int64{}
	for fr := range n.parent.cells {
		lendable[fr.Resource] = Plus(lendable[fr.Resource], n.parent.Potential(fr))
	}
	for name, v := range borrowed {
		ratio := math.Inf(1)
		if lendable[name] > 0 {
			ratio = float64(v) * 1000 / float64(lendable[name])
		}
		if ratio > out.ratio || ratio == out.ratio && (out.Resource == "" || name < out.Resource) {
			out.Resource, out.ratio = name, ratio
		}
	}
	return out
}

// Borrowing says that the node uses more than its own.
func (s Share) Borrowing() bool { return s.ratio > 0 }

// value is the weighted share. Without weight all that is borrowed is too much.
func (s Share) value() float64 {
	switch {
	case s.ratio == 0:
		return 0
	case s.weight == 0:
		return math.Inf(1)
	}
	return s.ratio * 1000 / float64(s.weight)
}

// Compare orders shares, the smaller first. Of two that have no weight and
// borrow, the one that borrows less is the smaller.
func (s Share) Compare(o Share) int {
	return cmp.Or(cmp.Compare(s.value(), o.value()), cmp.Compare(s.ratio, o.ratio))
}

// Rounded is the weighted share in thousandths of what can be borrowed, as the
// status of queues and cohorts has it.
func (s Share) Rounded() int64 {
	v := math.Ceil(s.value())
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(v)
}
