// Package scheduler is one scheduling cycle over the queues:
//
//	gate → order → flavor assignment → preemption → obtainability → backfill → verdicts
//
// The gate returns the reason why a pending Workload cannot be evaluated, if there is one. The heads
// of the ClusterQueues of a cohort are ordered. Each head gets an assignment of flavors that match its
// pods, that have the quota, with preemption if necessary, and whose machines can be obtained.
package scheduler
