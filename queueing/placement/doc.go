// Package placement chooses the topology domains for the pods of a Workload, as Kueue's
// topology-aware scheduling does.
//
// TopologyCache keeps a Tree for each flavor with a Topology. Nodes of one domain with the same
// free capacity, taints and selectable labels form one class. So the cost of a decision grows with
// the number of domains and classes; single nodes matter only when the result names them. A
// Snapshot simulates the admission or the preemption of Workloads on a Tree.
//
// A domain is a value of a level's label within the domains of the levels above. A leaf is a node,
// which is also a domain if the lowest level is kubernetes.io/hostname. A slice is a group of pods
// that must be in one domain of the slice's level. A leader is a podSet of one pod that is placed
// together with its workers.
//
// The choice is the same as Kueue's: BestFit for podSets that require or prefer a level,
// LeastFreeCapacity for the others, and balanced placement, if it is enabled, for podSets that
// prefer a level. test/kueue compares the results on random trees. As in Kueue 0.20, pods must fit
// on single matching nodes at every level.
package placement
