// Package controller runs the queues. Informers and writers leave what happened in
// an inbox; one goroutine takes it into the State of package queueing, lets it
// decide, and hands its verdicts to the writers without waiting for them.
//
//	informers ──▶ inbox ──▶ loop: State.Set, Settle, Cycle ──▶ backlog ──▶ writers
//	                ▲                                                        │
//	                └──────────────── what became of each write ─────────────┘
//
// A Workload whose verdict is under way is left alone until it is known what became
// of it. Nothing is remembered that a restart would miss: the State is made of the
// objects, and what is written follows from them. Only forecasts, which are made beside
// the loop and decide nothing, learn anew how jobs come and how long they run.
package controller
