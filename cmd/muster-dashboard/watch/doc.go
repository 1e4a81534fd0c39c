// Package watch keeps what a cluster has in memory, as it changes, for somebody who
// reads all of it again and again. It reads no more than it is asked for, and tells what
// it may not read, since when the cluster is silent, and that something has changed.
package watch
