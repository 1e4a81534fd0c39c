// Package jobs keeps batch/v1 Jobs that are in a queue in step with their
// Workloads: a Job gets a Workload to queue for it, is started when the Workload
// is admitted, stopped when it loses that, and its end is the Workload's end.
//
//	suspended, no Workload ──create──▶ queued ──admitted──▶ start ──▶ running ──▶ finished
//	                                     ▲                              │ evicted, or suspended by hand and so evicted
//	                                     └── quota back ◀── restore ◀── stop, until no pod is left
//
//	running before Muster came ──create──▶ adopted ──admitted, whatever the quota──▶ running
//
// A Job that names a prebuilt Workload takes that one as its own instead, once it is
// there, and runs by it if it is for the Job's pods.
//
// A Job is in a queue if its label kueue.x-k8s.io/queue-name names one, or if an
// administrator has all Jobs of its namespace queued.
//
// A start writes down in an annotation what it changed of the Job, so that a stop
// can restore it whatever has become of the Workload. While a Job runs, its
// Workload follows its priority class, gives back the quota of pods that are over, says,
// where that is waited for, whether all pods are ready, and tells if the API server
// refuses them all: the Job then makes room for others, and tries again later.
package jobs
