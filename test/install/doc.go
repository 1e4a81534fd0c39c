// Package install tests what a platform team does with Muster: it renders, installs, upgrades, rolls back and uninstalls the charts with
// the real Helm on a sandbox, runs Muster with the permissions and the settings that they install, breaks what the probes check, and
// builds the image.
//
// `make install-test` builds the programs and names them by variables. Without one, the tests that need it are skipped.
package install
