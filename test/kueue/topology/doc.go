// Package topology compares queueing/placement with Kueue's own topology-aware scheduling: a program
// that is built inside a copy of Kueue's module answers the same random questions.
package topology
