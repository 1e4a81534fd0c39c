// Package fit answers whether a pod may run on a node, as kube-scheduler v1.37 would
// judge it with its default plugins and feature gates. It is pure: an answer depends
// on what is handed in, and the oracle (test/oracle) compares it with the scheduler's
// own code.
//
// A Pod is what one pod of a podSet requests, read from its template once a plan. Its
// questions come in three kinds, from the cheapest to the dearest:
//
//   - Amounts: Pod.Requests against what is free on a node.
//   - The node alone: Pod.Matches, with Pod.Mismatch to say why not.
//   - Other pods, those that run and those of the gang: Running.AntiAffinity, and where
//     Pod.Between says so an InterPodState.
//
// What cannot be judged is a Refusal that names the field and what to do about it;
// never a yes. Each filter plugin of the scheduler is treated so:
//
//   - NodeResourcesFit: Requests, in-place resizes of running pods included. Extended
//     resources count where nodes advertise them; those that only a DeviceClass backs
//     are never there.
//   - NodeAffinity, TaintToleration: Matches. Operators Gt and Lt of tolerations are
//     behind a gate that is off.
//   - NodeUnschedulable: a cordon does not count, since pods that use a booking
//     tolerate it.
//   - NodePorts: Ports, and the InterPodState.
//   - VolumeBinding, VolumeZone: Matches, through the claims of the template; volumes
//     that the scheduler would have to find are refused, as is tracked capacity.
//   - VolumeRestrictions: claims for a single pod by the InterPodState; disks that are named in
//     the pod itself are refused.
//   - NodeVolumeLimits: drivers with limits are refused.
//   - InterPodAffinity, PodTopologySpread: the InterPodState. Selectors of namespaces count as
//     if they matched where that keeps pods apart, and are refused in pod affinity.
//   - NodeName, DynamicResources, NodeDeclaredFeatures, gang scheduling: refused.
//
// The pods are taken to have the labels of their template, and any schedulerName to
// stand for kube-scheduler as it comes. Preemption is left out: room that others hold
// is not there.
package fit
