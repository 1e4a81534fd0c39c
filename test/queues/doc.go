// Package queues is a cluster of queues in memory for the tests of queueing: a World carries out at once what the cycles of a
// queueing.State decide. RunScenarios plays the texts of a package's testdata in one.
package queues
