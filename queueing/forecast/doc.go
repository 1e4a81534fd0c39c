// Package forecast tells when Workloads are expected to start: it runs the very
// cycle of queueing forward in virtual time, on a copy of the State, in a cluster
// that does at once what cycles decide. Nothing here talks to an API server, a clock or a log.
//
// A Workload that is admitted runs for a time drawn from the History of its
// LocalQueue and template, but no longer than its maximum execution time; where
// history knows nothing, for its maximum execution time; else for a time between
// shortestRun and longestRun. Machines come as the planner's advice has it: those
// that are there at once, launches after a time drawn around launchTime and with the chance
// that the planner gives them, groups in backoff when that is over.
//
// Those that have not been submitted yet come as the History of arrivals has it: like
// those before them, from the same LocalQueues and with the same priorities, as often as
// they did, at times that each draw chooses anew. Those that come only behind all who
// wait are never judged. As nobody knows for how long they go on coming, draws differ in
// that, too: at most for as long again as they have been seen to come.
//
// A Forecast makes several draws. The middle one is the expected start; the first
// and the last are the range. Account compares them with what came true, and stretches
// the ranges of later ones by what it has learned.
//
// To judge all that wait at every step would cost too much, so only those are in the
// State whose turn may be next: see lane.
//
// What it cannot know: kinds of jobs that nobody has submitted before, the answers of
// admission checks that other controllers serve, and people. ResourceQuotas of namespaces stay as
// they are, and the machines of a launch go when its Workload ends.
package forecast
