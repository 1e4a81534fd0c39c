package gcp

import (
	"context"
	"fmt"
	"slices"
)

// Permissions by the method of the cloud's API that needs them: all that this
// package calls. Those that a method needs for what it uses stand with it, such as
// disks and the network of an instance. Methods without any are open to everyone.
var Permissions = map[string][]string{
	"instances.aggregatedList": {"compute.instances.list"},
	"instances.list":           {"compute.instances.list"},
	"instances.bulkInsert": {
		"compute.disks.create", "compute.images.useReadOnly", "compute.instanceTemplates.useReadOnly", "compute.instances.create",
		"compute.instances.setLabels", "compute.instances.setMetadata", "compute.instances.setServiceAccount", "compute.instances.setTags",
		"compute.resourcePolicies.use", // of a placement policy, the template's or Muster's
		"compute.subnetworks.use", "compute.subnetworks.useExternalIp", "iam.serviceAccounts.actAs",
	},
	"instances.delete":                                 {"compute.instances.delete"},
	"instanceGroupManagers.aggregatedList":             {"compute.instanceGroupManagers.list"},
	"instanceGroupManagers.get":                        {"compute.instanceGroupManagers.get"},
	"instanceGroupManagers.createInstances":            {"compute.instanceGroupManagers.update"},
	"instanceGroupManagers.deleteInstances":            {"compute.instanceGroupManagers.update"},
	"instanceGroupManagers.listManagedInstances":       {"compute.instanceGroupManagers.get"},
	"regionInstanceGroupManagers.get":                  {"compute.instanceGroupManagers.get"},
	"regionInstanceGroupManagers.createInstances":      {"compute.instanceGroupManagers.update"},
	"regionInstanceGroupManagers.deleteInstances":      {"compute.instanceGroupManagers.update"},
	"regionInstanceGroupManagers.listManagedInstances": {"compute.instanceGroupManagers.get"},

	"instanceGroupManagerResizeRequests.get":          {"compute.instanceGroupManagers.get"},
	"instanceGroupManagerResizeRequests.list":         {"compute.instanceGroupManagers.get"},
	"instanceGroupManagerResizeRequests.insert":       {"compute.instanceGroupManagers.update"},
	"instanceGroupManagerResizeRequests.cancel":       {"compute.instanceGroupManagers.update"},
	"regionInstanceGroupManagerResizeRequests.get":    {"compute.instanceGroupManagers.get"},
	"regionInstanceGroupManagerResizeRequests.list":   {"compute.instanceGroupManagers.get"},
	"regionInstanceGroupManagerResizeRequests.insert": {"compute.instanceGroupManagers.update"},
	"regionInstanceGroupManagerResizeRequests.cancel": {"compute.instanceGroupManagers.update"},

	"reservationBlocks.list":    {"compute.reservationBlocks.list"},
	"reservationSubBlocks.list": {"compute.reservationSubBlocks.list"},

	"resourcePolicies.aggregatedList": {"compute.resourcePolicies.list"},
	"resourcePolicies.insert":         {"compute.resourcePolicies.create"},
	"resourcePolicies.delete":         {"compute.resourcePolicies.delete"},

	"zoneOperations.wait":         {"compute.zoneOperations.get"},
	"regionOperations.wait":       {"compute.regionOperations.get"},
	"instanceTemplates.get":       {"compute.instanceTemplates.get"},
	"regionInstanceTemplates.get": {"compute.instanceTemplates.get"},
	"machineTypes.get":            {"compute.machineTypes.get"},
	"autoscalers.aggregatedList":  {"compute.autoscalers.list"},
	"reservations.get":            {"compute.reservations.get"},
	"futureReservations.list":     {"compute.futureReservations.list"},
	"advice.capacity":             {"compute.advice.capacity"},
	"services.skus.list":          nil,
	"projects.testIamPermissions": nil,
}

// AllPermissions are those of all methods: what a role for Muster holds.
func AllPermissions() (out []string) {
	for _, permissions := range Permissions {
		out = append(out, permissions...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mostTested is how many permissions are tested by one call.
const mostTested = 100

// MissingPermissions implements cloudprovider.Examiner. The cloud says for a project
// which of a list of permissions the caller has; nothing is tried.
func (p *Provider) MissingPermissions(ctx context.Context) (missing []string, err error) {
	for chunk := range slices.Chunk(AllPermissions(), mostTested) {
		answer, err := p.cloud.TestPermissions(ctx, p.Project, chunk)
		if err != nil {
			return nil, fmt.Errorf("testing the permissions in project %s: %w", p.Project, err)
		}
		for _, permission := range chunk {
			if !slices.Contains(answer, permission) {
				missing = append(missing, permission)
			}
		}
	}
	return missing, nil
}
