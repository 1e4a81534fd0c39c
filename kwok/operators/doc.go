// Package operators runs the controllers of other projects beside a sandbox's control plane: unmodified, at a pinned
// version, built from their modules once on a machine. Each is a definition in a file of its own: what is built, which of
// the module's manifests the cluster gets, and how the program is told to run outside of a pod: with certificates of the
// sandbox, on free ports, without an election of a leader.
//
// No Muster is needed for them. What a project expects of a world that is not there, Ray's dashboard and Spark's
// spark-submit, the package standin plays.
package operators
