package preemption

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// small is a world with plain numbers in which a slow twin tries every set of
// Workloads in every order. It derives usage and shares from the definitions each time.
type small struct {
	nodes   []smallNode
	running []smallWorkload
	// preemptor is in the ClusterQueue at this index.
	preemptor smallWorkload
	policy    kueue.ClusterQueuePreemption
	fair      *kueueconfig.FairSharing
}

const smallFRs = 2

type amounts [smallFRs]int

// smallNode comes after its parent.
type smallNode struct {
	parent        int
	leaf          bool
	nominal       amounts
	borrow, lend  [smallFRs]int // -1 is no limit
	weight        int
	subtree, kept amounts
	potential     amounts
}

type smallWorkload struct {
	queue            int
	priority, queued int
	usage            amounts
	evicted          bool
	cost             int
}

var testFRs = [smallFRs]quota.FlavorResource{{Flavor: "spot", Resource: "gpu"}, {Flavor: "spot", Resource: "cpu"}}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomSmall is a world in which many things are possible and none is certain.
func randomSmall(r *rand.Rand) *small {
	w := &small{}
	limit := func() int {
		if r.IntN(3) > 0 {
			return -1
		}
		return r.IntN(5)
	}
	cohorts := 1 + r.IntN(3)
	queues := 2 + r.IntN(3)
	for i := range cohorts + queues {
		n := smallNode{parent: r.IntN(max(1, min(i, cohorts))), leaf: i >= cohorts, weight: pick(r, 0, 1, 1, 1, 2, 3)}
		if i == 0 {
			n.parent = -1
		}
		for fr := range n.nominal {
			if n.leaf || r.IntN(2) == 0 {
				n.nominal[fr] = r.IntN(6)
			}
			n.borrow[fr], n.lend[fr] = limit(), limit()
		}
		w.nodes = append(w.nodes, n)
	}
	// A ClusterQueue without a cohort stands alone.
	if cohorts == 1 && r.IntN(10) == 0 {
		w.nodes = w.nodes[1:2]
		w.nodes[0].parent = -1
	}
	w.settle()
	leaves := []int{}
	for i, n := range w.nodes {
		if n.leaf {
			leaves = append(leaves, i)
		}
	}
	random := func() smallWorkload {
		one := smallWorkload{queue: pick(r, leaves...), priority: r.IntN(3), queued: r.IntN(4), cost: r.IntN(4), evicted: r.IntN(12) == 0}
		one.usage[0] = r.IntN(4)
		if r.IntN(2) == 0 {
			one.usage[1] = r.IntN(4)
		}
		return one
	}
	for len(w.running) < 8 && r.IntN(9) > 0 {
		// Now and then more is used than may be: an admin may have lowered a quota.
		if one := random(); r.IntN(8) == 0 || w.fits(one, w.usage(1<<len(w.running)-1)) {
			w.running = append(w.running, one)
		}
	}
	w.preemptor = random()
	w.preemptor.usage[0] += 1 + r.IntN(2)
	w.preemptor.priority += r.IntN(2)
	w.preemptor.evicted = false
	w.policy.WithinClusterQueue = pick(r, "", kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority,
		kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority)
	w.policy.ReclaimWithinCohort = pick(r, "", kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny, kueue.PreemptionPolicyAny,
		kueue.PreemptionPolicyAny)
	if r.IntN(3) > 0 {
		w.policy.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: pick(r, kueue.BorrowWithinCohortPolicyNever,
			kueue.BorrowWithinCohortPolicyLowerPriority)}
		if r.IntN(2) == 0 {
			w.policy.BorrowWithinCohort.MaxPriorityThreshold = new(int32(r.IntN(3)))
		}
	}
	if r.IntN(2) == 0 {
		w.fair = &kueueconfig.FairSharing{PreemptionStrategies: pick(r, nil,
			[]kueueconfig.PreemptionStrategy{kueueconfig.LessThanOrEqualToFinalShare},
			[]kueueconfig.PreemptionStrategy{kueueconfig.LessThanInitialShare},
			[]kueueconfig.PreemptionStrategy{kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare})}
	}
	return w
}

// settle works out what does not depend on usage.
func (w *small) settle() {
	for i := range w.nodes {
		w.nodes[i].subtree = w.nodes[i].nominal
	}
	for i := len(w.nodes) - 1; i >= 0; i-- {
		n := &w.nodes[i]
		for fr := range n.subtree {
			if n.lend[fr] >= 0 {
				n.kept[fr] = max(0, n.subtree[fr]-n.lend[fr])
			}
			if n.parent >= 0 {
				w.nodes[n.parent].subtree[fr] += n.subtree[fr] - n.kept[fr]
			}
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.potential = n.subtree
		for fr := range n.subtree {
			if n.parent >= 0 {
				common := w.nodes[n.parent].potential[fr]
				if n.borrow[fr] >= 0 {
					common = min(common, n.subtree[fr]-n.kept[fr]+n.borrow[fr])
				}
				n.potential[fr] = n.kept[fr] + common
			}
		}
	}
}

// usage of all nodes while only the Workloads of the set are there.
func (w *small) usage(set uint) []amounts {
	u := make([]amounts, len(w.nodes))
	for i, one := range w.running {
		if set>>i&1 == 1 {
			for fr, v := range one.usage {
				u[one.queue][fr] += v
			}
		}
	}
	return w.rise(u)
}

// with is the usage with one more.
func (w *small) with(u []amounts, one smallWorkload) []amounts {
	leaves := make([]amounts, len(u))
	for i, n := range w.nodes {
		if n.leaf {
			leaves[i] = u[i]
		}
	}
	for fr, v := range one.usage {
		leaves[one.queue][fr] += v
	}
	return w.rise(leaves)
}

func (w *small) rise(u []amounts) []amounts {
	for i := len(w.nodes) - 1; i > 0; i-- {
		for fr := range u[i] {
			u[w.nodes[i].parent][fr] += max(0, u[i][fr]-w.nodes[i].kept[fr])
		}
	}
	return u
}

// fits says that no limit is exceeded where the preemptor changes something.
func (w *small) fits(one smallWorkload, before []amounts) bool {
	after := w.with(before, one)
	for i := one.queue; i >= 0; i = w.nodes[i].parent {
		n := &w.nodes[i]
		for fr := range after[i] {
			drawn, was := max(0, after[i][fr]-n.kept[fr]), max(0, before[i][fr]-n.kept[fr])
			switch {
			case n.parent < 0 && after[i][fr] > n.subtree[fr] && after[i][fr] > before[i][fr]:
				return false
			case n.parent >= 0 && n.borrow[fr] >= 0 && drawn > n.subtree[fr]-n.kept[fr]+n.borrow[fr] && drawn > was:
				return false
			}
		}
	}
	return true
}

func (w *small) borrows(u []amounts) bool {
	after, q := w.with(u, w.preemptor), w.preemptor.queue
	for fr := range after[q] {
		// A zero is not needed.
		if w.needs(fr) && after[q][fr] > w.nodes[q].subtree[fr] {
			return true
		}
	}
	return false
}

func (w *small) needs(fr int) bool { return w.preemptor.usage[fr] > 0 }

// share is borrowed ÷ lendable ÷ weight as a fraction; the divisor is 0 for one
// without bound. The plain ratio decides among those.
type share struct{ over, of, weight int }

func (w *small) share(u []amounts, i int) share {
	n, largest := &w.nodes[i], share{0, 1, w.nodes[i].weight}
	if n.parent < 0 {
		return largest
	}
	for fr := range n.subtree {
		over := max(0, u[i][fr]-n.subtree[fr])
		if s := (share{over, w.nodes[n.parent].potential[fr], n.weight}); over > 0 && s.plain(largest) > 0 {
			largest = s
		}
	}
	return largest
}

func (s share) plain(o share) int {
	switch {
	case s.over == 0 || o.over == 0:
		return s.over - o.over
	}
	return s.over*o.of - o.over*s.of
}

func (s share) compare(o share) int {
	a, b := s.over > 0 && s.of*s.weight == 0, o.over > 0 && o.of*o.weight == 0
	switch {
	case a && b:
		return s.plain(o)
	case a:
		return 1
	case b:
		return -1
	case s.over == 0 || o.over == 0:
		return s.over - o.over
	}
	return s.over*o.of*o.weight - o.over*s.of*s.weight
}

// twin determines which of a world's Workloads may be preempted at all.
type twin struct {
	*small
	all   uint
	short []int
	// common is the index of the cohort in which a Workload and the preemptor meet.
	common []int
	// candidate and bound are by Workload.
	candidate, bound []bool
}

func newTwin(w *small) *twin {
	t := &twin{small: w, all: 1<<len(w.running) - 1}
	u := w.usage(t.all)
	for fr := range testFRs {
		alone := smallWorkload{queue: w.preemptor.queue}
		alone.usage[fr] = w.preemptor.usage[fr]
		if !w.fits(alone, u) {
			t.short = append(t.short, fr)
		}
	}
	for _, one := range w.running {
		common := one.queue
		for !w.above(common, w.preemptor.queue) {
			common = w.nodes[common].parent
		}
		t.common = append(t.common, common)
		own := one.queue == w.preemptor.queue
		policy := w.policy.ReclaimWithinCohort
		if own {
			policy = w.policy.WithinClusterQueue
		}
		uses := slices.ContainsFunc(t.short, func(fr int) bool { return one.usage[fr] > 0 })
		lower := one.priority < w.preemptor.priority
		may := one.evicted || lower && policy == kueue.PreemptionPolicyLowerPriority || policy == kueue.PreemptionPolicyAny ||
			policy == kueue.PreemptionPolicyLowerOrNewerEqualPriority &&
				(lower || one.priority == w.preemptor.priority && one.queued > w.preemptor.queued)
		enabled := policy != "" && policy != kueue.PreemptionPolicyNever
		t.candidate = append(t.candidate, enabled && uses && may && t.overAll(u, one.queue, common))
		b := w.policy.BorrowWithinCohort
		mayBorrow := b != nil && b.Policy == kueue.BorrowWithinCohortPolicyLowerPriority && lower &&
			(b.MaxPriorityThreshold == nil || one.priority <= int(*b.MaxPriorityThreshold))
		t.bound = append(t.bound, w.fair == nil && !own && !one.evicted && !mayBorrow && !t.entitled(u, common))
	}
	return t
}

// above says that a node is another or above it.
func (w *small) above(node, other int) bool {
	for ; other >= 0; other = w.nodes[other].parent {
		if node == other {
			return true
		}
	}
	return false
}

// overAll says that all from a ClusterQueue to below a cohort use more than their
// own of something that is short. There is nothing between the own one and itself.
func (t *twin) overAll(u []amounts, queue, common int) bool {
	for i := queue; i != common; i = t.nodes[i].parent {
		if !slices.ContainsFunc(t.short, func(fr int) bool { return u[i][fr] > t.nodes[i].subtree[fr] }) {
			return false
		}
	}
	return true
}

// entitled says that some part of the tree below the cohort, around the preemptor,
// has the quota to take it in.
func (t *twin) entitled(u []amounts, common int) bool {
	after := t.with(u, t.preemptor)
	for i := t.preemptor.queue; i != common; i = t.nodes[i].parent {
		within := true
		for fr := range testFRs {
			within = within && (!t.needs(fr) || after[i][fr] <= t.nodes[i].subtree[fr])
		}
		if within {
			return true
		}
	}
	return false
}

// allowed says whether one may go while those in the set are still there.
func (t *twin) allowed(i int, set uint) bool {
	one := t.running[i]
	if one.evicted || one.queue == t.preemptor.queue {
		return true
	}
	u := t.usage(set)
	if !t.overAll(u, one.queue, t.common[i]) {
		return false
	}
	if t.fair == nil {
		return true
	}
	after := t.with(u, t.preemptor)
	if !slices.ContainsFunc(t.short, func(fr int) bool {
		return after[t.preemptor.queue][fr] > t.nodes[t.preemptor.queue].subtree[fr]
	}) {
		return true
	}
	below := func(i, common int) int {
		for t.nodes[i].parent != common {
			i = t.nodes[i].parent
		}
		return i
	}
	theirs := below(one.queue, t.common[i])
	ours := t.share(after, below(t.preemptor.queue, t.common[i]))
	final, initial := t.share(t.usage(set&^(1<<i)), theirs), t.share(u, theirs)
	strategies := t.fair.PreemptionStrategies
	if strategies == nil {
		strategies = []kueueconfig.PreemptionStrategy{kueueconfig.LessThanInitialShare, kueueconfig.LessThanOrEqualToFinalShare}
	}
	return slices.Contains(strategies, kueueconfig.LessThanInitialShare) && ours.compare(initial) < 0 ||
		slices.Contains(strategies, kueueconfig.LessThanOrEqualToFinalShare) && ours.compare(final) <= 0
}

// reason is that for which one goes while those in the set are still there.
func (t *twin) reason(i int, set uint) string {
	after, b := t.with(t.usage(set), t.preemptor), t.policy.BorrowWithinCohort
	switch {
	case t.running[i].queue == t.preemptor.queue:
		return kueue.InClusterQueueReason
	case t.fair != nil && slices.ContainsFunc(t.short, func(fr int) bool {
		return after[t.preemptor.queue][fr] > t.nodes[t.preemptor.queue].subtree[fr]
	}):
		return kueue.InCohortFairSharingReason
	case t.fair == nil && b != nil && b.Policy == kueue.BorrowWithinCohortPolicyLowerPriority && !t.bound[i] &&
		!t.entitled(t.usage(t.all), t.common[i]):
		return kueue.InCohortReclaimWhileBorrowingReason
	}
	return kueue.InCohortReclamationReason
}

// enough says that the preemptor fits beside those in the set, by means that it may
// use.
func (t *twin) enough(set uint) bool {
	u := t.usage(set)
	if !t.fits(t.preemptor, u) {
		return false
	}
	for i := range t.running {
		if t.bound[i] && set>>i&1 == 0 && t.borrows(u) {
			return false
		}
	}
	return true
}

// reachable are all sets that may be left, by letting one after the other go.
func (t *twin) reachable() map[uint]bool {
	seen, next := map[uint]bool{t.all: true}, []uint{t.all}
	for len(next) > 0 {
		set := next[len(next)-1]
		next = next[:len(next)-1]
		for i := range t.running {
			rest := set &^ (1 << i)
			if rest != set && !seen[rest] && t.candidate[i] && t.allowed(i, set) {
				seen[rest] = true
				next = append(next, rest)
			}
		}
	}
	return seen
}

// question is the world as Decide sees it, with the nodes of its tree.
func (w *small) question(r *rand.Rand) (Preemptor, []*quota.Node) {
	nodes := make([]*quota.Node, len(w.nodes))
	for i, n := range w.nodes {
		quotas := map[quota.FlavorResource]quota.Quota{}
		for fr, name := range testFRs {
			q := quota.Quota{Nominal: int64(n.nominal[fr])}
			if n.borrow[fr] >= 0 {
				q.Borrowing = new(int64(n.borrow[fr]))
			}
			if n.lend[fr] >= 0 {
				q.Lending = new(int64(n.lend[fr]))
			}
			quotas[name] = q
		}
		nodes[i] = quota.NewNode(fmt.Sprint("n", i), int64(n.weight)*1000, quotas)
	}
	for i, n := range slices.Backward(w.nodes) {
		if n.parent >= 0 {
			nodes[i].Join(nodes[n.parent])
		}
	}
	running := map[*quota.Node][]*Workload{}
	for i, one := range w.running {
		queue := nodes[one.queue]
		queue.Add(one.amounts())
		running[queue] = append(running[queue], &Workload{
			UID: types.UID(fmt.Sprint(i)), Queue: queue, Priority: int32(one.priority), Cost: int64(one.cost),
			Queued: time.Unix(int64(one.queued), 0), Reserved: time.Unix(int64(one.queued%2), 0), Usage: one.amounts(), Evicted: one.evicted,
		})
	}
	for _, list := range running {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return Preemptor{
		Queue: nodes[w.preemptor.queue], Policy: w.policy, FairSharing: w.fair,
		Priority: int32(w.preemptor.priority), Queued: time.Unix(int64(w.preemptor.queued), 0), Needs: w.preemptor.amounts(),
		Running: func(n *quota.Node) []*Workload { return running[n] },
	}, nodes
}

func (one smallWorkload) amounts() quota.Amounts {
	a := quota.Amounts{}
	for fr, v := range one.usage {
		if v > 0 {
			a[testFRs[fr]] = int64(v)
		}
	}
	return a
}

// TestDecideAgreesWithItsTwin decides in random worlds. Each target is allowed at its turn, the targets together are enough, and all of
// them are necessary. There are no targets only if no set of Workloads would be enough in any order.
func TestDecideAgreesWithItsTwin(t *testing.T) {
	const parts = 4
	for part := range uint64(parts) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			outcomes := map[string]int{}
			for seed := part; seed < 120_000; seed += parts {
				outcome, err := compare(seed)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				outcomes[outcome]++
			}
			// A world that does not exercise something proves nothing about it.
			for _, outcome := range []string{"fits", "none", kueue.InClusterQueueReason, kueue.InCohortReclamationReason,
				kueue.InCohortFairSharingReason, kueue.InCohortReclaimWhileBorrowingReason} {
				if outcomes[outcome] < 200 {
					t.Errorf("only %d worlds end in %s: %v", outcomes[outcome], outcome, outcomes)
				}
			}
		})
	}
}

func compare(seed uint64) (outcome string, err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := randomSmall(r)
	q, nodes := w.question(r)
	before := usages(nodes)
	a := Decide(q)
	if diff := cmp.Diff(before, usages(nodes)); diff != "" {
		return "", fmt.Errorf("the tree has changed (-before +after):\n%s", diff)
	}
	shuffled, _ := w.question(r)
	if got, again := summary(a), summary(Decide(shuffled)); got != again {
		return "", fmt.Errorf("in another order of the input: got %s, want %s", again, got)
	}
	t := newTwin(w)
	reachable := t.reachable()
	if len(a.Targets) == 0 {
		if (a.Why == "") != (len(t.short) == 0) {
			return "", fmt.Errorf("short of %v: why is %q", t.short, a.Why)
		}
		if len(t.short) == 0 {
			return "fits", nil
		}
		for set := range reachable {
			if t.enough(set) {
				return "", fmt.Errorf("nothing is preempted, but it fits with %b of %b left", set, t.all)
			}
		}
		return "none", nil
	}
	left := t.all
	for _, target := range a.Targets {
		if !t.candidate[indexOf(target)] || !t.allowed(indexOf(target), left) {
			return "", fmt.Errorf("workload %d may not go while %b are there: %s", indexOf(target), left, summary(a))
		}
		if want := t.reason(indexOf(target), left); target.Reason != want {
			return "", fmt.Errorf("workload %d goes for %s, want %s", indexOf(target), target.Reason, want)
		}
		left &^= 1 << indexOf(target)
		outcome = target.Reason
	}
	if !t.enough(left) {
		return "", fmt.Errorf("it does not fit with %b left: %s", left, summary(a))
	}
	for _, target := range a.Targets {
		if set := left | 1<<indexOf(target); reachable[set] && t.enough(set) {
			return "", fmt.Errorf("workload %d could stay: %s", indexOf(target), summary(a))
		}
	}
	if (a.BorrowingLevel > 0) != (t.borrows(t.usage(left)) && w.nodes[w.preemptor.queue].parent >= 0) {
		return "", fmt.Errorf("distance is %d, borrowing is %v", a.BorrowingLevel, t.borrows(t.usage(left)))
	}
	return outcome, nil
}

// indexOf is which of the world's Workloads a target is.
func indexOf(t Target) int { return int(t.UID[0] - '0') }

func usages(nodes []*quota.Node) map[string]quota.Amounts {
	out := map[string]quota.Amounts{}
	for _, n := range nodes {
		out[n.Name] = quota.Amounts{}
		for _, fr := range n.Keys() {
			out[n.Name][fr] = n.Usage(fr)
		}
	}
	return out
}

func summary(a Result) string {
	s := fmt.Sprintf("distance %d %s", a.BorrowingLevel, a.Why)
	for _, t := range a.Targets {
		s += fmt.Sprintf(" %s %s", t.UID, t.Reason)
	}
	return s
}
