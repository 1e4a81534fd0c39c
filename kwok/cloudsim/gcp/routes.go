package gcp

import "github.com/muster-dev/muster/kwok/cloudsim"

// routes registers the supported methods.
func (f *Front) routes() {
	const compute = "/compute/v1/projects/{project}/"
	f.handle("GET "+compute+"aggregated/instances",
		method{"instances.aggregatedList", "compute.instances.list", lists, f.listAllInstances})
	f.handle("GET "+compute+"zones/{zone}/instances",
		method{"instances.list", "compute.instances.list", lists, f.listInstances})
	f.handle("POST "+compute+"zones/{zone}/instances/bulkInsert",
		method{"instances.bulkInsert", "compute.instances.create", changes, f.bulkInsert})
	f.handle("DELETE "+compute+"zones/{zone}/instances/{instance}",
		method{"instances.delete", "compute.instances.delete", deletions, f.deleteInstance})
	f.handle("GET "+compute+"aggregated/instanceGroupManagers",
		method{"instanceGroupManagers.aggregatedList", "compute.instanceGroupManagers.list", lists, f.listGroups})
	f.handle("GET "+compute+"aggregated/autoscalers",
		method{"autoscalers.aggregatedList", "compute.autoscalers.list", lists, f.listAutoscalers})
	f.handle("GET "+compute+"global/instanceTemplates/{template}",
		method{"instanceTemplates.get", "compute.instanceTemplates.get", nil, f.getTemplate})
	f.handle("GET "+compute+"regions/{region}/instanceTemplates/{template}",
		method{"regionInstanceTemplates.get", "compute.instanceTemplates.get", nil, f.getTemplate})
	f.handle("GET "+compute+"zones/{zone}/machineTypes/{type}",
		method{"machineTypes.get", "compute.machineTypes.get", nil, f.getMachineType})
	f.handle("GET "+compute+"regions/{region}",
		method{"regions.get", "compute.regions.get", nil, f.getRegion})
	f.handle("GET /compute/v1/projects/{project}",
		method{"projects.get", "compute.projects.get", nil, f.getProject})
	f.handle("GET "+compute+"zones/{zone}/reservations/{reservation}",
		method{"reservations.get", "compute.reservations.get", nil, f.getReservation})
	f.handle("GET "+compute+"zones/{zone}/reservations/{reservation}/reservationBlocks",
		method{"reservationBlocks.list", "compute.reservationBlocks.list", lists, f.listBlocks})
	f.handle("GET "+compute+"zones/{zone}/reservations/{reservation}/reservationBlocks/{block}/reservationSubBlocks",
		method{"reservationSubBlocks.list", "compute.reservationSubBlocks.list", lists, f.listSubBlocks})
	f.handle("GET "+compute+"zones/{zone}/futureReservations",
		method{"futureReservations.list", "compute.futureReservations.list", lists, f.listFutureReservations})
	f.handle("GET "+compute+"aggregated/resourcePolicies",
		method{"resourcePolicies.aggregatedList", "compute.resourcePolicies.list", lists, f.listPolicies})
	f.handle("POST "+compute+"regions/{region}/resourcePolicies",
		method{"resourcePolicies.insert", "compute.resourcePolicies.create", changes, f.insertPolicy})
	f.handle("DELETE "+compute+"regions/{region}/resourcePolicies/{policy}",
		method{"resourcePolicies.delete", "compute.resourcePolicies.delete", changes, f.deletePolicy})
	for _, version := range []string{"v1", "beta"} {
		f.handle("POST /compute/"+version+"/projects/{project}/regions/{region}/advice/capacity",
			method{"advice.capacity", "compute.advice.capacity", nil, func(c *call) (any, *cloudsim.Error) { return f.advise(c, version) }})
	}
	for _, in := range []struct{ scope, groups, requests, operations string }{
		{"zones/{zone}", "instanceGroupManagers", "instanceGroupManagerResizeRequests", "zoneOperations"},
		{"regions/{region}", "regionInstanceGroupManagers", "regionInstanceGroupManagerResizeRequests", "regionOperations"},
	} {
		group := compute + in.scope + "/instanceGroupManagers/{group}"
		const get, update = "compute.instanceGroupManagers.get", "compute.instanceGroupManagers.update"
		f.handle("GET "+group, method{in.groups + ".get", get, nil, f.getGroup})
		f.handle("POST "+group+"/listManagedInstances", method{in.groups + ".listManagedInstances", get, lists, f.listManaged})
		f.handle("POST "+group+"/createInstances", method{in.groups + ".createInstances", update, changes, f.createInstances})
		f.handle("POST "+group+"/deleteInstances", method{in.groups + ".deleteInstances", update, deletions, f.deleteInstances})
		f.handle("POST "+group+"/resizeRequests", method{in.requests + ".insert", update, changes, f.insertRequest})
		f.handle("GET "+group+"/resizeRequests", method{in.requests + ".list", get, lists, f.listRequests})
		f.handle("GET "+group+"/resizeRequests/{request}", method{in.requests + ".get", get, nil, f.getRequest})
		f.handle("POST "+group+"/resizeRequests/{request}/cancel", method{in.requests + ".cancel", update, changes, f.cancelRequest})
		f.handle("POST "+compute+in.scope+"/operations/{operation}/wait",
			method{in.operations + ".wait", "compute." + in.operations + ".get", nil, f.getOperation})
	}
	f.handle("GET /v1/services/{service}/skus",
		method{"services.skus.list", "", []string{"currencyCode", "pageSize", "pageToken"}, f.listSKUs})
	f.handle("POST /v1/projects/{call}",
		method{"projects.testIamPermissions", "", nil, f.testPermissions})
}
