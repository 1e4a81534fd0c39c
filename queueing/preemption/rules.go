package preemption

import (
	"slices"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// allowed says that the candidate may be asked to go as things are now.
func (t *trial) allowed(c *candidate) bool {
	if c.Evicted || c.distance == 0 {
		return true
	}
	if slices.ContainsFunc(c.below, func(n *quota.Node) bool { return !t.over(n) }) {
		return false
	}
	return t.FairSharing == nil || t.within() ||
		slices.ContainsFunc(t.strategies(), func(s kueueconfig.PreemptionStrategy) bool { return t.fair(s, c) })
}

// reason is that for which the candidate goes as things are now.
func (t *trial) reason(c *candidate) string {
	switch {
	case c.distance == 0:
		return kueue.InClusterQueueReason
	case t.FairSharing != nil && !t.within():
		return kueue.InCohortFairSharingReason
	case t.FairSharing != nil || c.entitled || c.bound || !MayBorrow(t.Policy.BorrowWithinCohort):
		return kueue.InCohortReclamationReason
	}
	return kueue.InCohortReclaimWhileBorrowingReason
}

// within says that the ClusterQueue of the preemptor has the quota for what is
// short.
func (t *trial) within() bool {
	return !slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool {
		return t.Queue.Borrows(fr, t.Needs[fr])
	})
}

// strategies are those of fair sharing, the one to be tried first at the head.
func (t *trial) strategies() []kueueconfig.PreemptionStrategy {
	if len(t.FairSharing.PreemptionStrategies) > 0 {
		return t.FairSharing.PreemptionStrategies
	}
	return []kueueconfig.PreemptionStrategy{kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare}
}

// fair says that the strategy lets the candidate go: it compares the shares of
// the preemptor's and the candidate's side of the cohort in which they meet.
func (t *trial) fair(strategy kueueconfig.PreemptionStrategy, c *candidate) bool {
	ours := t.share(t.path[c.distance-1])
	theirs := c.below[len(c.below)-1]
	initial := ours.Compare(t.share(theirs))
	if strategy == kueueconfig.LessThanInitialShare || initial > 0 {
		return initial < 0
	}
	c.Queue.Sub(c.Usage)
	final := theirs.Share()
	c.Queue.Add(c.Usage)
	return ours.Compare(final) <= 0
}

// share is that of a node now, with the preemptor in its place.
func (t *trial) share(n *quota.Node) quota.Share {
	s, ok := t.shares[n]
	if !ok {
		t.Queue.Add(t.Needs)
		s = n.Share()
		t.Queue.Sub(t.Needs)
		t.shares[n] = s
	}
	return s
}
