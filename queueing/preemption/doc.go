// Package preemption decides which running Workloads make room for one that
// waits. Decide is a function of the tree of quotas, as it is used now, and of the
// Workloads that use it: no clock and no client. It tries on the tree itself and
// leaves it as it was.
//
// Who may be asked to go is Kueue's contract:
//
//   - in the same ClusterQueue, as withinClusterQueue says;
//   - elsewhere in the tree, as reclaimWithinCohort says, and only where the
//     ClusterQueue and every cohort up to the one that it has in common with the
//     newcomer use more than their own of something that the newcomer lacks. What
//     is within its own quota is never touched;
//   - without fair sharing, a newcomer whose ClusterQueue, or a cohort around it,
//     has the quota to take it in reclaims from all that lie outside. Others it may
//     ask only if it does not borrow then, or as borrowWithinCohort says;
//   - with fair sharing, a newcomer whose ClusterQueue has the quota reclaims, and
//     otherwise the shares of the two siblings that lead to the newcomer and to the
//     victim are compared, as the preemption strategies say.
//
// Among those, the choice is what costs least: first what is on its way out
// anyway, then other ClusterQueues before the own, low priority before high, near
// before far, young before old; with fair sharing the largest share first. Whom
// the newcomer can do without then stays. At last, where one single victim, no
// dearer to its owner by this order, would do for less than what is lost with
// several, it alone goes.
//
// In what people rely on this agrees with Kueue 0.19. It differs where
//
//   - a small victim in front would protect a big one behind it: other orders are
//     tried before nobody goes;
//   - a Workload is on its way out for another reason: it is counted on, whatever
//     its priority;
//   - with fair sharing, a ClusterQueue is within its quota of what is short and
//     over it in something else: it is left alone;
//   - with fair sharing, a victim near the newcomer could be put back only because
//     a far one has already gone for it: it is not.
package preemption
