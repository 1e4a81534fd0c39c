// Package scenario is what rehearsals are written in: a file says which machines
// there are, which could be bought and what goes wrong with them, which queues there
// are, and which Jobs arrive when. It reads and refuses such files, draws the Jobs
// from their seed, computes how fast they could be done at best, and holds a library
// of such files. It is pure; package report beside it says how a run went, and
// package runner runs one on a sandbox.
//
// Jobs of other kinds are meant by "Job", too; a shape has them as an object.
//
// The words: an arrival is a stream of Jobs of like kind; a shape is what one of them
// looks like; a team is a namespace with objects of its own, one of many alike; a
// submission is one Job that was drawn, with its time and how long it runs. The bound
// is how long all submissions would take on the same machines if nothing took time
// but their own runs.
//
// All times in a file are scenario time. A run at speed 10 divides them by 10; what it
// reports is scenario time again.
package scenario
