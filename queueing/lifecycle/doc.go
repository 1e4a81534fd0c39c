// Package lifecycle has the rules for Workloads with quota, one per file, and for those that are deactivated, finished or left over. Each
// returns a Verdict: what happens to the Workload, why, and its status afterwards.
package lifecycle
