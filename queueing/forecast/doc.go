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
// A Forecast makes several draws. The middle one is the expected start; the first
// and the last are the range. Account compares them with what came true.
//
// To judge all that wait at every step would cost too much, so only those are in the
// State whose turn may be next: see lane.
//
// What it cannot know: jobs that nobody has submitted yet, the answers of admission
// checks that other controllers serve, and people. ResourceQuotas of namespaces stay as
// they are, and the machines of a launch go when its Workload ends.
package forecast
