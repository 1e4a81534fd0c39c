package gcp

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// resizeRequest requests VMs from a group, all or none. It waits until all of them are available.
//
//	ACCEPTED ──all there──▶ SUCCEEDED
//	   ├─────cancel───────▶ CANCELLED
//	   └──never possible──▶ FAILED
type resizeRequest struct {
	name  string
	state string
	names []string
	made  time.Time
	// failed is why the last attempt did not get them.
	failed *opError
	// run is how many seconds the VMs may live; 0 for without end.
	run int64
}

const (
	accepted  = "ACCEPTED"
	succeeded = "SUCCEEDED"
	cancelled = "CANCELLED"
	failed    = "FAILED"
)

// tryRequest gets all VMs of a request that waits, or none.
func (f *Front) tryRequest(g *group, r *resizeRequest) {
	if r.state != accepted {
		return
	}
	t, refused := f.templateOf(g.Template)
	if refused != nil {
		r.failed = &opError{"RESOURCE_NOT_FOUND", refused.Message}
		return
	}
	zone := g.managed[r.names[0]].zone
	made, refusedBy := f.launch(f.machineOf(g, t), zone, r.names, len(r.names), g)
	if len(made) < len(r.names) {
		r.failed = asOpError(refusedBy, zone)
		if refusedBy.Class == v1alpha1.Config || refusedBy.Class == v1alpha1.Auth {
			g.end(r, failed)
		}
		return
	}
	r.state, r.failed = succeeded, nil
	for _, v := range made {
		m := g.managed[v.name]
		m.zone, m.vm, m.request = zone, v, nil
		if r.run > 0 {
			v.onTermination = terminationDelete
			f.world.EndAt(v.inWorld, f.world.Now().Add(time.Duration(r.run)*time.Second))
		}
	}
}

type resizeRequestJSON struct {
	Kind        string  `json:"kind,omitempty"`
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	State       string  `json:"state,omitempty"`
	ResizeBy    int     `json:"resizeBy,omitempty"`
	Instances   []named `json:"instances,omitempty"`
	Created     string  `json:"creationTimestamp,omitempty"`
	Run         *struct {
		Seconds string `json:"seconds"`
	} `json:"requestedRunDuration,omitempty"`
	Status *resizeStatusJSON `json:"status,omitempty"`
}

type resizeStatusJSON struct {
	Error       *opErrors `json:"error,omitempty"`
	LastAttempt *struct {
		Error *opErrors `json:"error"`
	} `json:"lastAttempt,omitempty"`
}

func (r *resizeRequest) json() *resizeRequestJSON {
	out := &resizeRequestJSON{
		Kind: "compute#instanceGroupManagerResizeRequest", Name: r.name, State: r.state, ResizeBy: len(r.names),
		Created: r.made.UTC().Format(time.RFC3339Nano),
	}
	for _, name := range r.names {
		out.Instances = append(out.Instances, named{name})
	}
	switch {
	case r.failed == nil:
	case r.state == failed:
		out.Status = &resizeStatusJSON{Error: wrap(r.failed)}
	default:
		out.Status = &resizeStatusJSON{LastAttempt: &struct {
			Error *opErrors `json:"error"`
		}{wrap(r.failed)}}
	}
	return out
}

func (f *Front) insertRequest(c *call) (any, *cloudsim.Error) {
	g, refused := f.groupOf(c)
	if refused != nil {
		return nil, refused
	}
	var in resizeRequestJSON
	if refused := c.read(&in); refused != nil {
		return nil, refused
	}
	r := &resizeRequest{name: in.Name, state: accepted, made: f.world.Now()}
	for _, n := range in.Instances {
		r.names = append(r.names, n.Name)
	}
	if refused := f.checkRequest(g, &in, r); refused != nil {
		return nil, refused
	}
	g.requests[r.name] = r
	for _, name := range r.names {
		g.add(name, r)
	}
	f.settle()
	return f.operation(f.begin("compute.instanceGroupManagerResizeRequests.insert", scopeOf(c))), nil
}

func (f *Front) checkRequest(g *group, in *resizeRequestJSON, r *resizeRequest) *cloudsim.Error {
	t, refused := f.templateOf(g.Template)
	if refused != nil {
		return refused
	}
	switch {
	case !rfc1035.MatchString(in.Name):
		return invalid("resource.name", in.Name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
	case g.requests[in.Name] != nil:
		return refusal(http.StatusConflict, "alreadyExists", "The resource 'resizeRequests/%s' already exists", in.Name)
	case in.ResizeBy > 0:
		return invalid("resource.resizeBy", strconv.Itoa(in.ResizeBy), "It cannot be used together with instances.")
	case t.ProvisioningModel != modelFlexStart && t.ProvisioningModel != modelReservationBound:
		return refusal(http.StatusBadRequest, "invalid",
			"Resize requests are only supported for the provisioning models FLEX_START and RESERVATION_BOUND.")
	case g.Autoscaler != nil && g.Autoscaler.Mode != "OFF":
		return refusal(http.StatusBadRequest, "invalid", "Resize requests cannot be used for a managed instance group with an autoscaler.")
	case g.TargetSizeMode == "BULK":
		return refusal(http.StatusBadRequest, "invalid", "Resize requests cannot be used for a managed instance group in target size mode BULK.")
	case len(g.MachineTypes) > 0:
		return refusal(http.StatusBadRequest, "invalid",
			"Resize requests cannot be used for a managed instance group with an instance flexibility policy.")
	}
	if in.Run != nil {
		r.run, _ = strconv.ParseInt(in.Run.Seconds, 10, 64)
	}
	if in.Run != nil && (r.run < 600 || r.run > 604800) || in.Run == nil && t.ProvisioningModel == modelFlexStart {
		return invalid("resource.requestedRunDuration", strconv.FormatInt(r.run, 10), "Must be between 10 minutes and 7 days.")
	}
	return f.fresh(g, in.Instances)
}

func (f *Front) requestOf(c *call) (*group, *resizeRequest, *cloudsim.Error) {
	g, refused := f.groupOf(c)
	if refused != nil {
		return nil, nil, refused
	}
	r := g.requests[c.PathValue("request")]
	if r == nil {
		return nil, nil, notFound(scopeOf(c) + "/instanceGroupManagers/" + g.Name + "/resizeRequests/" + c.PathValue("request"))
	}
	return g, r, nil
}

func (f *Front) getRequest(c *call) (any, *cloudsim.Error) {
	_, r, refused := f.requestOf(c)
	if refused != nil {
		return nil, refused
	}
	return r.json(), nil
}

func (f *Front) listRequests(c *call) (any, *cloudsim.Error) {
	g, refused := f.groupOf(c)
	if refused != nil {
		return nil, refused
	}
	cut, next, refused := page(f, c, slices.Sorted(maps.Keys(g.requests)))
	if refused != nil {
		return nil, refused
	}
	items := []*resizeRequestJSON{}
	for _, name := range cut {
		items = append(items, g.requests[name].json())
	}
	return map[string]any{"kind": "compute#instanceGroupManagerResizeRequestList", "items": items, "nextPageToken": next}, nil
}

// cancelRequest takes a request that waits out of the queue.
func (f *Front) cancelRequest(c *call) (any, *cloudsim.Error) {
	g, r, refused := f.requestOf(c)
	if refused != nil {
		return nil, refused
	}
	if r.state != accepted {
		return nil, refusal(http.StatusBadRequest, "invalid",
			"The resize request '%s' is in state %s: only requests in state ACCEPTED can be cancelled.", r.name, r.state)
	}
	g.end(r, cancelled)
	return f.operation(f.begin("compute.instanceGroupManagerResizeRequests.cancel", scopeOf(c))), nil
}

// end removes a request and its instances, which have not been created, from the group.
func (g *group) end(r *resizeRequest, state string) {
	r.state = state
	for _, name := range r.names {
		delete(g.managed, name)
	}
}
