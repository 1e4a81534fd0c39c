package gcp

import (
	"context"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// regional is a managed instance group of a region.
type regional struct {
	*Provider
	id managerID
}

func (m *regional) get(ctx context.Context) (*computepb.InstanceGroupManager, error) {
	return m.regionalGroups.Get(ctx, &computepb.GetRegionInstanceGroupManagerRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name,
	})
}

func (m *regional) managed(ctx context.Context) ([]*computepb.ManagedInstance, error) {
	return collect(m.regionalGroups.ListManagedInstances(ctx, &computepb.ListManagedInstancesRegionInstanceGroupManagersRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name,
	}).Next)
}

func (m *regional) create(ctx context.Context, names []string, requestID string) error {
	op, err := m.regionalGroups.CreateInstances(ctx, &computepb.CreateInstancesRegionInstanceGroupManagerRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name, RequestId: new(requestID),
		RegionInstanceGroupManagersCreateInstancesRequestResource: &computepb.RegionInstanceGroupManagersCreateInstancesRequest{
			Instances: perInstance(names),
		},
	})
	if err != nil {
		return err
	}
	_, err = m.finish(ctx, m.id.project, op.Proto())
	return err
}

func (m *regional) remove(ctx context.Context, links []string, requestID string) error {
	op, err := m.regionalGroups.DeleteInstances(ctx, &computepb.DeleteInstancesRegionInstanceGroupManagerRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name, RequestId: new(requestID),
		RegionInstanceGroupManagersDeleteInstancesRequestResource: &computepb.RegionInstanceGroupManagersDeleteInstancesRequest{
			Instances: links, SkipInstancesOnValidationError: new(true),
		},
		NoGracefulShutdown: new(true),
	})
	if err != nil {
		return err
	}
	_, err = m.finish(ctx, m.id.project, op.Proto())
	return err
}

func (m *regional) request(ctx context.Context, name string) (*computepb.InstanceGroupManagerResizeRequest, error) {
	return m.regionalRequests.Get(ctx, &computepb.GetRegionInstanceGroupManagerResizeRequestRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name, ResizeRequest: name,
	})
}

func (m *regional) requests(ctx context.Context) ([]*computepb.InstanceGroupManagerResizeRequest, error) {
	return collect(m.regionalRequests.List(ctx, &computepb.ListRegionInstanceGroupManagerResizeRequestsRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name,
	}).Next)
}

func (m *regional) insertRequest(ctx context.Context, r *computepb.InstanceGroupManagerResizeRequest, requestID string) error {
	op, err := m.regionalRequests.Insert(ctx, &computepb.InsertRegionInstanceGroupManagerResizeRequestRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name, RequestId: new(requestID),
		InstanceGroupManagerResizeRequestResource: r,
	})
	if err != nil {
		return err
	}
	_, err = m.finish(ctx, m.id.project, op.Proto())
	return err
}

func (m *regional) cancelRequest(ctx context.Context, name, requestID string) error {
	op, err := m.regionalRequests.Cancel(ctx, &computepb.CancelRegionInstanceGroupManagerResizeRequestRequest{
		Project: m.id.project, Region: m.id.location, InstanceGroupManager: m.id.name, ResizeRequest: name, RequestId: new(requestID),
	})
	if err != nil {
		return err
	}
	_, err = m.finish(ctx, m.id.project, op.Proto())
	return err
}
