// Package preemption chooses the Workloads to preempt so that a pending Workload,
// the preemptor, fits. Decide is a function of the quota tree with its current usage
// and of the Workloads that use it; it has no clock and no client. It removes and
// adds usage on the tree itself, and restores the tree before it returns.
//
// The candidates are those of Kueue's contract:
//
//   - in the preemptor's ClusterQueue, as withinClusterQueue allows;
//   - elsewhere in the tree, as reclaimWithinCohort allows, and only where the
//     ClusterQueue and every cohort below the one that it has in common with the
//     preemptor borrow a resource that the preemptor lacks. Usage within nominal
//     quota is never reclaimed;
//   - without fair sharing, a preemptor that fits within the nominal quota of its
//     ClusterQueue, or of a cohort around it, reclaims from every ClusterQueue outside
//     of that. It preempts other candidates only if it does not borrow afterwards, or
//     as borrowWithinCohort allows;
//   - with fair sharing, a preemptor that fits within the nominal quota of its
//     ClusterQueue reclaims. Otherwise the preemption strategies compare the shares of
//     the two siblings that lead to the preemptor and to the candidate.
//
// Victims are chosen in this order: evicted Workloads first, then other ClusterQueues
// before the own, lower priority before higher, near before far, and later reserved
// before earlier. With fair sharing the largest share comes first. Victims that turn
// out to be unnecessary are put back. Finally, a single candidate replaces several
// victims if it is enough, ranks no higher in this order and costs less.
//
// The outcome agrees with that of Kueue 0.19, except that
//
//   - other orders are tried before preemption is given up, since preempting a small
//     Workload first can protect a large one of the same ClusterQueue;
//   - a Workload that is being evicted for another reason is a candidate whatever its
//     priority;
//   - with fair sharing, a ClusterQueue that is within its nominal quota of the
//     resources that are short, and borrows only others, is left alone;
//   - with fair sharing, a victim near the preemptor is not put back if that is
//     possible only because a far one has been removed.
package preemption
