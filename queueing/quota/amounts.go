// Package quota tracks quota and usage in a tree of cohorts. ClusterQueues are its
// leaves, and a node may borrow what other nodes do not use.
//
// The subtree quota of a node is its own nominal quota and that of its children. A node
// lends it to its parent up to the lending limit and keeps the rest. Usage fills what a
// node keeps first, and only the remainder counts in the parent. The parent therefore
// sees how much each child took out of the common quota, and how much is left.
package quota

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// FlavorResource is the key of quota and usage.
type FlavorResource struct {
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
}

// Compare orders by flavor and then by resource.
func (fr FlavorResource) Compare(o FlavorResource) int {
	return cmp.Or(cmp.Compare(fr.Flavor, o.Flavor), cmp.Compare(fr.Resource, o.Resource))
}

// Amounts are by flavor and resource, in the units of nodegroups.Resources. They are never negative and never above
// Unlimited.
type Amounts map[FlavorResource]int64

// Add adds o, up to the largest int64.
func (a Amounts) Add(o Amounts) {
	for fr, v := range o {
		a[fr] = nodegroups.Plus(a[fr], v)
	}
}

// Sub subtracts o, down to zero, and deletes zeros. It undoes Add unless a sum exceeded an int64; a Node has no such
// limit.
func (a Amounts) Sub(o Amounts) {
	for fr, v := range o {
		if a[fr] > v {
			a[fr] -= v
		} else {
			delete(a, fr)
		}
	}
}

// Within reports whether o has at least as much of everything.
func (a Amounts) Within(o Amounts) bool {
	for fr, v := range a {
		if v > o[fr] {
			return false
		}
	}
	return true
}

// Keys returns the flavors and resources, sorted.
func (a Amounts) Keys() []FlavorResource {
	return slices.SortedFunc(maps.Keys(a), FlavorResource.Compare)
}

// Unlimited is a quota that exceeds an int64, as an administrator may write for "no limit". Subtracting from it does
// not change it.
const Unlimited = math.MaxInt64

// subtract returns v less a part of it.
func subtract(v, part int64) int64 {
	if v == Unlimited {
		return Unlimited
	}
	return v - part
}

// total is a sum of amounts that does not overflow, so subtracting what was added always restores the earlier value.
type total struct{ high, low uint64 }

func (t *total) add(v int64) {
	var carry uint64
	t.low, carry = bits.Add64(t.low, uint64(v), 0)
	t.high += carry
}

func (t *total) sub(v int64) {
	var borrow uint64
	t.low, borrow = bits.Sub64(t.low, uint64(v), 0)
	t.high -= borrow
}

// amount returns the total, or the largest int64.
func (t total) amount() int64 {
	if t.high > 0 || t.low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(t.low)
}
