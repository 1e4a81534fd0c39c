// Package promises asserts the promises P1-P4, P7 and P9 of the design on the events
// of a cluster. A Checker is told of every version of every object, in the order
// of their resourceVersions, and of the passing of time; it answers with
// Violations. It has no client, goroutine or clock: the live edge, package
// invariants, feeds it from watches, a simulation from its own steps.
//
// Quota is read from the objects of ClusterQueues and Cohorts as a balance sheet,
// see ledger.go. It shares nothing with package queueing/quota, which decides by
// the same rules, but a test that compares the two.
//
// The words: an event is one version of an object, or its end. Listed events
// come from a list, not from a watch: what was between the last version seen and
// this one is unknown, and nothing is concluded from it. A gap is a span of
// revisions in which versions of one kind may have been missed. A suspect is a
// Violation that rests on the order of events; it is made known only after a
// while, in which nothing cast doubt on the order.
//
// What no watch can tell, and what the Checker makes of it:
//   - the author of a change. A Machine that vanishes without having been Terminated
//     counts as deleted by Muster. A test that plays the cloud sets its
//     status.phase to Terminated first, or scripts a fault of the pool.
//   - what a writer had seen. Two writes to different objects cannot be one, so
//     what happened less than Config.Race before a write is not held against it.
//   - when something happened. Times are those of observation.
//   - whether Muster ran. A test that stops it calls StandStill.
package promises
