// Package externalgrpc lets a stock cluster-autoscaler scale NodeGroups: it serves the
// autoscaler's protocol for external cloud providers. The autoscaler decides when a group grows
// and which nodes go; the adapters of the clouds do it, exactly: so many machines, these machines.
//
// Only NodeGroups of scaledBy ClusterAutoscaler are served. Of those Muster's provisioner launches
// and terminates nothing, so that each machine has one owner.
//
// What the autoscaler requests is written to the NodeGroup before the cloud is called, with the
// token of the call, which is derived from the UID of the NodeGroup and a number that is never used
// twice. So a process that dies in the middle of a launch repeats the same call when it is back,
// and no machine is made twice or forgotten. Until the call is answered, and after the cloud has
// refused it, machines that are missing are reported as instances that are being created, in the
// second case with the cloud's error. The autoscaler deletes those by name, at once where there is
// an error, else after its --max-node-provision-time: the launch is over then. A machine that
// shows up later is one of the group's like all others, and the autoscaler's to use or to delete.
package externalgrpc
