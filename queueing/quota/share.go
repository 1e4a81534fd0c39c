package quota

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// Share is the dominant resource share of a node: the borrowed part of what can be borrowed, of the resource where it
// is largest, divided by the weight of the node. It is a fraction, so equal shares compare equal.
type Share struct {
	// Resource is the dominant one; empty if nothing is borrowed.
	Resource corev1.ResourceName
	// borrowed is the borrowed amount of that resource over all flavors, lendable the amount that could be borrowed.
	borrowed, lendable int64
	// weight is in thousandths.
	weight int64
}

// Share returns the share of a node among its siblings. A root has none.
func (n *Node) Share() Share { return n.ShareWith(nil) }

// ShareWith returns the share of the node with additional usage.
func (n *Node) ShareWith(more Amounts) Share {
	out := Share{weight: n.Weight}
	if n.parent == nil {
		return out
	}
	borrowed := map[corev1.ResourceName]int64{}
	for fr, c := range n.resources {
		if over := nodegroups.Plus(more[fr], c.usage.amount()) - c.subtree; over > 0 {
			borrowed[fr.Resource] = nodegroups.Plus(borrowed[fr.Resource], over)
		}
	}
	for fr, v := range more {
		if n.resources[fr] == nil && v > 0 {
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

// lendable is how much the children of the node could use, by resource. The root has all flavors of the tree.
func (n *Node) lendable() map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	for fr := range n.Root().resources {
		out[fr.Resource] = nodegroups.Plus(out[fr.Resource], n.Potential(fr))
	}
	return out
}

// Borrowing reports whether the node borrows.
func (s Share) Borrowing() bool { return s.borrowed > 0 }

// endless is a share above all others: the node borrows with weight zero, or although nothing can be borrowed.
func (s Share) endless() bool { return s.borrowed > 0 && (s.weight == 0 || s.lendable == 0) }

// Compare orders shares from the smallest. Of two endless shares, the one that borrows less is smaller.
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

// unweighted compares without weights.
func (s Share) unweighted(o Share) int {
	if s.borrowed == 0 || o.borrowed == 0 {
		return cmp.Compare(s.borrowed, o.borrowed)
	}
	return product(s.borrowed, o.lendable, 1).compare(product(o.borrowed, s.lendable, 1))
}

// wide is an unsigned number of 192 bits, the highest word first: the product of three amounts.
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

// Rounded is the weighted share in thousandths of what can be borrowed, rounded up, as in the status of ClusterQueues
// and Cohorts.
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

// Precise is the weighted share in thousandths of what can be borrowed, as in the metrics; NaN if it has no bound.
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

// fraction returns the weighted share in thousandths. The numerator has two factors of 1000, because weights are in
// thousandths too.
func (s Share) fraction() (v, of *big.Int) {
	return new(big.Int).Mul(big.NewInt(s.borrowed), big.NewInt(1000*1000)), new(big.Int).Mul(big.NewInt(s.lendable), big.NewInt(s.weight))
}
