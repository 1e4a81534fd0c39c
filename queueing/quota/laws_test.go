package quota

import (
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// picture is all that can be seen of the usage in a tree.
func picture(all []*twin) map[string]map[FlavorResource]int64 {
	out := map[string]map[FlavorResource]int64{}
	for _, w := range all {
		seen := map[FlavorResource]int64{}
		for _, fr := range w.node.Keys() {
			seen[fr] = w.node.Usage(fr)
		}
		out[w.name] = seen
	}
	return out
}

// seeds is the number of random trees: a tenth with -short.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestWhatIsAddedIsTerminated adds amounts up to the largest there are, and takes
// them back in another order.
func TestWhatIsAddedIsTerminated(t *testing.T) {
	t.Parallel()
	for seed := range seeds(100_000) {
		r := rand.New(rand.NewPCG(seed, 2))
		all, queues := randomTwin(r, 7)
		for range r.IntN(3) {
			pick(r, queues...).node.Add(randomAmounts(r))
		}
		before := picture(all)
		type use struct {
			node *Node
			of   Amounts
		}
		var uses []use
		for range 1 + r.IntN(4) {
			u := use{pick(r, queues...).node, Amounts{}}
			for _, fr := range testFRs {
				u.of[fr] = pick[int64](r, 0, 3, math.MaxInt64/2, math.MaxInt64-1, math.MaxInt64)
			}
			u.node.Add(u.of)
			uses = append(uses, u)
		}
		r.Shuffle(len(uses), func(i, j int) { uses[i], uses[j] = uses[j], uses[i] })
		for _, u := range uses {
			u.node.Sub(u.of)
		}
		if diff := cmp.Diff(before, picture(all)); diff != "" {
			t.Fatalf("seed %d (-before +after):\n%s", seed, diff)
		}
	}
}

// TestWhatFitsIsNeverTooMuch adds only what fits: no limit anywhere is exceeded
// then, and what the leaves use is what the root counts and what they keep.
func TestWhatFitsIsNeverTooMuch(t *testing.T) {
	t.Parallel()
	for seed := range seeds(50_000) {
		r := rand.New(rand.NewPCG(seed, 3))
		all, queues := randomTwin(r, 9)
		for range 12 {
			q, a := pick(r, queues...), randomAmounts(r)
			if q.node.Fits(a) {
				q.node.Add(a)
				q.used.Add(a)
			}
		}
		for _, w := range all {
			for _, fr := range testFRs {
				if w.slack(fr) < 0 {
					t.Fatalf("seed %d: %s exceeds its limit of %v by %d", seed, w.name, fr, -w.slack(fr))
				}
			}
		}
		for _, fr := range testFRs {
			var used, own int64
			for _, w := range all {
				used += w.used[fr]
				if w.parent != nil {
					own += min(w.node.Usage(fr), w.kept(fr))
				}
			}
			if root := all[0].node.Usage(fr); root != used-own {
				t.Fatalf("seed %d: the root counts %d of %v, the leaves use %d and %d of that is their own", seed, root, fr, used, own)
			}
		}
	}
}

// TestHugeAmountsDoNotTurnOver builds trees from the largest quotas and usages.
func TestHugeAmountsDoNotTurnOver(t *testing.T) {
	huge := []int64{0, 1, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64}
	fr := testFRs[0]
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 4))
		quota := func() map[FlavorResource]Quota {
			q := Quota{Nominal: pick(r, huge...)}
			if r.IntN(2) == 0 {
				q.Borrowing = new(pick(r, huge...))
			}
			if r.IntN(2) == 0 {
				q.Lending = new(pick(r, huge...))
			}
			return map[FlavorResource]Quota{fr: q}
		}
		root, cohort := NewNode("root", 1000, quota()), NewNode("cohort", 1000, quota())
		a, b := NewNode("a", math.MaxInt64, quota()), NewNode("b", 1, quota())
		a.Join(cohort)
		b.Join(cohort)
		cohort.Join(root)
		b.Add(Amounts{fr: pick(r, huge...)})
		a.Add(Amounts{fr: pick(r, huge...)})
		for _, n := range []*Node{a, b, cohort, root} {
			if n.Subtree(fr) < 0 || n.Usage(fr) < 0 || n.Potential(fr) < 0 || n.Share().Rounded() < 0 || n.Unused(fr) < 0 {
				t.Fatalf("seed %d: %s has something negative", seed, n.Name)
			}
			if n.Available(fr) > n.Potential(fr) {
				t.Fatalf("seed %d: %s has %d available, with all others unused %d", seed, n.Name, n.Available(fr), n.Potential(fr))
			}
			if !n.Share().Borrowing() && n.Share().Rounded() != 0 {
				t.Fatalf("seed %d: %s borrows nothing and has a share", seed, n.Name)
			}
			for _, o := range []*Node{a, b, cohort, root} {
				if n.Share().Compare(o.Share()) != -o.Share().Compare(n.Share()) {
					t.Fatalf("seed %d: shares of %s and %s do not compare the same both ways", seed, n.Name, o.Name)
				}
			}
		}
	}
}

func TestAmounts(t *testing.T) {
	gpu, cpu := testFRs[0], testFRs[2]
	for name, tc := range map[string]struct {
		have, add, sub, want Amounts
	}{
		"adds what is new and what is there":       {Amounts{gpu: 1}, Amounts{gpu: 2, cpu: 3}, nil, Amounts{gpu: 3, cpu: 3}},
		"forgets what becomes zero":                {Amounts{gpu: 1}, nil, Amounts{gpu: 1}, Amounts{}},
		"takes no more than there is":              {Amounts{gpu: 1}, nil, Amounts{gpu: 2, cpu: 1}, Amounts{}},
		"stops at the largest amount":              {Amounts{gpu: math.MaxInt64}, Amounts{gpu: 1}, nil, Amounts{gpu: math.MaxInt64}},
		"leaves alone what is in neither":          {Amounts{gpu: 1, cpu: 2}, Amounts{cpu: 1}, Amounts{cpu: 2}, Amounts{gpu: 1, cpu: 1}},
		"a zero that is added is not taken for it": {Amounts{gpu: 1}, Amounts{gpu: 0}, Amounts{gpu: 0}, Amounts{gpu: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := maps.Clone(tc.have)
			got.Add(tc.add)
			got.Sub(tc.sub)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTooMuchForOneNumberIsStillCounted takes a little from a sum that is just
// above what 64 bits hold.
func TestTooMuchForOneNumberIsStillCounted(t *testing.T) {
	fr := testFRs[0]
	n := NewNode("queue", 1000, nil)
	for _, v := range []int64{math.MaxInt64, math.MaxInt64, 5} {
		n.Add(Amounts{fr: v})
	}
	n.Sub(Amounts{fr: 1})
	if got := n.Usage(fr); got != math.MaxInt64 {
		t.Errorf("got %d, want the largest amount", got)
	}
	n.Sub(Amounts{fr: math.MaxInt64})
	n.Sub(Amounts{fr: math.MaxInt64})
	if got := n.Usage(fr); got != 4 {
		t.Errorf("got %d, want the 4 that are left", got)
	}
}

// TestSharesOfHugeAmountsCompare uses amounts and weights whose products need all
// 192 bits.
func TestSharesOfHugeAmountsCompare(t *testing.T) {
	for seed := range uint64(50_000) {
		r := rand.New(rand.NewPCG(seed, 5))
		random := func() int64 { return max(1, (math.MaxInt64-r.Int64N(4))>>(r.IntN(2)*r.IntN(63))) }
		a, b := Share{"gpu", random(), random(), random()}, Share{"gpu", random(), random(), random()}
		exact := func(s Share) *big.Rat {
			return new(big.Rat).SetFrac(big.NewInt(s.borrowed), new(big.Int).Mul(big.NewInt(s.lendable), big.NewInt(s.weight)))
		}
		if got, want := a.Compare(b), exact(a).Cmp(exact(b)); got != want {
			t.Fatalf("seed %d: %+v against %+v: got %d, want %d", seed, a, b, got, want)
		}
	}
}
