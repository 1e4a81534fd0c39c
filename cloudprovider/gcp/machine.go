package gcp

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// isBeside reports whether an instance stands beside a managed instance group. The label names the group; until lists show it, the
// name of the instance does.
func (p *Provider) isBeside(id api.Manager, in *computepb.Instance) bool {
	if isMember(in) {
		return false
	}
	if label := in.GetLabels()[labelManager]; label != "" {
		return label == managerLabel(id)
	}
	return slices.ContainsFunc(p.known(), func(g *v1alpha1.NodeGroup) bool {
		return managerOf(g) == id && p.names.isOf(in.GetName(), g.Name)
	})
}

// isMember reports whether a managed instance group has made an instance.
func isMember(in *computepb.Instance) bool {
	return slices.ContainsFunc(in.GetMetadata().GetItems(), func(item *computepb.Items) bool {
		return item.GetKey() == "created-by" && strings.Contains(item.GetValue(), "/instanceGroupManagers/")
	})
}

// bulkMachine is an instance that stands beside its managed instance group. The label names its NodeGroup; until lists show it, the
// name of the instance does.
func (p *Provider) bulkMachine(project string, in *computepb.Instance) cloudprovider.Machine {
	// The cloud keeps what has ended, unless it is told to delete it.
	started, _ := time.Parse(time.RFC3339Nano, in.GetLastStartTimestamp())
	return cloudprovider.Machine{
		Scope:   p.scopeOf(project, api.Base(in.GetZone())),
		Started: started, Kept: stateOf(in.GetStatus()) == cloudprovider.Terminated,
		Name: in.GetName(), Group: p.groupOf(in), Launch: p.names.token(in.GetName()),
		ProviderID: providerID(project, api.Base(in.GetZone()), in.GetName()),
		State:      stateOf(in.GetStatus()), Reason: reasonOf(in.GetStatus(), in.GetStatusMessage()),
		EndsAt: endsAt(in.GetResourceStatus().GetScheduling().GetTerminationTimestamp()),
	}
}

// groupOf is the NodeGroup of an instance that stands beside its managed instance group; empty if it is unknown yet.
func (p *Provider) groupOf(in *computepb.Instance) string {
	label, out := in.GetLabels()[labelGroup], ""
	for _, g := range p.known() {
		switch {
		case label != "" && label == labelValue(g.Name):
			return g.Name
		case label == "" && p.names.isOf(in.GetName(), g.Name) && out != "":
			return "" // two groups of one hash
		case label == "" && p.names.isOf(in.GetName(), g.Name):
			out = g.Name
		}
	}
	return cmp.Or(out, label)
}

// stateOf an instance.
func stateOf(status string) cloudprovider.State {
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
	if stateOf(status) != cloudprovider.Terminated {
		return ""
	}
	if message == "" {
		return status
	}
	return status + ": " + message
}

// hold is a resize request that waits.
func (p *Provider) hold(id api.Manager, group, name string) cloudprovider.Machine {
	return cloudprovider.Machine{
		Name: name, Group: group, Launch: p.names.token(name), Hold: true, State: cloudprovider.Booting,
		ProviderID: providerID(id.Project, id.Location, name), Scope: p.scopeOfMembers(id),
	}
}

// managedMachine is an instance of a managed instance group. One whose VM is not
// made yet is a hold: the group goes on trying until it is told to delete it.
func (p *Provider) managedMachine(id api.Manager, in *computepb.ManagedInstance) cloudprovider.Machine {
	m := cloudprovider.Machine{
		Name: api.Base(in.GetInstance()), Scope: p.scopeOfMembers(id), State: stateOf(in.GetInstanceStatus()),
		EndsAt: endsAt(in.GetScheduling().GetTerminationTimestamp()),
		Hold:   in.GetInstanceStatus() == "", ProviderID: providerID(id.Project, zoneOf(in.GetInstance()), api.Base(in.GetInstance())),
	}
	m.Launch = p.names.token(m.Name)
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
func (p *Provider) owner(groups []*v1alpha1.NodeGroup, in *computepb.ManagedInstance) string {
	name, zone := api.Base(in.GetInstance()), zoneOf(in.GetInstance())
	for _, g := range groups {
		if token := p.names.token(name); token != "" && strings.HasPrefix(name, p.names.prefix(token, g.Name)) {
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
func (p *Provider) scopeOf(project, zone string) string {
	if project == p.Project {
		return zone
	}
	return project + "/" + zone
}

// scopeOfMembers of a managed instance group.
func (p *Provider) scopeOfMembers(id api.Manager) string {
	return p.scopeOf(id.Project, id.Location) + "/" + id.Name
}

// machine of a launch that stands beside its managed instance group.
func (p *Provider) machine(l *launch, name string, state cloudprovider.State) cloudprovider.Machine {
	return cloudprovider.Machine{
		Name: name, Group: l.Group.Name, Launch: l.Token, State: state, ProviderID: providerID(l.id.Project, l.zone(), name),
		Scope: p.scopeOf(l.id.Project, l.zone()),
	}
}

// providerID is what the cloud controller manager writes into spec.providerID.
func providerID(project, zone, name string) string {
	return "gce://" + project + "/" + zone + "/" + name
}

func managerOf(g *v1alpha1.NodeGroup) api.Manager {
	return api.Manager{Project: g.Spec.GCP.Project, Location: g.Spec.GCP.Location, Name: g.Spec.GCP.InstanceGroupManager}
}

// zoneOf the link of an instance.
func zoneOf(link string) string {
	_, rest, ok := strings.Cut(link, "zones/")
	if !ok {
		return ""
	}
	zone, _, _ := strings.Cut(rest, "/")
	return zone
}
