// Package jobs keeps batch/v1 Jobs that carry the label
// kueue.x-k8s.io/queue-name in step with their Workloads: a Job gets a Workload
// to queue for it, is started when the Workload is admitted, stopped when it
// loses that, and its end is the Workload's end.
//
//	suspended, no Workload ──create──▶ queued ──admitted──▶ start ──▶ running ──▶ finished
//	                                     ▲                              │ evicted, or suspended by hand and so evicted
//	                                     └── quota back ◀── restore ◀── stop, until no pod is left
//
// A start writes down in an annotation what it changed of the pod template, so
// that a stop can restore it whatever has become of the Workload.
package jobs
