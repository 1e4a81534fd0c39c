// Package permissions lists the permissions that the adapter needs and finds the ones that the caller lacks.
package permissions

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
)

// ByMethod are the permissions by the method of the cloud's API that needs them: all that the
// adapter calls. Those that a method needs for what it uses stand with it, such as
// disks and the network of an instance. Methods without any are open to everyone.
var ByMethod = map[string][]string{
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
	"regions.get":                 {"compute.regions.get"},
	"projects.get":                {"compute.projects.get"},
	"autoscalers.aggregatedList":  {"compute.autoscalers.list"},
	"reservations.get":            {"compute.reservations.get"},
	"futureReservations.list":     {"compute.futureReservations.list"},
	"advice.capacity":             {"compute.advice.capacity"},
	"services.skus.list":          nil,
	"projects.testIamPermissions": nil,
}

// All returns the permissions of all methods, as a role for Muster has them.
func All() (out []string) {
	for _, permissions := range ByMethod {
		out = append(out, permissions...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mostTested is how many permissions are tested by one call.
const mostTested = 100

// Missing are the permissions that the caller does not have in a project. The cloud says for a project
// which of a list of permissions the caller has; nothing is tried.
func Missing(ctx context.Context, cloud *api.Client, project string) (missing []string, err error) {
	for chunk := range slices.Chunk(All(), mostTested) {
		answer, err := cloud.TestPermissions(ctx, project, chunk)
		if err != nil {
			return nil, fmt.Errorf("testing the permissions in project %s: %w", project, err)
		}
		for _, permission := range chunk {
			if !slices.Contains(answer, permission) {
				missing = append(missing, permission)
			}
		}
	}
	return missing, nil
}
