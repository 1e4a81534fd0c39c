// Package simulation plays the whole provisioning half in virtual time, with
// everything that goes wrong in clusters, and asserts the promises on every step.
//
// It runs the actual code: the model, its feed, the controllers of requests, groups and
// giving back, and the KWOK adapter with its engine of pools. The world around it is
// simulated: an API server in memory, informers that lag, kubelets, a scheduler, a
// garbage collector, clouds that refuse, reclaim and lose machines, and users that
// submit, withdraw, cordon and delete. There are two kinds of stories: random ones,
// generated from a seed, and short ones in which muster crashes before and after every
// single write and cloud call, one run for each.
//
// It is single-threaded and repeatable. A run lives in a bubble of testing/synctest.
// Each call of a controller waits for the simulator, as do the changes that
// informers tell of, the timers, and what happens in the world: all of it are
// options. When nothing in the bubble can go on by itself, the simulator puts the
// options in the order of their keys and lets the seed choose one; or time passes.
// So the same seed gives the same trace:
//
//	go test ./test/simulation -run TestRandomStories -v -seed 172
//
// An option is something that may happen next. The weather is the configuration of faults in
// calls, caches and the process. A plan is an action that a client will take once. A gang is a
// request with the Job behind it. A life of muster is one process, and ends with a crash.
package simulation
