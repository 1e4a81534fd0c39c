// Package promises verifies the promises P1-P4, P7 and P9 of the design on the events
// of a cluster. A Checker gets every version of every object, in the order of their
// resourceVersions, and the time, and returns Violations. It has no client, goroutine
// or clock: package invariants feeds it from watches, and a simulation from its steps.
//
// Quota is read from the objects of ClusterQueues and Cohorts as a balance sheet, see
// ledger.go. It shares no code with package queueing/quota, which decides by the same
// rules. A test compares the two.
//
// An event is one version of an object, or its end. A Listed event comes from a list,
// not from a watch: versions between the last one observed and this one are unknown,
// and nothing is concluded from them. A gap is a range of revisions in which versions
// of one kind may have been missed. A suspect is a Violation that depends on the order
// of events. It is confirmed after a while in which no event cast doubt on the order.
//
// Watches do not show everything. The Checker makes these assumptions:
//   - the author of a change: a Machine that vanishes without having been Terminated
//     counts as deleted by Muster. A test that plays the cloud sets its
//     status.phase to Terminated first, or scripts a fault of the pool.
//   - what a writer had observed: two objects cannot be written atomically, so
//     an event less than Config.Race before a write may be unknown to its writer.
//   - the time of an event: it is the time of observation.
//   - whether Muster ran: a test that stops it calls StandStill.
package promises
