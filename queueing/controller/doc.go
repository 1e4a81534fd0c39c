// Package controller runs the queues. Informers and writers leave what happened in an inbox;
// one goroutine takes it into the State of package queueing, lets it decide, and hands its
// verdicts to the writers without waiting for them.
//
//	informers ──▶ inbox ──▶ loop: State.Set, Settle, Cycle ──▶ writes: backlog ──▶ writers
//	                ▲                    └──▶ reasons: paced ───────┘                 │
//	                └────────────────── outcome of each write ────────────────────────┘
//
// A Workload whose verdict is under way is left alone until the outcome is known. Nothing is
// remembered that a restart would miss: the State is made of the objects, and what is written
// follows from them. Only forecasts, which are made beside the loop and decide nothing, learn
// again how jobs come and how long they run.
package controller
