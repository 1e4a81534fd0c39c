// Package dispatch chooses the cluster of a job where a manager has several. It asks one cluster at a time, so that no two of them
// provision machines for one job, and the one with the best prospects first. It is a function of what the manager's Workload records,
// of what is known of its copies and of the clusters, and of the time, to the next step; package controller carries steps out.
//
//	            named                    admitted
//	(no copy) ────────▶ asked ──────────────────────▶ runs there
//	    ▲                 │ refused, or is late          │ evicted
//	    └── gone (live) ◀─┴──────── withdrawn ◀──────────┘
//
// A cluster stands in the record of the Workload from before it is named until a live read has shown that no copy is left there.
// While it cannot be reached, no other is named: its copy may run.
package dispatch
