// Package report says how a run of a scenario went. A Record is what was observed,
// as it was observed; Of makes the figures and curves of it; Text, HTML and Compare
// show them. All of it is pure: the same record gives the same report.
//
// Times in a record are those of the wall, from the first submission on; those in a
// report are scenario time, if it does not say otherwise.
package report
