// Package queueing decides which Workload gets quota, on which flavors, and when it has to
// give it back. A cycle is a function of the objects and the time to verdicts with reasons;
// nothing here talks to an API server, a clock or a log.
//
// The words are Kueue's: a Workload is a gang of podSets that waits in a LocalQueue, which
// belongs to a ClusterQueue, which has quota by flavor. A Workload is pending, then it
// reserves quota, then, once its admission checks are Ready, it is admitted, and at last it
// is finished. An evicted Workload returns its quota and is pending again.
//
//	pending ──Reserve──▶ reserved ──Admit──▶ admitted ──(jobs)──▶ finished
//	   ▲                    │ Evict, quota returns │ Evict, quota returns
//	   └────────────────────┴──── at once ─────────┴ when no pod runs (jobs)
//
// Where a ClusterQueue has a check of the controller muster.dev/capacity, the planner is
// asked before quota is reserved, so that a flavor whose machines cannot be had is passed
// over. A Workload that needs both preemption and a launch creates its ProvisioningRequest
// first; its victims run until its nodes are booked.
//
// This package is the façade. The rooms behind it import each other in this order:
//
//	workload   pure functions of kueue.Workload
//	cache      the objects, the trees of cohorts with their usage, the pending order, timers
//	checks     admission checks: their state → a step
//	lifecycle  rules for Workloads that have quota, one a file → verdicts
//	scheduler  the cycle: gate → order → flavors → preemption → obtainability → backfill
//	status     what the statuses of queues and the metrics say
package queueing
