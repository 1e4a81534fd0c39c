// Package controller runs the queues. Informers and writers put events into an inbox. One
// goroutine applies them to the State of package queueing, computes verdicts, and passes them
// to the writers without waiting for the writes.
//
//	informers ──▶ inbox ──▶ loop: State.Set, Settle, Cycle ──▶ writes: backlog ──▶ writers
//	                ▲                    └──▶ reasons: paced ───────┘                 │
//	                └────────────────── outcome of each write ────────────────────────┘
//
// A Workload whose verdict is being written gets no other verdict until the outcome is known.
// A restart loses no state: the State is built from the objects, and writes follow from it.
// Only forecasts, which decide nothing, learn the arrivals and run times of jobs again.
package controller
