package gcp

import (
	"context"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// zonal is a managed instance group of a zone.
type zonal struct {
	*Provider
	id managerID
}

func (m *zonal) get(ctx context.Context) (*computepb.InstanceGroupManager, error) {
	return m.zonalGroups.Get(ctx, &computepb.GetInstanceGroupManagerRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name,
	})
}

func (m *zonal) managed(ctx context.Context) ([]*computepb.ManagedInstance, error) {
	return collect(m.zonalGroups.ListManagedInstances(ctx, &computepb.ListManagedInstancesInstanceGroupManagersRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name,
	}).Next)
}

func (m *zonal) create(ctx context.Context, names []string, requestID string) error {
	op, err := m.zonalGroups.CreateInstances(ctx, &computepb.CreateInstancesInstanceGroupManagerRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name, RequestId: new(requestID),
		InstanceGroupManagersCreateInstancesRequestResource: &computepb.InstanceGroupManagersCreateInstancesRequest{
			Instances: perInstance(names),
		},
	})
	if err != nil {
		return err
	}
	_, err = m.finish(ctx, m.id.project, op.Proto())
	return err
}

func (m *zonal) remove(ctx context.Context, links []string, requestID string) error {
	op, err := m.zonalGroups.DeleteInstances(ctx, &computepb.DeleteInstancesInstanceGroupManagerRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name, RequestId: new(requestID),
		InstanceGroupManagersDeleteInstancesRequestResource: &computepb.InstanceGroupManagersDeleteInstancesRequest{
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

func (m *zonal) request(ctx context.Context, name string) (*computepb.InstanceGroupManagerResizeRequest, error) {
	return m.zonalRequests.Get(ctx, &computepb.GetInstanceGroupManagerResizeRequestRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name, ResizeRequest: name,
	})
}

func (m *zonal) requests(ctx context.Context) ([]*computepb.InstanceGroupManagerResizeRequest, error) {
	return collect(m.zonalRequests.List(ctx, &computepb.ListInstanceGroupManagerResizeRequestsRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name,
	}).Next)
}

func (m *zonal) insertRequest(ctx context.Context, r *computepb.InstanceGroupManagerResizeRequest, requestID string) error {
	op, err := m.zonalRequests.Insert(ctx, &computepb.InsertInstanceGroupManagerResizeRequestRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name, RequestId: new(requestID),
		InstanceGroupManagerResizeRequestResource: r,
	})
	if err != nil {
		return err
	}
	_, err = m.finish(ctx, m.id.project, op.Proto())
	return err
}

func (m *zonal) cancelRequest(ctx context.Context, name, requestID string) error {
	op, err := m.zonalRequests.Cancel(ctx, &computepb.CancelInstanceGroupManagerResizeRequestRequest{
		Project: m.id.project, Zone: m.id.location, InstanceGroupManager: m.id.name, ResizeRequest: name, RequestId: new(requestID),
	})
	if err != nil {
		return err
	}
	_, err = m.finish(ctx, m.id.project, op.Proto())
	return err
}
