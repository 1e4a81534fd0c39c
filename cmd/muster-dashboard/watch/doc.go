// Package watch keeps the objects of a cluster in memory, for a caller that reads all of them
// repeatedly. It reads only the kinds that are requested, and reports missing rights, since
// when the cluster does not answer, and changes.
package watch
