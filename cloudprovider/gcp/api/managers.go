package api

import (
	"context"
	"net/http"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// Manager names a managed instance group.
type Manager struct {
	Project string
	// Location is its zone or region.
	Location string
	Name     string
}

func (m Manager) String() string { return m.Project + "/" + m.Location + "/" + m.Name }

// Regional reports whether the location is a region: us-central1, not us-central1-a.
func (m Manager) Regional() bool { return strings.Count(m.Location, "-") < 2 }

// on returns a call of a method of managed instance groups or, with a prefix, of what they have. Groups of regions have the same
// methods as those of zones, under other names.
func (m Manager) on(resource, method string, kind kind, verb string, path ...string) *request {
	scope, prefix := "zones", "instanceGroupManager"
	if m.Regional() {
		scope, prefix = "regions", "regionInstanceGroupManager"
	}
	return compute(prefix+resource+"."+method, kind, verb, m.Project,
		append([]string{scope, m.Location, "instanceGroupManagers", m.Name}, path...)...)
}

const (
	ofGroups   = "s"
	ofRequests = "ResizeRequests"
)

// Managers lists the managed instance groups of all zones and regions.
func (c *Client) Managers(ctx context.Context, project string) (Aggregated[*computepb.InstanceGroupManager], error) {
	r := compute("instanceGroupManagers.aggregatedList", read, http.MethodGet, project, "aggregated/instanceGroupManagers")
	return aggregated(ctx, c, r, func() *computepb.InstanceGroupManagerAggregatedList {
		return &computepb.InstanceGroupManagerAggregatedList{}
	},
		(*computepb.InstanceGroupManagersScopedList).GetInstanceGroupManagers)
}

// Autoscalers lists those of all zones and regions.
func (c *Client) Autoscalers(ctx context.Context, project string) (Aggregated[*computepb.Autoscaler], error) {
	r := compute("autoscalers.aggregatedList", read, http.MethodGet, project, "aggregated/autoscalers")
	return aggregated(ctx, c, r, func() *computepb.AutoscalerAggregatedList { return &computepb.AutoscalerAggregatedList{} },
		(*computepb.AutoscalersScopedList).GetAutoscalers)
}

// Manager reads a managed instance group.
func (c *Client) Manager(ctx context.Context, m Manager) (*computepb.InstanceGroupManager, error) {
	out := &computepb.InstanceGroupManager{}
	return out, c.call(ctx, m.on(ofGroups, "get", read, http.MethodGet), out)
}

// Managed lists the instances of a managed instance group, whether or not there is a VM yet.
func (c *Client) Managed(ctx context.Context, m Manager) ([]*computepb.ManagedInstance, error) {
	// Lists of zones and of regions have the same fields.
	return all(ctx, c, m.on(ofGroups, "listManagedInstances", read, http.MethodPost, "listManagedInstances"),
		func() *computepb.InstanceGroupManagersListManagedInstancesResponse {
			return &computepb.InstanceGroupManagersListManagedInstancesResponse{}
		}, (*computepb.InstanceGroupManagersListManagedInstancesResponse).GetManagedInstances)
}

// CreateInstances has the group make instances of given names. The same requestID is the same call.
func (c *Client) CreateInstances(ctx context.Context, m Manager, names []string, requestID string) error {
	r := m.on(ofGroups, "createInstances", change, http.MethodPost, "createInstances").with("requestId", requestID)
	r.body = &computepb.InstanceGroupManagersCreateInstancesRequest{Instances: named(names)}
	return c.run(ctx, m.Project, r)
}

// DeleteInstances has the group delete instances by their paths, and lower its target size by them; those that are no members are
// skipped.
func (c *Client) DeleteInstances(ctx context.Context, m Manager, paths []string) error {
	r := m.on(ofGroups, "deleteInstances", change, http.MethodPost, "deleteInstances").
		with("requestId", freshID()).with("noGracefulShutdown", "true")
	r.body = &computepb.InstanceGroupManagersDeleteInstancesRequest{Instances: paths, SkipInstancesOnValidationError: new(true)}
	return c.run(ctx, m.Project, r)
}

// ResizeRequest reads a resize request.
func (c *Client) ResizeRequest(ctx context.Context, m Manager, name string) (*computepb.InstanceGroupManagerResizeRequest, error) {
	out := &computepb.InstanceGroupManagerResizeRequest{}
	return out, c.call(ctx, m.on(ofRequests, "get", read, http.MethodGet, "resizeRequests", name), out)
}

// ResizeRequests lists those of a group.
func (c *Client) ResizeRequests(ctx context.Context, m Manager) ([]*computepb.InstanceGroupManagerResizeRequest, error) {
	return all(ctx, c, m.on(ofRequests, "list", read, http.MethodGet, "resizeRequests"),
		func() *computepb.InstanceGroupManagerResizeRequestsListResponse {
			return &computepb.InstanceGroupManagerResizeRequestsListResponse{}
		}, (*computepb.InstanceGroupManagerResizeRequestsListResponse).GetItems)
}

// InsertResizeRequest requests instances of given names, all at once, that live for so many seconds; 0 for without end. The same
// requestID is the same call.
func (c *Client) InsertResizeRequest(ctx context.Context, m Manager, name string, names []string, seconds int64, requestID string) error {
	in := &computepb.InstanceGroupManagerResizeRequest{Name: new(name), Instances: named(names)}
	if seconds > 0 {
		in.RequestedRunDuration = &computepb.Duration{Seconds: new(seconds)}
	}
	r := m.on(ofRequests, "insert", change, http.MethodPost, "resizeRequests").with("requestId", requestID)
	r.body = in
	return c.run(ctx, m.Project, r)
}

// CancelResizeRequest takes a resize request out of the cloud's queue.
func (c *Client) CancelResizeRequest(ctx context.Context, m Manager, name string) error {
	r := m.on(ofRequests, "cancel", change, http.MethodPost, "resizeRequests", name, "cancel").with("requestId", freshID())
	return c.run(ctx, m.Project, r)
}

// named are instances that are to be made.
func named(names []string) []*computepb.PerInstanceConfig {
	out := make([]*computepb.PerInstanceConfig, len(names))
	for i, name := range names {
		out[i] = &computepb.PerInstanceConfig{Name: new(name)}
	}
	return out
}
