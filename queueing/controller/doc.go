// Package controller runs the queues: one loop that is woken by changes, reads
// the caches into a snapshot, lets the core in package queueing decide, and
// writes what it decided.
//
// The loop is level-based. What it wrote and the caches do not show yet is kept
// in overlays, by resourceVersion; nothing else is remembered that a restart
// would miss.
package controller
