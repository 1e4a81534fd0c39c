// Package queueing decides which Workload gets quota, on which flavors, and when it releases it. A
// cycle is a function of the objects and the time to verdicts with reasons; nothing here uses an API
// server, a clock or a log.
//
// The words are Kueue's: a Workload is a gang of podSets that waits in a LocalQueue, which belongs to
// a ClusterQueue with quota by flavor. A pending Workload reserves quota. Once its admission checks are
// Ready it is admitted, and at last it is finished. An evicted Workload releases its quota and is
// pending again.
//
//	pending ──Reserve──▶ reserved ──Admit──▶ admitted ──(jobs)──▶ finished
//	   ▲                    │ Evict, quota released │ Evict, quota released
//	   └────────────────────┴──── at once ──────────┴ when no pod runs (jobs)
//
// If a ClusterQueue has a check of the controller muster.dev/capacity, the planner decides before quota
// is reserved whether the machines of a flavor can be obtained; otherwise the next flavor is tried. A
// Workload that needs both preemption and a launch creates its ProvisioningRequest first; its victims
// run until its nodes are booked.
//
// This package is the façade. The packages behind it import each other in this order:
//
//	workload   pure functions of kueue.Workload
//	cache      the objects, the cohort trees with their usage, the pending order, timers
//	checks     admission checks: their state → a step
//	lifecycle  rules for Workloads that have quota, one per file → verdicts
//	scheduler  the cycle: gate → order → flavors → preemption → obtainability → backfill
//	status     the statuses of queues and the metrics
package queueing
