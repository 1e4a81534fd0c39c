// Package testbed has what tests on a real cluster share: a Cluster is a sandbox under
// the watch of test/invariants, and a Site is a test's own part of one, a namespace with
// the groups, queues and nodes that bear its name. Tests that look only at their own site
// run side by side; those that kill or pause a component have a Cluster of their own.
package testbed
