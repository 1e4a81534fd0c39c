package gcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// manager is a managed instance group. The cloud has the same methods twice, for
// groups of a zone and of a region.
type manager interface {
	get(context.Context) (*computepb.InstanceGroupManager, error)
	// managed are its instances, whether or not there is a VM yet.
	managed(context.Context) ([]*computepb.ManagedInstance, error)
	create(ctx context.Context, names []string, requestID string) error
	// remove deletes instances by their links, and lowers the target size by them;
	// those that are no members are skipped.
	remove(ctx context.Context, links []string, requestID string) error
	request(ctx context.Context, name string) (*computepb.InstanceGroupManagerResizeRequest, error)
	requests(context.Context) ([]*computepb.InstanceGroupManagerResizeRequest, error)
	insertRequest(ctx context.Context, r *computepb.InstanceGroupManagerResizeRequest, requestID string) error
	cancelRequest(ctx context.Context, name, requestID string) error
}

// managerID names a managed instance group.
type managerID struct{ project, location, name string }

func (id managerID) String() string { return id.project + "/" + id.location + "/" + id.name }

// regional says that the location is a region: us-central1, not us-central1-a.
func (id managerID) regional() bool { return strings.Count(id.location, "-") < 2 }

func managerOf(g *v1alpha1.NodeGroup) managerID {
	return managerID{g.Spec.GCP.Project, g.Spec.GCP.Location, g.Spec.GCP.InstanceGroupManager}
}

func (p *Provider) manager(id managerID) manager {
	if id.regional() {
		return &regional{p, id}
	}
	return &zonal{p, id}
}

// collect reads all pages of a list.
func collect[T any](next func() (T, error)) (out []T, err error) {
	for {
		item, err := next()
		if errors.Is(err, iterator.Done) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, item)
	}
}

// perInstance names instances that are to be made.
func perInstance(names []string) []*computepb.PerInstanceConfig {
	out := make([]*computepb.PerInstanceConfig, len(names))
	for i, name := range names {
		out[i] = &computepb.PerInstanceConfig{Name: new(name)}
	}
	return out
}

// errRunning: the operation is not done, and nothing is known of its effect.
var errRunning = cloudprovider.ErrUnderWay

// finish waits for an operation, and returns what it failed with.
func (p *Provider) finish(ctx context.Context, project string, op *computepb.Operation) (*computepb.Operation, error) {
	for range waits {
		if op.GetStatus() == computepb.Operation_DONE {
			break
		}
		var err error
		if op.GetZone() != "" {
			op, err = p.zoneOperations.Wait(ctx, &computepb.WaitZoneOperationRequest{Project: project, Zone: base(op.GetZone()),
				Operation: op.GetName()})
		} else {
			op, err = p.regionOperations.Wait(ctx, &computepb.WaitRegionOperationRequest{Project: project, Region: base(op.GetRegion()),
				Operation: op.GetName()})
		}
		if err != nil {
			// The operation goes on, whatever has become of the question.
			return nil, errors.New("waiting for an operation: " + err.Error())
		}
	}
	if op.GetStatus() != computepb.Operation_DONE {
		return op, fmt.Errorf("operation %s: %w", op.GetName(), errRunning)
	}
	if refusal := failed(op.GetError().GetErrors()); refusal != nil {
		return op, refusal
	}
	if status := op.GetHttpErrorStatusCode(); status >= 400 {
		class, known := classOfStatus(int(status))
		if !known {
			class = v1alpha1.Timeout // the cloud itself has failed at it
		}
		return op, &cloudprovider.Error{Class: class, Code: fmt.Sprintf("HTTP %d", status), Message: op.GetHttpErrorMessage()}
	}
	return op, nil
}

// base is the last part of a link.
func base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

// zoneOf the link of an instance.
func zoneOf(link string) string {
	_, rest, ok := strings.Cut(link, "zones/")
	if !ok {
		return ""
	}
	zone, _, _ := strings.Cut(rest, "/")
	return zone
}
