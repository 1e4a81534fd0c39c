// Package specs runs the specs of Kueue's own integration suites against Muster. The suites are those of Kueue's module,
// unchanged. Only the package that starts their control plane and their managers is replaced when they are compiled,
// by that of testdata: it starts a muster, as a process with the rights of its service account, where the suites
// start Kueue's controllers, with the settings that these would have.
//
// `make specs` runs them. testdata/exceptions.yaml lists each spec that is not expected to pass, with the reason.
package specs
