package api

import (
	"context"
	"net/http"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// Template reads an instance template by its link, that of a global or of a regional one.
func (c *Client) Template(ctx context.Context, project, link string) (*computepb.InstanceTemplate, error) {
	r := compute("instanceTemplates.get", read, http.MethodGet, project, "global/instanceTemplates", Base(link))
	if _, rest, regional := strings.Cut(link, "/regions/"); regional {
		region, _, _ := strings.Cut(rest, "/")
		r = compute("regionInstanceTemplates.get", read, http.MethodGet, project, "regions", region, "instanceTemplates", Base(link))
	}
	out := &computepb.InstanceTemplate{}
	return out, c.call(ctx, r, out)
}

// MachineType reads a machine type.
func (c *Client) MachineType(ctx context.Context, project, zone, name string) (*computepb.MachineType, error) {
	out := &computepb.MachineType{}
	return out, c.call(ctx, compute("machineTypes.get", read, http.MethodGet, project, "zones", zone, "machineTypes", name), out)
}

// RegionQuotas reads the quotas of a region, with what is used.
func (c *Client) RegionQuotas(ctx context.Context, project, region string) ([]*computepb.Quota, error) {
	out := &computepb.Region{}
	err := c.call(ctx, compute("regions.get", read, http.MethodGet, project, "regions", region), out)
	return out.GetQuotas(), err
}

// ProjectQuotas reads the quotas of a project for all regions together.
func (c *Client) ProjectQuotas(ctx context.Context, project string) ([]*computepb.Quota, error) {
	out := &computepb.Project{}
	err := c.call(ctx, &request{action: "projects.get", verb: http.MethodGet, host: computeHost, path: "/compute/v1/projects/" + project}, out)
	return out.GetQuotas(), err
}

// Reservation reads a reservation.
func (c *Client) Reservation(ctx context.Context, project, zone, name string) (*computepb.Reservation, error) {
	out := &computepb.Reservation{}
	return out, c.call(ctx, compute("reservations.get", read, http.MethodGet, project, "zones", zone, "reservations", name), out)
}

// FutureReservations lists those of a zone.
func (c *Client) FutureReservations(ctx context.Context, project, zone string) ([]*computepb.FutureReservation, error) {
	return all(ctx, c, compute("futureReservations.list", read, http.MethodGet, project, "zones", zone, "futureReservations"),
		func() *computepb.FutureReservationsListResponse { return &computepb.FutureReservationsListResponse{} },
		(*computepb.FutureReservationsListResponse).GetItems)
}

// ReservationBlocks lists the blocks of a dense reservation.
func (c *Client) ReservationBlocks(ctx context.Context, project, zone, reservation string) ([]*computepb.ReservationBlock, error) {
	r := compute("reservationBlocks.list", read, http.MethodGet, project, "zones", zone, "reservations", reservation, "reservationBlocks")
	return all(ctx, c, r, func() *computepb.ReservationBlocksListResponse { return &computepb.ReservationBlocksListResponse{} },
		(*computepb.ReservationBlocksListResponse).GetItems)
}

// ReservationSubBlocks lists the sub-blocks of a block: reservations/…/reservationBlocks/….
func (c *Client) ReservationSubBlocks(ctx context.Context, project, zone, block string) ([]*computepb.ReservationSubBlock, error) {
	r := compute("reservationSubBlocks.list", read, http.MethodGet, project, "zones", zone, block, "reservationSubBlocks")
	return all(ctx, c, r, func() *computepb.ReservationSubBlocksListResponse {
		return &computepb.ReservationSubBlocksListResponse{}
	},
		(*computepb.ReservationSubBlocksListResponse).GetItems)
}

// Policies lists the resource policies of all regions that match a filter.
func (c *Client) Policies(ctx context.Context, project, filter string) (Aggregated[*computepb.ResourcePolicy], error) {
	r := compute("resourcePolicies.aggregatedList", read, http.MethodGet, project, "aggregated/resourcePolicies").with("filter", filter)
	return aggregated(ctx, c, r, func() *computepb.ResourcePolicyAggregatedList { return &computepb.ResourcePolicyAggregatedList{} },
		(*computepb.ResourcePoliciesScopedList).GetResourcePolicies)
}

// InsertPolicy makes a resource policy.
func (c *Client) InsertPolicy(ctx context.Context, project, region string, in *computepb.ResourcePolicy) error {
	r := compute("resourcePolicies.insert", change, http.MethodPost, project, "regions", region, "resourcePolicies").
		with("requestId", freshID())
	r.body = in
	return c.run(ctx, project, r)
}

// DeletePolicy deletes a resource policy. Its operation goes on when the call returns.
func (c *Client) DeletePolicy(ctx context.Context, project, region, name string) error {
	r := compute("resourcePolicies.delete", change, http.MethodDelete, project, "regions", region, "resourcePolicies", name).
		with("requestId", freshID())
	return c.call(ctx, r, &computepb.Operation{})
}

// Advice returns the obtainability of instances in a region. The beta of the method is used: that of v1 has the same messages and
// refuses Spot, the only model with an answer.
func (c *Client) Advice(ctx context.Context, project, region string, in *computepb.CapacityAdviceRequest) (
	*computepb.CapacityAdviceResponse, error) {
	out := &computepb.CapacityAdviceResponse{}
	return out, c.call(ctx, &request{action: "advice.capacity", verb: http.MethodPost, host: computeHost, body: in,
		path: "/compute/beta/projects/" + project + "/regions/" + region + "/advice/capacity"}, out)
}
