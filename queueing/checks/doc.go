// Package checks evaluates the admission checks that Muster serves: muster.dev/capacity and
// Kueue's kueue.x-k8s.io/provisioning-request. From a check, its Workload and the
// ProvisioningRequests that exist follows a step: the state of the check, a request to
// create or delete, or how the attempt ended.
package checks
