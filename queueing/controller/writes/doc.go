// Package writes carries out what the queues decide: which writes follow from a verdict,
// in which order they go to the API server, and what became of them.
//
// The status of a Workload is written the way that Kueue's API expects: by server-side
// apply, all that the queues own at once, under one field manager, and only on the version
// that was read.
package writes
