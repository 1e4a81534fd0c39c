package inventory

import (
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// StateOf an instance.
func StateOf(status string) cloudprovider.State {
	switch status {
	case "", "PROVISIONING", "STAGING", "PENDING":
		return cloudprovider.Booting
	case "RUNNING", "REPAIRING", "PENDING_STOP": // the last is a graceful shutdown, for an hour at most
		return cloudprovider.Running
	default: // STOPPING, STOPPED, TERMINATED, SUSPENDING, SUSPENDED, DEPROVISIONING
		return cloudprovider.Terminated
	}
}

// reasonOf an instance that has ended.
func reasonOf(status, message string) string {
	if StateOf(status) != cloudprovider.Terminated {
		return ""
	}
	if message == "" {
		return status
	}
	return status + ": " + message
}

// Member is an instance of a managed instance group. One whose VM is not
// made yet is a hold: the group goes on trying until it is deleted.
func (v *Inventory) Member(id api.Manager, in *computepb.ManagedInstance) cloudprovider.Machine {
	m := cloudprovider.Machine{
		Name: api.Base(in.GetInstance()), Scope: v.scopeOfMembers(id), State: StateOf(in.GetInstanceStatus()),
		EndsAt: endsAt(in.GetScheduling().GetTerminationTimestamp()),
		Hold:   in.GetInstanceStatus() == "", ProviderID: ProviderID(id.Project, api.Zone(in.GetInstance()), api.Base(in.GetInstance())),
	}
	m.Launch = v.Names.Token(m.Name)
	switch in.GetCurrentAction() {
	case "DELETING", "ABANDONING":
		m.State, m.Hold, m.Reason = cloudprovider.Terminated, false, "the managed instance group is deleting it"
	case "RECREATING", "CREATING", "CREATING_WITHOUT_RETRIES":
		// The old VM has gone, a new one comes in its place and is paid for.
		m.State = min(m.State, cloudprovider.Running)
	}
	if m.State == cloudprovider.Terminated && m.Reason == "" {
		m.Reason, m.Kept = in.GetInstanceStatus(), true
	}
	return m
}

// owner is the group of an instance among those of its managed instance group:
// that which launched it, or the first of its zone and type.
func (v *Inventory) owner(groups []*v1alpha1.NodeGroup, in *computepb.ManagedInstance) string {
	name, zone := api.Base(in.GetInstance()), api.Zone(in.GetInstance())
	for _, g := range groups {
		if token := v.Names.Token(name); token != "" && strings.HasPrefix(name, v.Names.prefix(token, g.Name)) {
			return g.Name
		}
	}
	machineType := in.GetPropertiesFromFlexibilityPolicy().GetMachineType()
	for _, g := range groups {
		if (g.Spec.Zone == zone || g.Spec.GCP.Location == zone) && (machineType == "" || g.Spec.GCP.MachineType == machineType) {
			return g.Name
		}
	}
	return ""
}

// endsAt is when the cloud ends a machine by itself, as one on flex-start or with a maximum run time.
// Machines that end in the same minute count as equals.
func endsAt(timestamp string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, timestamp) // empty for one that does not end
	return at.Truncate(time.Minute)
}

// scopeOf the machines of a zone that stand beside managed instance groups.
func (v *Inventory) scopeOf(project, zone string) string {
	if project == v.config.Project {
		return zone
	}
	return project + "/" + zone
}

// scopeOfMembers of a managed instance group.
func (v *Inventory) scopeOfMembers(id api.Manager) string {
	return v.scopeOf(id.Project, id.Location) + "/" + id.Name
}

// ProviderID is what the cloud controller manager writes into spec.providerID.
func ProviderID(project, zone, name string) string {
	return "gce://" + project + "/" + zone + "/" + name
}

// ManagerOf a NodeGroup is its managed instance group.
func ManagerOf(g *v1alpha1.NodeGroup) api.Manager {
	return api.Manager{Project: g.Spec.GCP.Project, Location: g.Spec.GCP.Location, Name: g.Spec.GCP.InstanceGroupManager}
}

// Made is a machine of a launch that a bulk insert has made, as lists will show it. It is booting.
func (v *Inventory) Made(req cloudprovider.LaunchRequest, name string) cloudprovider.Machine {
	project, zone := req.Group.Spec.GCP.Project, ZoneOf(req.Group)
	return cloudprovider.Machine{
		Name: name, Group: req.Group.Name, Launch: req.Token, State: cloudprovider.Booting, ProviderID: ProviderID(project, zone, name),
		Scope: v.scopeOf(project, zone),
	}
}

// ZoneOf the machines of a NodeGroup; empty if it does not say which of those of a regional managed instance group it is.
func ZoneOf(g *v1alpha1.NodeGroup) string {
	if ManagerOf(g).Regional() {
		return g.Spec.Zone
	}
	return g.Spec.GCP.Location
}

// Scopes of lists that show machines of a NodeGroup.
func (v *Inventory) Scopes(g *v1alpha1.NodeGroup) []string {
	id := ManagerOf(g)
	return []string{v.scopeOf(id.Project, g.Spec.Zone), v.scopeOfMembers(id)}
}
