package api

import (
	"context"
	"net/http"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// Instances lists the instances of all zones that match a filter.
func (c *Client) Instances(ctx context.Context, project, filter string) (Aggregated[*computepb.Instance], error) {
	r := compute("instances.aggregatedList", read, http.MethodGet, project, "aggregated/instances").with("filter", filter)
	return aggregated(ctx, c, r, func() *computepb.InstanceAggregatedList { return &computepb.InstanceAggregatedList{} },
		(*computepb.InstancesScopedList).GetInstances)
}

// InstancesOf lists the instances of a zone that match a filter.
func (c *Client) InstancesOf(ctx context.Context, project, zone, filter string) ([]*computepb.Instance, error) {
	r := compute("instances.list", read, http.MethodGet, project, "zones", zone, "instances").with("filter", filter)
	return all(ctx, c, r, func() *computepb.InstanceList { return &computepb.InstanceList{} }, (*computepb.InstanceList).GetItems)
}

// BulkInsert makes instances. The same requestID is the same call.
func (c *Client) BulkInsert(ctx context.Context, project, zone, requestID string, in *computepb.BulkInsertInstanceResource) (
	*computepb.Operation, error) {
	r := compute("instances.bulkInsert", change, http.MethodPost, project, "zones", zone, "instances/bulkInsert").
		with("requestId", requestID)
	r.body = in
	op := &computepb.Operation{}
	return op, c.call(ctx, r, op)
}

// DeleteInstance deletes an instance at once, whatever time its template gives to its workload.
func (c *Client) DeleteInstance(ctx context.Context, project, zone, name string) error {
	r := compute("instances.delete", change, http.MethodDelete, project, "zones", zone, "instances", name).
		with("requestId", freshID()).with("noGracefulShutdown", "true")
	return c.call(ctx, r, &computepb.Operation{})
}
