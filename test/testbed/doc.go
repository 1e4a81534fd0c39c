// Package testbed has what tests on a real cluster share: a Cluster is a sandbox that test/invariants watches, and a Site is a test's own
// part of one: a namespace with the groups, queues and nodes of its name. Tests that only read their own site run in parallel. Those that
// kill or pause a component have a Cluster of their own.
package testbed
