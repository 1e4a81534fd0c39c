package quota

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// twin is a tree that stores only what it was given. It derives everything else from
// the definitions each time.
type twin struct {
	name     string
	weight   int64
	quotas   map[FlavorResource]Quota
	used     Amounts
	parent   *twin
	children []*twin
	node     *Node
}

// kept is the part of its subtree's quota that the twin does not lend.
func (w *twin) kept(fr FlavorResource) int64 {
	if l := w.quotas[fr].Lending; l != nil {
		return max(0, w.subtree(fr)-*l)
	}
	return 0
}

func (w *twin) subtree(fr FlavorResource) int64 {
	v := w.quotas[fr].Nominal
	for _, c := range w.children {
		v += c.subtree(fr) - c.kept(fr)
	}
	return min(v, endless)
}

func (w *twin) usage(fr FlavorResource) int64 {
	v := w.used[fr]
	for _, c := range w.children {
		v += c.drawn(fr)
	}
	return v
}

func (w *twin) drawn(fr FlavorResource) int64 { return max(0, w.usage(fr)-w.kept(fr)) }

// othersBorrow reports whether a node beside the path to the root borrows.
func (w *twin) othersBorrow(fr FlavorResource) bool {
	for ; w.parent != nil; w = w.parent {
		for _, c := range w.parent.children {
			if c != w && c.usage(fr) > c.subtree(fr) {
				return true
			}
		}
	}
	return false
}

// slack is by how much the limits of this one node are kept; negative where they
// are not.
func (w *twin) slack(fr FlavorResource) int64 {
	if w.parent == nil {
		return w.subtree(fr) - w.usage(fr)
	}
	if b := w.quotas[fr].Borrowing; b != nil {
		return w.subtree(fr) - w.kept(fr) + *b - w.drawn(fr)
	}
	return big63
}

const big63 = 1 << 62

// endless is the twin's value for Endless: an ordinary amount that is larger than all usage and lending here. translated converts
// the results.
const endless = 1 << 40

func translated(v int64) int64 {
	if v >= endless/2 {
		return Unlimited
	}
	return v
}

// given translates the twin's quotas for a Node.
func given(quotas map[FlavorResource]Quota) map[FlavorResource]Quota {
	out := map[FlavorResource]Quota{}
	for fr, q := range quotas {
		o := Quota{Nominal: translated(q.Nominal)}
		if q.Borrowing != nil {
			o.Borrowing = new(translated(*q.Borrowing))
		}
		if q.Lending != nil {
			o.Lending = new(translated(*q.Lending))
		}
		out[fr] = o
	}
	return out
}

// frs are the flavors and resources of the twin and all below it.
func (w *twin) frs() map[FlavorResource]bool {
	out := map[FlavorResource]bool{}
	for fr := range w.quotas {
		out[fr] = true
	}
	for fr := range w.used {
		out[fr] = true
	}
	for _, c := range w.children {
		for fr := range c.frs() {
			out[fr] = true
		}
	}
	return out
}

func (w *twin) root() *twin {
	for w.parent != nil {
		w = w.parent
	}
	return w
}

// fits adds v and checks the limits of every node that this changes.
func (w *twin) fits(fr FlavorResource, v int64) bool {
	before := map[*twin]int64{}
	for at := w; at != nil; at = at.parent {
		before[at] = at.slack(fr)
	}
	w.used[fr] += v
	defer func() { w.used[fr] -= v }()
	for at := w; at != nil; at = at.parent {
		if at.slack(fr) < 0 && at.slack(fr) != before[at] {
			return false
		}
	}
	return true
}

// available is the most that fits; where nothing does and debts are the cause, by
// how much the first limit above is exceeded at least.
func (w *twin) available(fr FlavorResource) int64 {
	const plenty = 200
	if w.fits(fr, plenty) {
		return endless
	}
	v := int64(0)
	for w.fits(fr, v+1) {
		v++
	}
	if v > 0 {
		return v
	}
	for at := w; at != nil; at = at.parent {
		v = min(v, at.slack(fr))
		if at.kept(fr) > at.usage(fr) {
			break
		}
	}
	return v
}

// potential is what is available in a tree in which nothing is used.
func (w *twin) potential(fr FlavorResource) int64 {
	root := w.root()
	old := map[*twin]Amounts{}
	root.walk(func(n *twin) { old[n], n.used = n.used, Amounts{} })
	defer root.walk(func(n *twin) { n.used = old[n] })
	return w.available(fr)
}

func (w *twin) walk(f func(*twin)) {
	f(w)
	for _, c := range w.children {
		c.walk(f)
	}
}

func (w *twin) height() int {
	h := 0
	for _, c := range w.children {
		h = max(h, c.height()+1)
	}
	return h
}

// distance is the height of the smallest subtree that stays within its quota when
// v is added.
func (w *twin) distance(fr FlavorResource, v int64) int {
	w.used[fr] += v
	defer func() { w.used[fr] -= v }()
	at := w
	for at.parent != nil && at.usage(fr) > at.subtree(fr) {
		at = at.parent
	}
	return at.height()
}

// within reports whether a subtree around it that is not the whole tree stays within its quota when v is added.
func (w *twin) within(fr FlavorResource, v int64) bool {
	w.used[fr] += v
	defer func() { w.used[fr] -= v }()
	for at := w; at.parent != nil; at = at.parent {
		if at.usage(fr) <= at.subtree(fr) {
			return true
		}
	}
	return false
}

// share is the largest of the resources' ratios as an exact fraction; nil stands
// for one that has no bound.
func (w *twin) share(more Amounts) (share *big.Rat, resource corev1.ResourceName) {
	borrowed, lendable := map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
	share = new(big.Rat)
	if w.parent == nil {
		return share, ""
	}
	all := w.root().frs()
	for fr := range more {
		all[fr] = true
	}
	for fr := range all {
		borrowed[fr.Resource] += max(0, w.usage(fr)+more[fr]-w.subtree(fr))
		lendable[fr.Resource] = nodegroups.Plus(lendable[fr.Resource], translated(w.parent.potential(fr)))
	}
	for _, name := range []corev1.ResourceName{"cpu", "gpu"} {
		switch {
		case borrowed[name] == 0:
		case lendable[name] == 0:
			return nil, name
		default:
			if ratio := big.NewRat(borrowed[name], lendable[name]); ratio.Cmp(share) > 0 {
				share, resource = ratio, name
			}
		}
	}
	if resource != "" && w.weight == 0 {
		return nil, resource
	}
	if resource != "" {
		share.Mul(share, big.NewRat(1000, w.weight))
	}
	return share, resource
}

var testFRs = []FlavorResource{{"spot", "gpu"}, {"reserved", "gpu"}, {"spot", "cpu"}}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomTwin is a tree of any shape with at most n nodes, the same twice.
func randomTwin(r *rand.Rand, n int) (all, queues []*twin) {
	limit := func() *int64 {
		if r.IntN(2) == 0 {
			return nil
		}
		return new(pick(r, int64(r.IntN(6)), int64(r.IntN(6)), endless))
	}
	for i := range 1 + r.IntN(n) {
		w := &twin{name: fmt.Sprint("n", i), weight: pick[int64](r, 0, 500, 1000, 1000, 2000, 3000),
			quotas: map[FlavorResource]Quota{}, used: Amounts{}}
		for _, fr := range testFRs[:1+r.IntN(3)] {
			if r.IntN(4) > 0 {
				w.quotas[fr] = Quota{Nominal: pick(r, int64(r.IntN(8)), int64(r.IntN(8)), int64(r.IntN(8)), endless),
					Borrowing: limit(), Lending: limit()}
			}
		}
		if i > 0 {
			w.parent = all[r.IntN(i)]
			w.parent.children = append(w.parent.children, w)
		}
		all = append(all, w)
	}
	for _, w := range all {
		w.node = NewNode(w.name, w.weight, given(w.quotas))
	}
	for _, w := range slices.Backward(all) {
		if w.parent != nil {
			w.node.Join(w.parent.node)
		}
		if len(w.children) == 0 {
			queues = append(queues, w)
		}
	}
	return all, queues
}

func randomAmounts(r *rand.Rand) Amounts {
	a := Amounts{}
	for _, fr := range testFRs {
		if r.IntN(2) == 0 {
			a[fr] = int64(r.IntN(6))
		}
	}
	return a
}

// TestTreeAgreesWithItsTwin compares all that a tree says with what the
// definitions say, while random usage comes and goes.
func TestTreeAgreesWithItsTwin(t *testing.T) {
	t.Parallel()
	for seed := range seeds(100_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		all, queues := randomTwin(r, 7)
		for range r.IntN(6) {
			q, a := pick(r, queues...), randomAmounts(r)
			// Sometimes more than fits: an admin may have lowered a quota since.
			if r.IntN(4) > 0 && !q.node.Fits(a) {
				continue
			}
			q.node.Add(a)
			q.used.Add(a)
			if r.IntN(4) == 0 {
				q.node.Sub(a)
				q.used.Sub(a)
			}
		}
		at, fr, v, more := pick(r, all...), pick(r, testFRs...), int64(r.IntN(6)), randomAmounts(r)
		share, resource := at.share(more)
		other, queue := pick(r, all...), pick(r, queues...)
		theirs, _ := other.share(nil)
		got := at.node.ShareWith(more)
		for what, pair := range map[string][2]any{
			"subtree":   {at.node.Subtree(fr), translated(at.subtree(fr))},
			"usage":     {at.node.Usage(fr), at.usage(fr)},
			"unused":    {at.node.Unused(fr), translated(max(0, at.kept(fr)-at.usage(fr)))},
			"available": {at.node.Available(fr), translated(at.available(fr))},
			"potential": {at.node.Potential(fr), translated(at.potential(fr))},
			"borrows":   {at.node.Borrows(fr, v), at.usage(fr)+v > at.subtree(fr)},
			"others":    {at.node.OthersBorrow(fr), at.othersBorrow(fr)},
			"distance":  {queue.node.BorrowingLevel(fr, v), queue.distance(fr, v)},
			"within":    {queue.node.WithinReclaimable(fr, v), queue.within(fr, v)},
			"resource":  {got.Resource, resource},
			"borrowing": {got.Borrowing(), resource != ""},
			"rounded":   {got.Rounded(), rounded(share)},
		} {
			if pair[0] != pair[1] {
				t.Fatalf("seed %d: %s of %s in %v: got %v, want %v", seed, what, at.name, fr, pair[0], pair[1])
			}
		}
		if share != nil && theirs != nil && got.Compare(other.node.Share()) != share.Cmp(theirs) {
			t.Fatalf("seed %d: share %v against %v: got %d", seed, share, theirs, got.Compare(other.node.Share()))
		}
		if (share == nil) != (theirs == nil) && (got.Compare(other.node.Share()) > 0) != (share == nil) {
			t.Fatalf("seed %d: an endless share is not the larger one", seed)
		}
	}
}

// rounded is a share as the status has it.
func rounded(share *big.Rat) int64 {
	if share == nil {
		return 1<<63 - 1
	}
	v := new(big.Rat).Mul(share, big.NewRat(1000, 1))
	up := new(big.Int).Add(v.Num(), v.Denom())
	up.Sub(up, big.NewInt(1))
	return up.Quo(up, v.Denom()).Int64()
}
