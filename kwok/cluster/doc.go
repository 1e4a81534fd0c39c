// Package cluster runs a sandbox: a whole Kubernetes control plane on one machine, without containers.
//
// A sandbox is one supervisor and its components: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok
// (which plays the machines) and muster. The supervisor is whichever process called Start: the command
// `muster-sandbox up`, or a test. Each component is a child process of its own, made by running the sandbox binary
// again with the hidden command `component NAME`.
//
// That split keeps this package light. It knows how to start, watch, reach and stop the components but does not
// contain them; they are compiled into the binary by the package components below this one. So tests import this
// package, point Config.Binary at a built binary, and never compile Kubernetes into themselves.
//
// Several sandboxes run side by side under different names. The Registry is a directory that holds, for every name,
// a lock (held by the supervisor as long as it lives) and a state file (what runs and how to reach it). A state file
// without a held lock was left by a supervisor that was killed; the next command that finds it removes it.
//
// All servers listen on 127.0.0.1 only, with TLS and certificates made for the sandbox.
package cluster
