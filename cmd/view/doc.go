// Package view repeats Muster's decisions outside of Muster. A Picture is a cluster as read
// by the caller, decided by the same code that Muster runs, with an explanation for each
// job, queue and group. kubectl muster prints it, muster-dashboard serves it as a page.
// Nothing here changes the cluster.
package view
