// Package conformance is the suite that every kind of job passes, and a group of pods: what the queues rely on,
// whatever the operator of the kind does, and whatever is lost between Muster and the API
// server.
//
// Around the reconciler of a kind stands a small cluster without a clock of its own: an API
// server in memory, a cache that is told of changes late, the operator of the kind by a
// script, a node that is slow to end pods, the garbage collector, and queues that admit and
// evict. A story says what happens to one job. In each story, Muster may die at any of its
// writes, before that takes effect or before its answer comes: another life of it begins from
// the objects alone, and with a first list that may be of any age, of each kind. The world judges each change by the promises:
//
//   - no pod is created without quota, nor for nodes of another admission
//   - quota is given back when no pod is left, and not before
//   - a job that is held is as its user wrote it
//   - nothing hangs: each step of a story comes within a bound
//   - nothing leaks: with its job, all goes that was made for it
//   - Muster rests when there is nothing to do
package conformance
