// Package runner runs a scenario on a sandbox: it creates what the scenario has,
// submits its Jobs when they are due, observes by watches what becomes of them, and
// hands the record to package report. The promises are watched all along.
//
// Pods whose run begins together run for a year until they are told otherwise: once
// all pods of their Job run, each gets one write that says until when. It is the same
// for whoever admits the Jobs.
package runner
