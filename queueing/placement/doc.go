// Package placement chooses the topology domains for the pods of a Workload, as Kueue's
// topology-aware scheduling does.
//
// A Tree has the nodes of a flavor by the levels of its Topology. Nodes of one domain that have the
// same free amounts, taints and selected labels are counted as one class, so a decision costs the
// number of domains and classes; single nodes are looked at when the chosen ones are named. A View
// is the tree with Workloads added or taken away, for trials: what if these were admitted before,
// or those preempted.
//
// Words: a domain is a value of a level's label within the domains of the levels above; a leaf is a
// node, which is also a domain where the lowest level is kubernetes.io/hostname; a slice is a group of
// pods that must be in one domain of its own level; the leader is a podSet of one pod that is placed
// together with its workers.
//
// The choice is Kueue's to the letter: BestFit for podSets that require or prefer a level,
// LeastFreeCapacity for those that do not, and, where that is turned on, balanced placement for those that prefer one.
// test/kueue compares all on random trees. As in Kueue 0.20, pods need room on single nodes that suit them at every level.
package placement
