package gcp

import (
	"maps"
	"net/http"
	"slices"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// usePolicy is what a call needs whose VMs have a placement policy.
const usePolicy = "compute.resourcePolicies.use"

// actAs is the permission that a call needs if its VMs have a service account, as nodes do. The cloud checks it only while the operation
// runs.
const (
	actAs         = "iam.serviceAccounts.actAs"
	codeNoAccount = "SERVICE_ACCOUNT_ACCESS_DENIED"
)

// beside are the permissions that a method needs beside its own, for what the VMs of a node's template have: the section
// "Required permissions" of the cloud's page about creating VMs in bulk. A group makes its VMs with the rights of the cloud's own
// service agent.
var beside = map[string][]string{
	"instances.bulkInsert": {
		"compute.disks.create", "compute.images.useReadOnly", "compute.instanceTemplates.useReadOnly", "compute.instances.setLabels",
		"compute.instances.setMetadata", "compute.instances.setServiceAccount", "compute.instances.setTags", "compute.subnetworks.use",
		"compute.subnetworks.useExternalIp",
	},
}

// Deny takes permissions from the caller.
func (f *Front) Deny(permissions ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.Denied = append(f.config.Denied, permissions...)
}

// Used are the permissions that calls have needed, in order.
func (f *Front) Used() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.used))
}

// may reports whether the caller has a permission that a call needs.
func (f *Front) may(permission string) bool {
	f.used[permission] = true
	return !slices.Contains(f.config.Denied, permission)
}

// need refuses a caller without one of the permissions to use the resource.
func (f *Front) need(resource string, permissions ...string) *cloudsim.Error {
	for _, p := range permissions {
		if !f.may(p) {
			return refusal(http.StatusForbidden, "forbidden", "Required '%s' permission for '%s'", p, resource)
		}
	}
	return nil
}

// mayActAs is why an operation fails whose caller may not have VMs run as their service account.
func (f *Front) mayActAs() *opError {
	if f.may(actAs) {
		return nil
	}
	return &opError{codeNoAccount, "The user does not have access to service account 'nodes@" + f.config.Project +
		".iam.gserviceaccount.com'. User: 'muster'. Ask a project owner to grant you the iam.serviceAccountUser role on the service account"}
}
