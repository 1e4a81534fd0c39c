// Package oracle compares provisioning/fit with the scheduler itself: the default
// profile of k8s.io/kubernetes, its PreFilter and Filter plugins run by its own
// framework on random pods, nodes and running pods. It holds tests only, the only
// ones that compile Kubernetes into themselves; run after the sandbox was built, that
// is cached.
//
// Words used here: a world is a random cluster with a gang to place in it; a trait is
// something that a world may have and that a plugin of the scheduler judges; each
// must have been met often, on both sides of the verdict.
package oracle
