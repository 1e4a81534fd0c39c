// Package dispatch chooses the worker cluster of a job. It nominates one cluster at a time, so that no two of them provision machines
// for one job, and the one with the best prospects first. It is a pure function from the record of the manager's Workload, the observed
// copies and clusters, and the time to the next step. Package controller executes the steps.
//
//	            nominated                  admitted
//	(no copy) ────────────▶ nominated ──────────────────▶ runs there
//	    ▲                       │ refused, or is late        │ evicted
//	    └───── gone (live) ◀────┴──────── withdrawn ◀────────┘
//
// A cluster is on the record of the Workload from before its nomination until a live read has shown that it has no copy. While it
// cannot be reached, no other cluster is nominated, because its copy may run.
package dispatch
