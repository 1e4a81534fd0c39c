// Package template reads what an instance template says to Muster and of its nodes, as launches and discovery need it alike: whether its
// machines join this cluster, their capacity type, the reservation that they consume, and what a node of a machine type will look like.
package template

import (
	"context"
	"sync"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
)

// Reader reads instance templates and machine types, and remembers them: the cloud never changes what has been made.
type Reader struct {
	cloud *api.Client
	// cluster that machines must join, and the location of a GKE cluster; its names are unique within one.
	cluster, location string

	mu sync.Mutex
	// known are the instance templates by their links, types the machine types by zone and name.
	known map[string]*Template
	types map[string]*computepb.MachineType
}

// New returns a Reader for the templates of a cluster. It makes no call.
func New(cloud *api.Client, cluster, location string) *Reader {
	return &Reader{cloud: cloud, cluster: cluster, location: location,
		known: map[string]*Template{}, types: map[string]*computepb.MachineType{}}
}

// Of reads an instance template; nil where the group has none.
func (r *Reader) Of(ctx context.Context, project, link string) (*Template, error) {
	if link == "" {
		return nil, nil
	}
	r.mu.Lock()
	t := r.known[link]
	r.mu.Unlock()
	if t != nil {
		return t, nil
	}
	in, err := r.cloud.Template(ctx, project, link)
	if err != nil {
		return nil, err
	}
	t = readTemplate(in.GetProperties())
	t.source = sourceOf(link)
	t.Reservation = reservationOf(project, in.GetProperties().GetReservationAffinity())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[link] = t
	return t, nil
}

// MachineType reads a machine type.
func (r *Reader) MachineType(ctx context.Context, project, zone, name string) (*computepb.MachineType, error) {
	key := project + "/" + zone + "/" + name
	r.mu.Lock()
	t := r.types[key]
	r.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := r.cloud.MachineType(ctx, project, zone, name)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.types[key] = t
	return t, nil
}

// LinkOf a managed instance group: of its first version, where it has several.
func LinkOf(mig *computepb.InstanceGroupManager) string {
	if t := mig.GetInstanceTemplate(); t != "" || len(mig.GetVersions()) == 0 {
		return t
	}
	return mig.GetVersions()[0].GetInstanceTemplate()
}
