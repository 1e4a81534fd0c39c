// Package simulation plays the whole provisioning half in virtual time, with
// everything that goes wrong in clusters, and asserts the promises on every step.
//
// What runs is the real thing: the model, its feed, the controllers of requests,
// groups and giving back, and the KWOK adapter with its engine of pools. Around it
// stands a small world: an API server in memory, informers whose news come late,
// kubelets, a scheduler, a garbage collector, clouds that refuse, reclaim and lose
// machines, people who submit, withdraw, cordon and delete. Two kinds of stories are
// told in it: random ones, made up from a seed, and short tales in which muster
// crashes before and after every single write and cloud call, one run for each.
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
// The words: an option is something that may happen next; the weather is what goes
// wrong with calls, caches and the process; a plan is what somebody will do once; a
// gang is a request with the Job behind it; a life of muster ends with a crash.
package simulation
