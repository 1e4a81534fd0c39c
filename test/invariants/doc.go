// Package invariants watches a cluster and asserts Muster's promises on all that
// it sees. It is the live edge of package promises: it lists and watches every
// kind that matters, puts the versions of all kinds in the order in which they
// were written, and feeds them to a Checker.
//
//	watcher, err := invariants.Watch(ctx, config)
//	...
//	watcher.Stop()
//	for _, v := range watcher.Violations() { ... }
//
// Install the CRDs before it: what exists when a kind is first listed is taken
// as it is. A check that had nothing to judge proves nothing: see Watcher.Check
// and Stats.
//
// All kinds share the revisions of one etcd, so resourceVersions order them. The
// watches are not in step, though: events are held back for a short time, and the
// Checker keeps what rests on their order to itself for longer.
package invariants
