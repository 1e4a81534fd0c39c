package promises

import (
	"fmt"
	"math/rand/v2"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	quotas "github.com/muster-dev/muster/queueing/quota"
)

// The ledger shares no code with the quota of the admitter, and they have to agree. In
// random trees, using all that is available to the admitter overdraws no party, and one
// unit more does.
func TestLedgerAgreesWithTheAdmitter(t *testing.T) {
	const trees, steps = 3000, 30
	full, free := 0, 0
	for seed := range uint64(trees) {
		random := rand.New(rand.NewPCG(seed, 4))
		l, nodes, queues := randomTree(random)
		used := usage{}
		key := flavorResource{"f", "r"}
		fr := quotas.FlavorResource{Flavor: kueue.ResourceFlavorReference(key.flavor), Resource: "r"}
		for range steps {
			q := queues[random.IntN(len(queues))]
			over := func() bool {
				for _, at := range l.path(q) {
					if l.overdraft(at, key, used) > 0 {
						return true
					}
				}
				return false
			}
			available := nodes[q].Available(fr)
			take := func(v int64) { used.add(q.name, map[flavorResource]int64{key: v}) }
			if take(available); over() {
				t.Fatalf("tree %d: %d is available in %s, but overdraws", seed, available, q)
			}
			if take(1); !over() {
				t.Fatalf("tree %d: %d is available in %s, but one more overdraws nobody", seed, available, q)
			}
			take(-available - 1)
			if available == 0 {
				full++
				back := used[q.name][key]
				take(-back)
				nodes[q].Sub(quotas.Amounts{fr: back})
				continue
			}
			free++
			v := 1 + random.Int64N(available)
			take(v)
			nodes[q].Add(quotas.Amounts{fr: v})
		}
	}
	if full == 0 || free == 0 {
		t.Errorf("%d times nothing was available and %d times something, want both", full, free)
	}
}

// randomTree has up to six cohorts, of any depth, and up to six ClusterQueues, whose
// quota a second book holds the same way.
func randomTree(random *rand.Rand) (*ledger, map[party]*quotas.Node, []party) {
	key := flavorResource{"f", "r"}
	fr := quotas.FlavorResource{Flavor: kueue.ResourceFlavorReference(key.flavor), Resource: "r"}
	l := &ledger{accounts: map[party]account{}}
	nodes, parents := map[party]*quotas.Node{}, map[party]party{}
	maybe := func() *int64 {
		if random.IntN(2) == 0 {
			return nil
		}
		return new(random.Int64N(8))
	}
	var cohorts, queues, order []party
	add := func(p party) {
		own := quota{nominal: random.Int64N(10)}
		a := account{quota: map[flavorResource]quota{}}
		if len(cohorts) > 0 && random.IntN(6) > 0 {
			parents[p] = cohorts[random.IntN(len(cohorts))]
			a.cohort = parents[p].name
			own.borrowing, own.lending = maybe(), maybe()
		}
		given := map[quotas.FlavorResource]quotas.Quota{}
		if p.kind == ClusterQueues || random.IntN(3) > 0 {
			a.quota[key] = own
			given[fr] = quotas.Quota{Nominal: own.nominal, Borrowing: own.borrowing, Lending: own.lending}
		}
		l = l.with(p, &a)
		nodes[p] = quotas.NewNode(p.name, 1000, given)
		order = append(order, p)
	}
	for i := range random.IntN(7) {
		p := party{Cohorts, fmt.Sprint("cohort-", i)}
		add(p)
		cohorts = append(cohorts, p)
	}
	for i := range 1 + random.IntN(6) {
		p := party{ClusterQueues, fmt.Sprint("queue-", i)}
		add(p)
		queues = append(queues, p)
	}
	// Parties that were made later are further down, and join first.
	for i := len(order) - 1; i >= 0; i-- {
		if parent, ok := parents[order[i]]; ok {
			nodes[order[i]].Join(nodes[parent])
		}
	}
	return l, nodes, queues
}
