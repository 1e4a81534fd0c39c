// Package cache keeps the objects of the queues and what follows from them: the trees of
// cohorts with their usage, the pending Workloads of each ClusterQueue in their order, the
// times at which a Workload is due, and the pods that a ResourceQuota has not counted yet.
// It changes object by object, so that a cycle costs what has changed.
package cache
