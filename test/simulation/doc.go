// Package simulation runs the whole provisioning half in virtual time, with the faults of
// real clusters, and verifies the promises at every step.
//
// It runs the actual code: the model, its feed, the controllers of requests, groups and
// scale-down, and the KWOK adapter with its engine of pools. The world around it is
// simulated: an API server in memory, informers that lag, kubelets, a scheduler, a
// garbage collector, clouds that refuse, reclaim and lose machines, and users that
// submit, withdraw, cordon and delete. There are two kinds of scenarios: random ones,
// generated from a seed, and short ones in which muster crashes before and after every
// single write and cloud call, one run for each.
//
// It is single-threaded and repeatable. A run uses a bubble of testing/synctest. Calls of
// controllers, deliveries of informers, timers and changes of the world are options: each
// waits until the simulator chooses it. When all goroutines in the bubble are blocked, the
// simulator sorts the options by their keys and lets the seed choose one, or lets time pass.
// So the same seed gives the same trace:
//
//	go test ./test/simulation -run TestRandomScenarios -v -seed 172
//
// An option is something that may happen next. Faults are those of calls,
// caches and the process. A plan is an action that a client will take once. A gang is a
// request with the Job behind it. A life of muster is one process, and ends with a crash.
package simulation
