// Package scheduler is one cycle over the queues:
//
//	gate → order → flavor assignment → preemption → obtainability → backfill → verdicts
//
// A pending Workload passes the gate, which says what keeps it from being judged at all.
// The heads of the ClusterQueues of a cohort are ordered, and each is assigned flavors that
// suit its pods, have the quota, by preemption if need be, and whose machines can be had.
package scheduler
