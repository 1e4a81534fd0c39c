package quota

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// Share is how much of what can be borrowed a node has, by the resource of which
// it has the most, divided by its weight: a fraction, so that equal shares are
// equal.
type Share struct {
	// Resource is the one that decides; empty where nothing is borrowed.
	Resource corev1.ResourceName
	// borrowed is of that resource, of all flavors together; lendable is what could
	// be borrowed of it.
	borrowed, lendable int64
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
		if over := nodegroups.Plus(more[fr], c.usage.amount()) - c.subtree; over > 0 {
			borrowed[fr.Resource] = nodegroups.Plus(borrowed[fr.Resource], over)
		}
	}
	for fr, v := range more {
		if n.cells[fr] == nil && v > 0 {
			borrowed[fr.Resource] = nodegroups.Plus(borrowed[fr.Resource], v)
		}
	}
	if len(borrowed) == 0 {
		return out
	}
	lendable := n.parent.lendable()
	for name, v := range borrowed {
		s := Share{Resource: name, borrowed: v, lendable: lendable[name], weight: n.Weight}
		if c := s.unweighted(out); c > 0 || c == 0 && name < out.Resource {
			out = s
		}
	}
	return out
}

// lendable is how much the node's children could use, by resource. What flavors
// there are in the tree the root knows.
func (n *Node) lendable() map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	for fr := range n.Root().cells {
		out[fr.Resource] = nodegroups.Plus(out[fr.Resource], n.Potential(fr))
	}
	return out
}

// Borrowing says that the node uses more than its own.
func (s Share) Borrowing() bool { return s.borrowed > 0 }

// endless is a share that nothing justifies: something is borrowed without
// weight, or where nothing can be borrowed.
func (s Share) endless() bool { return s.borrowed > 0 && (s.weight == 0 || s.lendable == 0) }

// Compare orders shares, the smaller first. Of two that have no weight and
// borrow, the one that borrows less is the smaller.
func (s Share) Compare(o Share) int {
	switch {
	case s.endless() && o.endless():
		return s.unweighted(o)
	case s.endless():
		return 1
	case o.endless():
		return -1
	case s.borrowed == 0 || o.borrowed == 0:
		return cmp.Compare(s.borrowed, o.borrowed)
	}
	return product(s.borrowed, o.lendable, o.weight).compare(product(o.borrowed, s.lendable, s.weight))
}

// unweighted compares without the weights.
func (s Share) unweighted(o Share) int {
	if s.borrowed == 0 || o.borrowed == 0 {
		return cmp.Compare(s.borrowed, o.borrowed)
	}
	return product(s.borrowed, o.lendable, 1).compare(product(o.borrowed, s.lendable, 1))
}

// wide is a number of 192 bits, the highest first: the product of three amounts.
type wide [3]uint64

func product(a, b, c int64) wide {
	high, low := bits.Mul64(uint64(a), uint64(b))
	middle, last := bits.Mul64(low, uint64(c))
	top, upper := bits.Mul64(high, uint64(c))
	sum, carry := bits.Add64(upper, middle, 0)
	return wide{top + carry, sum, last}
}

func (w wide) compare(o wide) int {
	return cmp.Or(cmp.Compare(w[0], o[0]), cmp.Compare(w[1], o[1]), cmp.Compare(w[2], o[2]))
}

// Rounded is the weighted share in thousandths of what can be borrowed, rounded
// up, as the status of queues and cohorts has it.
func (s Share) Rounded() int64 {
	switch {
	case s.borrowed == 0:
		return 0
	case s.endless():
		return math.MaxInt64
	}
	v, of := s.fraction()
	v.Add(v, of).Sub(v, big.NewInt(1)).Quo(v, of)
	if !v.IsInt64() {
		return math.MaxInt64
	}
	return v.Int64()
}

// Precise is the weighted share in thousandths of what can be borrowed, as the metrics of queues and cohorts have it; NaN where it has
// no bound.
func (s Share) Precise() float64 {
	switch {
	case s.borrowed == 0:
		return 0
	case s.endless():
		return math.NaN()
	}
	out, _ := new(big.Rat).SetFrac(s.fraction()).Float64()
	return out
}

// fraction returns the weighted share in thousandths. The numerator has two factors of 1000: weights are in thousandths, too.
func (s Share) fraction() (v, of *big.Int) {
	return new(big.Int).Mul(big.NewInt(s.borrowed), big.NewInt(1000*1000)), new(big.Int).Mul(big.NewInt(s.lendable), big.NewInt(s.weight))
}
