// Package conformance is the suite that every kind of job passes, and a group of pods. It
// tests what the queues rely on, whatever the operator of the kind does, and whatever is lost
// between Muster and the API server.
//
// The reconciler of a kind runs in a small simulated cluster without a real clock: an API
// server in memory, a cache that lags, a scripted operator of the kind, a node that is slow to
// end pods, the garbage collector, and queues that admit and evict. A story is a sequence of
// steps for one job. In each story, Muster may die at any of its writes, before the write takes
// effect or before its response arrives. The next process starts from the objects alone, and
// its first list of each kind may be of any age. The world verifies for each change:
//
//   - no pod is created without quota, nor for nodes of another admission
//   - quota is released when no pod is left, and not before
//   - a suspended job is as its user wrote it
//   - nothing hangs: each step of a story completes within a bound
//   - nothing leaks: with the job, all that was created for it is deleted
//   - Muster rests when there is nothing to do
package conformance
