// Package podgroup queues pods that nothing can suspend: each is created with a scheduling
// gate, and starts when Muster takes that off. Pods that queue together are a gang, with one
// Workload:
//
//	a plain pod, and each pod of a Deployment   is a gang of one
//	a pod group                                 is the pods that bear its name, as many as they say
//	a StatefulSet                               is a gang, whose Workload comes from the StatefulSet: it creates its pods one by one
//	a group of a LeaderWorkerSet                is a gang, whose Workload comes from the LeaderWorkerSet
//
// The way of a gang:
//
//	incomplete ──all pods are there──▶ held ──admitted──▶ running ──▶ ended
//	                                    ▲                    │ evicted
//	                                    └── release quota ◀──┴── delete the pods, until none is left
//
// What a start changes of a pod is written with the removal of its gate, since a gated pod
// takes node selectors and never gives them back. A pod cannot be stopped, so an eviction
// deletes it: its controller, if there is one, makes another, which is gated again. Pods have
// no finalizers: what has ended is counted in the status of the Workload as it happens.
package podgroup
