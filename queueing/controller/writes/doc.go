// Package writes executes the decisions of the queues: it derives the writes of a verdict, sends them to the API server in order, and
// returns their outcome.
//
// The status of a Workload is written as Kueue's API expects: by server-side apply of all fields that the queues own, under one field
// manager, and only on the version that was read.
package writes
