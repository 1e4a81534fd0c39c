package cache

import (
	"cmp"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// Tree is a cohort with all below it, or a ClusterQueue that has none: what is
// used in one queue of it may matter to all others, and to none outside.
type Tree struct {
	Root   *quota.Node
	Queues []*ClusterQueue
	// Released says that quota came back, so that what was refused may fit now.
	Released bool
	// Claimed says that quota was kept for Workloads that wait for their victims, or
	// for a time to come. Then nobody may be judged without those ahead of him.
	Claimed bool
	// MissedCandidates says that preemption was considered while a Workload had been given quota
	// that its object did not show yet, so it could not be asked to leave.
	MissedCandidates bool
	// HeadReservations is quota that is not lent, as of the last drain.
	HeadReservations []HeadReservation
	// MessagesOutdated says that quota was given out since some Workloads were told how much is
	// free. At stale all are judged again for that; zero if what they were told is true.
	MessagesOutdated bool
	RejudgeAt        time.Time
}

// messagesMayLag is how long what a Workload was told may be untrue.
const messagesMayLag = 10 * time.Second

// noteUse notes that more is used.
func (t *Tree) noteUse() {
	t.MessagesOutdated = t.MessagesOutdated || slices.ContainsFunc(t.Queues, func(q *ClusterQueue) bool { return len(q.Inadmissible) > 0 })
}

// ScheduleRejudge sets the time at which the Workloads of the tree are judged again whose
// messages are not true any more.
func (t *Tree) ScheduleRejudge(now time.Time) {
	if t.MessagesOutdated && t.RejudgeAt.IsZero() {
		t.RejudgeAt = now.Add(messagesMayLag)
	}
	t.MessagesOutdated = false
}

// buildTrees makes the trees of cohorts. A cohort that nobody has made is one without
// quota of its own; cohorts in a circle form no tree, and their queues are put
// into trees of their own, which are inactive.
func (s *Cache) buildTrees() {
	nodes := map[kueue.CohortReference]*quota.Node{}
	parents := map[kueue.CohortReference]kueue.CohortReference{}
	var names []kueue.CohortReference
	var add func(name kueue.CohortReference)
	add = func(name kueue.CohortReference) {
		if nodes[name] != nil {
			return
		}
		names = append(names, name)
		cohort := s.Cohorts[name]
		if cohort == nil {
			nodes[name] = quota.NewNode(string(name), 1000, nil)
			return
		}
		nodes[name] = quota.NewNode(string(name), weightOf(cohort.Spec.FairSharing), quotasOf(cohort.Spec.ResourceGroups))
		if cohort.Spec.ParentName != "" {
			parents[name] = cohort.Spec.ParentName
			add(cohort.Spec.ParentName)
		}
	}
	for name := range s.Cohorts {
		add(name)
	}
	for _, q := range s.Order {
		if q.Object.Spec.CohortName != "" {
			add(q.Object.Spec.CohortName)
		}
	}
	slices.Sort(names)
	// depth is how many cohorts are above one; -1 in or below a circle.
	depth := func(name kueue.CohortReference) int {
		for d := 0; ; d++ {
			parent, ok := parents[name]
			if !ok {
				return d
			}
			if d > len(names) {
				return -1
			}
			name = parent
		}
	}
	slices.SortStableFunc(names, func(a, b kueue.CohortReference) int { return cmp.Compare(depth(b), depth(a)) })
	for _, q := range s.Order {
		q.circular = q.Object.Spec.CohortName != "" && depth(q.Object.Spec.CohortName) < 0
		if q.Object.Spec.CohortName != "" && !q.circular {
			q.Node.Join(nodes[q.Object.Spec.CohortName])
		}
	}
	for _, name := range names {
		if parent, ok := parents[name]; ok && depth(name) >= 0 {
			nodes[name].Join(nodes[parent])
		}
	}
	s.cohortNodes = nodes
	s.Trees = s.Trees[:0]
	of := map[*quota.Node]*Tree{}
	for _, q := range s.Order {
		root := q.Node.Root()
		if of[root] == nil {
			of[root] = &Tree{Root: root, Released: true}
			s.Trees = append(s.Trees, of[root])
		}
		q.Tree = of[root]
		q.Tree.Queues = append(q.Tree.Queues, q)
	}
}
