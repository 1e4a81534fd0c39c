package preemption

import (
	"slices"
	"testing"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

const (
	never        = kueue.PreemptionPolicyNever
	lower        = kueue.PreemptionPolicyLowerPriority
	lowerOrNewer = kueue.PreemptionPolicyLowerOrNewerEqualPriority
	anyPriority  = kueue.PreemptionPolicyAny
)

// borrowing lets a preemptor that borrows take from those of lower priority, up to
// a threshold.
func borrowing(threshold ...int32) kueue.ClusterQueuePreemption {
	b := &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
	if len(threshold) > 0 {
		b.MaxPriorityThreshold = &threshold[0]
	}
	return kueue.ClusterQueuePreemption{ReclaimWithinCohort: anyPriority, BorrowWithinCohort: b}
}

var both = kueue.ClusterQueuePreemption{WithinClusterQueue: lower, ReclaimWithinCohort: anyPriority}

func TestDecideWithoutFairSharing(t *testing.T) {
	for name, tc := range map[string]struct {
		tree, running, preemptor string
		policy                   kueue.ClusterQueuePreemption
		want                     string
	}{
		"a preemptor that fits preempts nothing": {
			"a gpu=4", "a1 a gpu=2", "a gpu=2 priority=9", within(lower), "",
		},
		"the lowest priority is preempted": {
			"a gpu=4", "low a gpu=2 priority=-1\nmiddle a gpu=2", "a gpu=2 priority=1", within(lower),
			"low InClusterQueue",
		},
		"of equal priority the latest admitted is preempted": {
			"a gpu=4", "old a gpu=2\nyoung a gpu=2", "a gpu=2 priority=1", within(lower),
			"young InClusterQueue",
		},
		"an equal that was queued later goes only if newer ones may": {
			"a gpu=2", "late a gpu=2 queued=5", "a gpu=2 queued=3", within(lowerOrNewer),
			"late InClusterQueue",
		},
		"an equal that was queued before stays": {
			"a gpu=2", "early a gpu=2 queued=1", "a gpu=2 queued=3", within(lowerOrNewer),
			"preemption cannot help: no Workload that may be preempted uses gpu in flavor spot (withinClusterQueue is LowerOrNewerEqualPriority, " +
				"the priority is 0)",
		},
		"without candidates that is the reason": {
			"a gpu=2", "a1 a gpu=2", "a gpu=2 priority=9", within(never),
			"preemption cannot help: no Workload that may be preempted uses gpu in flavor spot (withinClusterQueue is Never)",
		},
		"candidates that are too few are the reason": {
			"a gpu=8", "low a gpu=2\nhigh a gpu=5 priority=9", "a gpu=8 priority=1", within(lower),
			"preemption cannot help: only 3 of 8 gpu in flavor spot are free or used by Workloads that may be preempted (withinClusterQueue is " +
				"LowerPriority, the priority is 1)",
		},
		"nothing is preempted for what the ClusterQueue can never use": {
			"a gpu=8", "low a gpu=2", "a gpu=9 priority=1", within(lower),
			"preemption cannot help: the ClusterQueue may use at most 8 of 9 gpu in flavor spot (withinClusterQueue is LowerPriority, the " +
				"priority is 1)",
		},
		"a Workload that uses nothing of what is short stays": {
			"a gpu=2 cpu=8", "cpu a cpu=4\ngpu a gpu=2", "a gpu=1 cpu=4 priority=1", within(lower),
			"gpu InClusterQueue",
		},
		"what is found to be unnecessary stays": {
			"a gpu=8", "big a gpu=6\nsmall a gpu=2", "a gpu=6 priority=1", within(lower),
			"big InClusterQueue",
		},
		"of those that could stay the most important does": {
			"a gpu=6", "low a gpu=1\nmiddle a gpu=2 priority=1\nhigh a gpu=3 priority=2", "a gpu=4 priority=3", within(lower),
			"low InClusterQueue, high InClusterQueue",
		},
		"of those that are as important the most costly does": {
			"a gpu=6", "large a gpu=3\nmiddle a gpu=2 cost=1\nsmall a gpu=1 cost=9", "a gpu=4 priority=3", within(lower),
			"middle InClusterQueue, large InClusterQueue",
		},
		"an evicted Workload is not put back for another": {
			"a gpu=5", "going a gpu=1 priority=2 evicted\nlow a gpu=1\nhigh a gpu=3 priority=1", "a gpu=4 priority=3", within(lower),
			"going InClusterQueue, high InClusterQueue",
		},
		"one goes in place of several where it is the cheaper loss": {
			"a gpu=4", "big a gpu=2 cost=7\ns1 a gpu=1 cost=5\ns2 a gpu=1 cost=5", "a gpu=2 priority=1", within(lower),
			"big InClusterQueue",
		},
		"with the big one preempted, the evicted one is not waited for": {
			"a gpu=6", "big a gpu=3 cost=7\ns1 a gpu=1 cost=5\ns2 a gpu=1 cost=5\ngoing a gpu=1 evicted", "a gpu=3 priority=1", within(lower),
			"big InClusterQueue",
		},
		"several go where they are the cheaper loss": {
			"a gpu=4", "big a gpu=2 cost=11\ns1 a gpu=1 cost=5\ns2 a gpu=1 cost=5", "a gpu=2 priority=1", within(lower),
			"s2 InClusterQueue, s1 InClusterQueue",
		},
		"a more important one does not go to save several": {
			"a gpu=4", "big a gpu=2 priority=1\ns1 a gpu=1 cost=5\ns2 a gpu=1 cost=5", "a gpu=2 priority=2", within(lower),
			"s2 InClusterQueue, s1 InClusterQueue",
		},
		"an evicted Workload comes first, whatever its priority": {
			"a gpu=4", "going a gpu=2 priority=9 cost=99 evicted\nlow a gpu=2", "a gpu=2 priority=1", within(lower),
			"going InClusterQueue",
		},
		"the LocalQueue that has used most gives": {
			"a gpu=4", "greedy a gpu=2 priority=1 lately=9\nmodest a gpu=2 lately=1", "a gpu=2 priority=2", within(lower),
			"greedy InClusterQueue",
		},

		"a lender takes back what is its own": {
			"root\n\ta gpu=4\n\tb gpu=4", "b1 b gpu=4 priority=9\nb2 b gpu=4 priority=9", "a gpu=3", reclaim(anyPriority),
			"b2 InCohortReclamation",
		},
		"a lender takes back from lower priority only, if it says so": {
			"root\n\ta gpu=4\n\tb gpu=4", "b1 b gpu=4 priority=9\nb2 b gpu=4 priority=9", "a gpu=3", reclaim(lower),
			"preemption cannot help: no Workload that may be preempted uses gpu in flavor spot (withinClusterQueue is Never, reclaimWithinCohort " +
				"is LowerPriority, the priority is 0)",
		},
		"usage within nominal quota is not reclaimed": {
			"root gpu=2\n\ta gpu=4\n\tb gpu=4", "b1 b gpu=4\na1 a gpu=6", "a gpu=1 priority=9", reclaim(anyPriority),
			"preemption cannot help: no Workload that may be preempted uses gpu in flavor spot (withinClusterQueue is Never, reclaimWithinCohort " +
				"is Any, the priority is 9)",
		},
		"a queue gives until it is within its own quota": {
			"root\n\ta gpu=4\n\tb gpu=2\n\tc gpu=0", "b1 b gpu=2\nb2 b gpu=2\nc1 c gpu=2", "a gpu=4", reclaim(anyPriority),
			"c1 InCohortReclamation, b2 InCohortReclamation",
		},
		"others go before its own": {
			"root\n\ta gpu=4\n\tb gpu=2", "a1 a gpu=2\nb1 b gpu=4 priority=5", "a gpu=2 priority=1", both,
			"b1 InCohortReclamation",
		},
		"its own do not go to save others, however cheap": {
			"root\n\ta gpu=4\n\tb gpu=2", "a1 a gpu=2\nb0 b gpu=2 cost=99\nb1 b gpu=1 cost=5\nb2 b gpu=1 cost=5", "a gpu=2 priority=1", both,
			"b2 InCohortReclamation, b1 InCohortReclamation",
		},
		"a preemptor that would borrow preempts in its own queue only": {
			"root\n\ta gpu=2\n\tb gpu=2\n\tc gpu=4", "a1 a gpu=4\nb1 b gpu=4", "a gpu=2 priority=1", both,
			"a1 InClusterQueue",
		},
		"others give back before its own go": {
			"root\n\ta gpu=4\n\tb gpu=2", "b1 b gpu=1\nb2 b gpu=2\na2 a gpu=2 cost=100\na1 a gpu=1", "a gpu=2 priority=1", both,
			"b2 InCohortReclamation, a1 InClusterQueue",
		},
		"once no other gives, it may borrow, and more of its own stay": {
			"root\n\ta gpu=6\n\tb gpu=2\n\tc gpu=2",
			"b1 b gpu=3 priority=-1\na1 a gpu=1\na2 a gpu=1\na3 a gpu=1\na4 a gpu=1\na5 a gpu=1", "a gpu=4 priority=1", both,
			"a5 InClusterQueue, a4 InClusterQueue",
		},
		"its own go where others are above the threshold": {
			"root\n\ta gpu=4\n\tb gpu=2", "b1 b gpu=1\nb2 b gpu=2\na2 a gpu=2 cost=100\na1 a gpu=1", "a gpu=2 priority=1",
			kueue.ClusterQueuePreemption{WithinClusterQueue: lower, ReclaimWithinCohort: anyPriority,
				BorrowWithinCohort: borrowing(-1).BorrowWithinCohort}, "a2 InClusterQueue",
		},
		"a preemptor that would borrow preempts lower priority, if borrowWithinCohort says so": {
			"root\n\ta gpu=2\n\tb gpu=2\n\tc gpu=4", "a1 a gpu=4 priority=9\nb1 b gpu=4", "a gpu=2 priority=1", borrowing(),
			"b1 InCohortReclaimWhileBorrowing",
		},
		"a preemptor that would borrow may not preempt equal priority": {
			"root\n\ta gpu=2\n\tb gpu=2\n\tc gpu=4", "a1 a gpu=4 priority=9\nb1 b gpu=4 priority=1", "a gpu=2 priority=1", borrowing(),
			"preemption cannot help: the ClusterQueue would have to borrow, and borrowWithinCohort does not let it preempt the Workloads that " +
				"use gpu in flavor spot (withinClusterQueue is Never, reclaimWithinCohort is Any, the priority is 1)",
		},
		"a preemptor that would borrow may not preempt above the threshold": {
			"root\n\ta gpu=2\n\tb gpu=2\n\tc gpu=4", "a1 a gpu=4 priority=9\nb1 b gpu=2 priority=1\nb2 b gpu=2 priority=2",
			"a gpu=2 priority=5", borrowing(1),
			"b1 InCohortReclaimWhileBorrowing",
		},
		"one threshold more, and the younger goes": {
			"root\n\ta gpu=2\n\tb gpu=2\n\tc gpu=4", "a1 a gpu=4 priority=9\nb1 b gpu=2 priority=2\nb2 b gpu=2 priority=2",
			"a gpu=2 priority=5", borrowing(2),
			"b2 InCohortReclaimWhileBorrowing",
		},
		"one small victim does not protect a big one": {
			// Without the small one, b would be within its quota, and c may not be preempted.
			"root\n\ta gpu=1 cpu=4\n\tb gpu=4 cpu=4\n\tc",
			"big b gpu=4 cpu=4\nsmall b gpu=1\nc1 c cpu=4 priority=9", "a gpu=1 cpu=4 priority=5", reclaim(lower),
			"big InCohortReclamation",
		},

		"an organisation takes back from another what it has lent, in a tree": {
			`
company
	research gpu=0
		vision gpu=4
		speech gpu=4
	product gpu=0
		ads gpu=2
		search gpu=2`,
			"v1 vision gpu=4\nads1 ads gpu=4\nads2 ads gpu=4", "speech gpu=4", reclaim(anyPriority),
			"ads2 InCohortReclamation",
		},
		"a queue that borrows within its organisation's quota is safe from others": {
			`
company
	research
		vision gpu=4
		speech gpu=4
	product
		ads gpu=8
	spare
		spot gpu=0`,
			"v1 vision gpu=4\nv2 vision gpu=4\ns1 spot gpu=4\nads1 ads gpu=4", "ads gpu=4", reclaim(anyPriority),
			"s1 InCohortReclamation",
		},
		"a queue that borrows within its organisation's quota reclaims": {
			`
company
	research gpu=4
		vision gpu=0
	product
		ads gpu=2`,
			"ads1 ads gpu=3 priority=9\nads2 ads gpu=3 priority=9", "vision gpu=3", reclaim(anyPriority),
			"ads2 InCohortReclamation",
		},
		"a queue within its nominal quota reclaims, though its organisation is not": {
			`
company
	research
		vision gpu=2
		speech gpu=0
	product
		ads gpu=2`,
			"s1 speech gpu=1 priority=9\nads1 ads gpu=3", "vision gpu=2 priority=1", borrowing(),
			"ads1 InCohortReclamation",
		},
		"of equals the nearer goes": {
			`
company
	research
		vision gpu=2
		speech gpu=2
	product
		ads gpu=2
	shared
		all gpu=4`,
			"far ads gpu=5 at=9\nnear speech gpu=5 at=1", "vision gpu=2", reclaim(anyPriority),
			"near InCohortReclamation",
		},
		"quota that is not lent cannot be reclaimed by others": {
			"root\n\ta gpu=0\n\tb gpu=4 gpu.lend=0", "b1 b gpu=4", "a gpu=1 priority=9", reclaim(anyPriority),
			"preemption cannot help: the ClusterQueue may use at most 0 of 1 gpu in flavor spot (withinClusterQueue is Never, " +
				"reclaimWithinCohort is Any, the priority is 9)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.tree, tc.running)
			if got := show(Decide(w.question(t, tc.preemptor, tc.policy))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestDecideWithFairSharing(t *testing.T) {
	final, initial := kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare
	for name, tc := range map[string]struct {
		tree, running, preemptor string
		strategies               []kueueconfig.PreemptionStrategy
		policy                   *kueue.ClusterQueuePreemption
		want                     string
	}{
		"the larger share gives": {
			tree:    "root gpu=6\n\ta\n\tb\n\tc",
			running: "a1 a gpu=1\nb1 b gpu=1\nb2 b gpu=1\nb3 b gpu=1\nc1 c gpu=1\nc2 c gpu=1", preemptor: "a gpu=1",
			want: "b3 InCohortFairSharing",
		},
		"a smaller share does not give to save the larger, however cheap": {
			tree:    "root gpu=10\n\ta\n\tb\n\tc",
			running: "b0 b gpu=4 cost=99\nb1 b gpu=1 cost=5\nb2 b gpu=1 cost=5\nc1 c gpu=2\nc2 c gpu=2 cost=99", preemptor: "a gpu=2",
			want: "b2 InCohortFairSharing, b1 InCohortFairSharing",
		},
		"once its own queue has given, the strategy that comes first chooses again": {
			tree: "root\n\ta gpu=2\n\tb gpu=2\n\tc gpu=2", policy: &both,
			running:   "a1 a gpu=1 priority=-1\na2 a gpu=1 priority=-1\nbig b gpu=2 priority=-1\nb1 b gpu=1\nb2 b gpu=1",
			preemptor: "a gpu=3", strategies: []kueueconfig.PreemptionStrategy{initial, final},
			want: "a2 InClusterQueue, a1 InClusterQueue, big InCohortFairSharing",
		},
		"equal shares stay as they are": {
			tree:    "root gpu=6\n\ta\n\tb\n\tc",
			running: "a1 a gpu=2\nb1 b gpu=2\nc1 c gpu=2", preemptor: "a gpu=1",
			want: "preemption cannot help: the ClusterQueues that use gpu in flavor spot have no larger share, or would be below their nominal " +
				"quota (withinClusterQueue is LowerPriority, reclaimWithinCohort is Any, the priority is 0)",
		},
		"weights are shares: one of three parts is full at a third": {
			tree:    "root gpu=6\n\ta weight=1\n\tb weight=2",
			running: "a1 a gpu=1\na2 a gpu=1\nb1 b gpu=1\nb2 b gpu=1\nb3 b gpu=1\nb4 b gpu=1", preemptor: "a gpu=1",
			want: "preemption cannot help: the ClusterQueues that use gpu in flavor spot have no larger share, or would be below their nominal " +
				"quota (withinClusterQueue is LowerPriority, reclaimWithinCohort is Any, the priority is 0)",
		},
		"weights are shares: two of three parts are not full at a half": {
			tree:    "root gpu=6\n\ta weight=1\n\tb weight=2",
			running: "a1 a gpu=1\na2 a gpu=1\na3 a gpu=1\nb1 b gpu=1\nb2 b gpu=1\nb3 b gpu=1", preemptor: "b gpu=1",
			want: "a3 InCohortFairSharing",
		},
		"without weight all that is borrowed is too much": {
			tree:    "root gpu=4\n\ta\n\tb weight=0",
			running: "a1 a gpu=3\nb1 b gpu=1", preemptor: "a gpu=1",
			want: "b1 InCohortFairSharing",
		},
		"by the final share a big one stays where its queue would have less than the preemptor": {
			tree:    "root gpu=6\n\ta\n\tb",
			running: "b1 b gpu=6", preemptor: "a gpu=1", strategies: []kueueconfig.PreemptionStrategy{final},
			want: "preemption cannot help: the ClusterQueues that use gpu in flavor spot have no larger share, or would be below their nominal " +
				"quota (withinClusterQueue is LowerPriority, reclaimWithinCohort is Any, the priority is 0)",
		},
		"an evicted Workload comes first, whatever the share": {
			tree:    "root gpu=6\n\ta\n\tb\n\tc",
			running: "b1 b gpu=4\nc1 c gpu=1 priority=9 evicted\na1 a gpu=1", preemptor: "a gpu=1",
			want: "c1 InCohortFairSharing",
		},
		"of a queue and an organisation with equal shares the organisation gives": {
			tree:    "root gpu=8\n\ta\n\tq\n\tx\n\t\tc",
			running: "c1 c gpu=2\nc2 c gpu=2\nq1 q gpu=2\nq2 q gpu=2", preemptor: "a gpu=2",
			want: "c2 InCohortFairSharing",
		},
		"where the largest share is protected, the next largest gives": {
			tree:    "root gpu=13\n\ta\n\tb\n\tc\n\td",
			running: "b1 b gpu=6\nc1 c gpu=2\nc2 c gpu=2\nd1 d gpu=2\nd2 d gpu=1", preemptor: "a gpu=1",
			strategies: []kueueconfig.PreemptionStrategy{final}, want: "c2 InCohortFairSharing",
		},
		"by the initial share the big one goes": {
			tree:    "root gpu=6\n\ta\n\tb",
			running: "b1 b gpu=6", preemptor: "a gpu=1", strategies: []kueueconfig.PreemptionStrategy{initial},
			want: "b1 InCohortFairSharing",
		},
		"by both a small one goes that leaves the share large": {
			tree:    "root gpu=8\n\ta\n\tb",
			running: "a1 a gpu=2\nsmall b gpu=1 priority=1\nbig b gpu=5", preemptor: "a gpu=1",
			want: "small InCohortFairSharing",
		},
		"by the initial share alone the least important goes": {
			tree:    "root gpu=8\n\ta\n\tb",
			running: "a1 a gpu=2\nsmall b gpu=1 priority=1\nbig b gpu=5", preemptor: "a gpu=1",
			strategies: []kueueconfig.PreemptionStrategy{initial}, want: "big InCohortFairSharing",
		},
		"within its own quota the preemptor reclaims, whatever the shares": {
			tree:    "root gpu=0\n\ta gpu=2 cpu=0\n\tb gpu=2 cpu=8",
			running: "a1 a cpu=8\nb1 b gpu=1\nb2 b gpu=3", preemptor: "a gpu=2",
			want: "b2 InCohortReclamation",
		},
		"its own go where they are the largest share": {
			tree:    "root gpu=4\n\ta\n\tb",
			running: "a1 a gpu=3\nb1 b gpu=1", preemptor: "a gpu=3 priority=1",
			want: "a1 InClusterQueue",
		},
		"siblings are compared, not cousins": {
			// a has less than c, but its organisation has more than that of c.
			tree: `
root gpu=8
	x
		a
		b
	y
		c`,
			running: "a1 a gpu=1\nb1 b gpu=4\nc1 c gpu=3", preemptor: "a gpu=1",
			want: "b1 InCohortFairSharing",
		},
		"an organisation with the larger share gives to another": {
			tree: `
root gpu=9
	x weight=2
		a
		b
	y weight=1
		c
		d`,
			running: "a1 a gpu=2\nb1 b gpu=2\nc1 c gpu=1\nd1 d gpu=1\nd2 d gpu=1\nd3 d gpu=2", preemptor: "a gpu=1",
			want: "d3 InCohortFairSharing",
		},
		"lower priority alone is asked, if it says so": {
			tree:    "root gpu=6\n\ta\n\tb",
			running: "b1 b gpu=2 priority=5\nb2 b gpu=2 priority=5\nb3 b gpu=2", preemptor: "a gpu=2 priority=3",
			policy: &kueue.ClusterQueuePreemption{ReclaimWithinCohort: lower},
			want:   "b3 InCohortFairSharing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.tree, tc.running)
			policy := both
			if tc.policy != nil {
				policy = *tc.policy
			}
			q := w.question(t, tc.preemptor, policy)
			q.FairSharing = &kueueconfig.FairSharing{PreemptionStrategies: tc.strategies}
			if got := show(Decide(q)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestQueuesWithinNominalQuotaAreSkipped keeps a question about a tree of many queues
// cheap: the Workloads of a ClusterQueue within its nominal quota are not listed.
func TestQueuesWithinNominalQuotaAreSkipped(t *testing.T) {
	w := newWorld(t, "root\n\ta gpu=4\n\tb gpu=4\n\tc gpu=4\n\td gpu=4", "b1 b gpu=4\nc1 c gpu=8\nd1 d gpu=4")
	q := w.question(t, "a gpu=4", reclaim(anyPriority))
	var asked []string
	running := q.Running
	q.Running = func(n *quota.Node) []*Workload {
		asked = append(asked, n.Name)
		return running(n)
	}
	Decide(q)
	if !slices.Equal(asked, []string{"c"}) {
		t.Errorf("asked %v, want c alone", asked)
	}
}
