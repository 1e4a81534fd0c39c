// Package forecast estimates when Workloads start. It runs the scheduling cycle itself forward in
// virtual time, on a copy of the State, in a simulated cluster that applies the decisions of cycles
// at once. It uses no API server, clock or log.
//
// An admitted Workload runs for a time drawn from the History of its LocalQueue and template, but no
// longer than its maximum execution time. Without history it runs for its maximum execution time, and
// without that for a time between shortestRun and longestRun. In one draw the latter never end: for a
// Workload that does not start in that draw, the estimate has no time, but the Workloads that have to
// end first. Machines are provisioned as the planner decides: existing ones at once, launches after a
// time drawn around LaunchTime and with the planner's chance of success, groups in backoff once that
// is over.
//
// Future Workloads arrive as the History of arrivals suggests, once it covers some hours: similar to
// the earlier ones, in the same LocalQueues, with the same priorities and rates, at times that each
// draw chooses. Arrivals behind all pending Workloads are never evaluated. It is unknown how long
// arrivals continue, so draws differ in that, too: at most for as long again as they were observed.
//
// A Forecast makes several draws. The median is the expected start; the first and the last are the
// range. AccuracyTracker compares them with the actual starts, and calibrates later ranges.
//
// Evaluating all pending Workloads at every step would cost too much. The State has only those that
// may be next: see pendingQueue.
//
// A forecast cannot anticipate kinds of jobs that were never submitted before, the results of
// admission checks that other controllers serve, and what users do. ResourceQuotas of namespaces do
// not change, and the machines of a launch are terminated when its Workload ends.
package forecast
