// Package forecast estimates when Workloads start. It runs the queueing cycle itself
// forward in virtual time, on a copy of the State, in a simulated cluster that carries out
// at once what cycles decide. It uses no API server, clock or log.
//
// An admitted Workload runs for a time drawn from the History of its LocalQueue and
// template, but no longer than its maximum execution time. Without history it runs for its
// maximum execution time, and without that for a time between shortestRun and longestRun.
// In one draw the latter never end: a Workload that does not start in that draw is told
// which Workloads have to end first, and no time. Machines come as the planner advises:
// existing ones at once, launches after a time drawn around LaunchTime and with the
// planner's chance of success, groups in backoff once that is over.
//
// Future Workloads arrive as the History of arrivals suggests, once it covers some hours:
// like the earlier ones, from the same LocalQueues, with the same priorities and as often,
// at times that each draw chooses. Arrivals behind all pending Workloads are never judged.
// How long arrivals continue is unknown, so draws differ in that, too: at most for as long
// again as arrivals have been observed.
//
// A Forecast makes several draws. The middle one is the expected start; the first
// and the last are the range. Account compares them with the actual starts, and stretches
// later ranges by what it has learned.
//
// To judge all pending Workloads at every step would cost too much. The State has only
// those that may be next: see lane.
//
// A forecast cannot know kinds of jobs that were never submitted before, the answers of
// admission checks that other controllers serve, and what users do. ResourceQuotas of
// namespaces stay as they are, and the machines of a launch go when its Workload ends.
package forecast
