// Package install tests what a platform team does with Muster: it renders, installs, upgrades,
// rolls back and uninstalls the charts with the real Helm on a sandbox, runs Muster with the
// rights and the settings that they install, breaks what the probes tell of, and builds the image.
//
// `make install-test` builds the programs and names them by variables; without one, what needs it
// is skipped.
package install
