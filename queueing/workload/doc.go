// Package workload has pure functions of kueue.Workload: what its conditions mean, how its
// status changes from one state to the next, what its pods request, and which Workload of
// an elastic job replaces which.
package workload
