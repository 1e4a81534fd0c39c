package preemption

import (
	"slices"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// allowed reports whether the candidate may be preempted with the current usage.
func (t *simulation) allowed(c *candidate) bool {
	if c.Evicted || c.distance == 0 {
		return true
	}
	if slices.ContainsFunc(c.path, func(n *quota.Node) bool { return !t.isBorrowing(n) }) {
		return false
	}
	return t.FairSharing == nil || t.within() ||
		slices.ContainsFunc(t.strategies(), func(s kueueconfig.PreemptionStrategy) bool { return t.fair(s, c) })
}

// reason returns the reason for preempting the candidate with the current usage.
func (t *simulation) reason(c *candidate) string {
	switch {
	case c.distance == 0:
		return kueue.InClusterQueueReason
	case t.FairSharing != nil && !t.within():
		return kueue.InCohortFairSharingReason
	case t.FairSharing != nil || c.hierarchicalAdvantage || c.forbidsBorrowing || !MayBorrow(t.Policy.BorrowWithinCohort):
		return kueue.InCohortReclamationReason
	}
	return kueue.InCohortReclaimWhileBorrowingReason
}

// within reports whether the ClusterQueue of the preemptor has the nominal quota for the resources that are short.
func (t *simulation) within() bool {
	return !slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool {
		return t.Queue.Borrows(fr, t.Needs[fr])
	})
}

// strategies returns the fair sharing strategies in the order in which they are tried.
func (t *simulation) strategies() []kueueconfig.PreemptionStrategy {
	if len(t.FairSharing.PreemptionStrategies) > 0 {
		return t.FairSharing.PreemptionStrategies
	}
	return []kueueconfig.PreemptionStrategy{kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare}
}

// fair reports whether the strategy allows to preempt the candidate: it compares the shares of the preemptor's and the
// candidate's ancestors below the common cohort.
func (t *simulation) fair(strategy kueueconfig.PreemptionStrategy, c *candidate) bool {
	ours := t.share(t.path[c.distance-1])
	theirs := c.path[len(c.path)-1]
	initial := ours.Compare(t.share(theirs))
	if strategy == kueueconfig.LessThanInitialShare || initial > 0 {
		return initial < 0
	}
	c.Queue.Sub(c.Usage)
	final := theirs.Share()
	c.Queue.Add(c.Usage)
	return ours.Compare(final) <= 0
}

// share returns the current share of a node, including the preemptor.
func (t *simulation) share(n *quota.Node) quota.Share {
	s, ok := t.shares[n]
	if !ok {
		t.Queue.Add(t.Needs)
		s = n.Share()
		t.Queue.Sub(t.Needs)
		t.shares[n] = s
	}
	return s
}
