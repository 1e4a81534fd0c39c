// Package operators runs the controllers of other projects beside a sandbox's control plane: unmodified, at a pinned version, built from
// their modules once on a machine. Each is a definition in its own file: what is built, which of the module's manifests the cluster gets,
// and how the program runs outside of a pod: with certificates of the sandbox, on free ports, without leader election.
//
// They do not need Muster. Package standin simulates what a project needs of the outside: Ray's dashboard and Spark's spark-submit.
package operators
