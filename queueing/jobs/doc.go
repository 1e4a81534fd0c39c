// Package jobs keeps jobs in step with their Workloads, whatever their Kind: a
// suspended job gets a Workload that queues for it, starts when the Workload is
// admitted, stops when the Workload is evicted, and its end finishes the Workload.
//
//	suspended, no Workload ──create──▶ pending ──admitted──▶ start ──▶ running ──▶ finished
//	                                     ▲                              │ evicted, or suspended by a user and so evicted
//	                                     └─ release quota ◀── restore ◀── stop, until no pod is left
//
//	running before Muster came, or Workload vanished ──create──▶ adopted ──admitted, whatever the quota──▶ running
//
// The table of transitions has an action for each state of a job and of its Workload.
// A reconciliation reads both states and executes the action with one write. The event
// of that write enqueues the next action.
//
// A job that names a prebuilt Workload becomes its owner as soon as it exists, and is
// admitted by it if its podSets are those of the job.
//
// A job is queued if its label kueue.x-k8s.io/queue-name names a LocalQueue, or if the
// configuration queues all jobs of its namespace.
//
// A start records in an annotation what it changed of the job, so that the job can be
// restored whatever has become of the Workload. While a job runs, its Workload follows
// its priority class, releases the quota of pods that are over, reports whether all pods
// are ready where the configuration waits for that, and is evicted if the API server
// refuses all pods: the job then makes room for others, and is tried again later.
package jobs
