// Package lifecycle has the rules for Workloads that have quota, one in a file, and for
// those that are deactivated, finished or left over. Each gives a Verdict: what happens to
// the Workload, why, and its status afterwards.
package lifecycle
