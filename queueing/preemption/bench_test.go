package preemption

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// bigWorld has 1,000 ClusterQueues in 50 cohorts under one root, with 100 running
// Workloads each. So many of the queues borrow what one idle lender has.
func bigWorld(borrowing int) (lender *quota.Node, running map[*quota.Node][]*Workload) {
	r := rand.New(rand.NewPCG(1, 1))
	fr, second := gpu("gpu"), gpu("cpu")
	root := quota.NewNode("root", 1000, nil)
	running = map[*quota.Node][]*Workload{}
	queues := make([]*quota.Node, 0, 1000)
	for i := range 50 {
		cohort := quota.NewNode(fmt.Sprintf("cohort-%02d", i), 1000, nil)
		for j := range 20 {
			queue := quota.NewNode(fmt.Sprintf("queue-%02d-%02d", i, j), 1000,
				map[quota.FlavorResource]quota.Quota{fr: {Nominal: 400}, second: {Nominal: 4000}})
			queue.Join(cohort)
			queues = append(queues, queue)
		}
		cohort.Join(root)
	}
	lender = quota.NewNode("lender", 1000, map[quota.FlavorResource]quota.Quota{fr: {Nominal: 400 * int64(borrowing)}})
	lender.Join(root)
	r.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	for i, queue := range queues {
		each := int64(4)
		if i < borrowing {
			each = 8
		}
		for j := range 100 {
			w := &Workload{
				UID: types.UID(fmt.Sprintf("%s-%d", queue.Name, j)), Queue: queue, Priority: int32(r.IntN(3)), Cost: int64(r.IntN(10_000)),
				Reserved: time.Unix(int64(r.IntN(100_000)), 0), Queued: time.Unix(int64(r.IntN(100_000)), 0),
				Usage: quota.Amounts{fr: each, second: 40},
			}
			queue.Add(w.Usage)
			running[queue] = append(running[queue], w)
		}
	}
	return lender, running
}

// BenchmarkDecide decides once in a tree of 1,000 queues with 100,000 running
// Workloads, for few and for many victims, and in vain. Compare runs with
//
//	go test ./queueing/preemption -run none -bench Decide -count 6 | tee new.txt; benchstat old.txt new.txt
func BenchmarkDecide(b *testing.B) {
	for _, borrowing := range []int{10, 500} {
		lender, running := bigWorld(borrowing)
		for _, fair := range []bool{false, true} {
			for _, victims := range []int64{1, 100} {
				b.Run(fmt.Sprintf("borrowing=%d/fair=%v/victims=%d", borrowing, fair, victims), func(b *testing.B) {
					q := Preemptor{
						Queue: lender, Policy: both, Needs: quota.Amounts{gpu("gpu"): 8 * victims},
						Running: func(n *quota.Node) []*Workload { return running[n] },
					}
					if fair {
						q.FairSharing = &kueueconfig.FairSharing{}
					}
					if got := len(Decide(q).Targets); got != int(victims) {
						b.Fatalf("%d victims", got)
					}
					for b.Loop() {
						Decide(q)
					}
				})
			}
		}
	}
}
