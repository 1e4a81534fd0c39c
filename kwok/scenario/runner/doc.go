// Package runner runs a scenario on a sandbox: it creates what the scenario has, submits its Jobs when they are due, observes them by
// watches, and passes the record to package report. The promises are checked all along.
//
// Pods that start together get a run time of a year; once all pods of their Job run, one write for each sets its end. This is the same
// for every admitter.
//
// A job of another kind has its run time in its object, and is over when its Workload is.
package runner
