package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
func (v *Inventory) isBeside(id api.Manager, in *computepb.Instance) bool {
	if IsMember(in) {
		return false
	}
	if label := in.GetLabels()[labelManager]; label != "" {
		return label == managerLabel(id)
	}
	return slices.ContainsFunc(v.Groups(), func(g *v1alpha1.NodeGroup) bool {
		return ManagerOf(g) == id && v.Names.IsOf(in.GetName(), g.Name)
	})
}

// IsMember reports whether a managed instance group has made an instance.
func IsMember(in *computepb.Instance) bool {
	return slices.ContainsFunc(in.GetMetadata().GetItems(), func(item *computepb.Items) bool {
		return item.GetKey() == "created-by" && strings.Contains(item.GetValue(), "/instanceGroupManagers/")
	})
}

// standing is an instance that stands beside its managed instance group. The label names its NodeGroup; until lists show it, the
// name of the instance does.
func (v *Inventory) standing(project string, in *computepb.Instance) cloudprovider.Machine {
	// The cloud keeps an instance that has ended until it is deleted.
	started, _ := time.Parse(time.RFC3339Nano, in.GetLastStartTimestamp())
	return cloudprovider.Machine{
		Scope:   v.scopeOf(project, api.Base(in.GetZone())),
		Started: started, Kept: StateOf(in.GetStatus()) == cloudprovider.Terminated,
		Name: in.GetName(), Group: v.groupOf(in), Launch: v.Names.Token(in.GetName()),
		ProviderID: ProviderID(project, api.Base(in.GetZone()), in.GetName()),
		State:      StateOf(in.GetStatus()), Reason: reasonOf(in.GetStatus(), in.GetStatusMessage()),
		EndsAt: endsAt(in.GetResourceStatus().GetScheduling().GetTerminationTimestamp()),
	}
}

// groupOf is the NodeGroup of an instance that stands beside its managed instance group; empty if it is unknown yet.
func (v *Inventory) groupOf(in *computepb.Instance) string {
	label, out := in.GetLabels()[labelGroup], ""
	for _, g := range v.Groups() {
		switch {
		case label != "" && label == labelValue(g.Name):
			return g.Name
		case label == "" && v.Names.IsOf(in.GetName(), g.Name) && out != "":
			return "" // two groups of one hash
		case label == "" && v.Names.IsOf(in.GetName(), g.Name):
			out = g.Name
		}
	}
	return cmp.Or(out, label)
}

// listBeside lists the machines of bulk inserts. Their names have the hash of this cluster, and their labels name their groups, so that
// those of deleted groups are found as well.
func (v *Inventory) listBeside(ctx context.Context, project string, groups []*v1alpha1.NodeGroup, out *listing) {
	all, err := v.cloud.Instances(ctx, project, v.Names.Filter())
	zones := slices.Concat(all.Scopes(), slices.Collect(maps.Keys(all.Failed)), v.zones(project, groups))
	slices.Sort(zones)
	for _, name := range slices.Compact(zones) {
		if !v.concerns(project, name, groups) && len(all.Items[name]) == 0 {
			continue
		}
		scope := v.scopeOf(project, name)
		if failed := cmp.Or(err, all.Failed[name]); failed != nil {
			out.fail(scope, fmt.Errorf("listing the machines of %s: %w", scope, failed))
			continue
		}
		machines, count := []cloudprovider.Machine{}, map[string]int{}
		for _, in := range all.Items[name] {
			m := v.standing(project, in)
			if IsMember(in) || m.Group == "" {
				continue
			}
			machines = append(machines, m)
			if m.State != cloudprovider.Terminated {
				count[v.besideOf(in)]++
			}
		}
		v.mu.Lock()
		v.beside[zone{project, name}] = count
		v.mu.Unlock()
		out.add(scope, machines)
	}
	if err == nil {
		out.found(project, all.All())
	}
}

// concerns reports whether groups have, or have had, machines in a zone: the cloud lists all zones of the world.
func (v *Inventory) concerns(project, zone string, groups []*v1alpha1.NodeGroup) bool {
	return slices.Contains(v.zones(project, groups), zone) || slices.ContainsFunc(groups, func(g *v1alpha1.NodeGroup) bool {
		return g.Spec.GCP.Project == project && g.Spec.GCP.Location == api.Region(zone)
	})
}

// zones of a project in which NodeGroups are or machines have been listed.
func (v *Inventory) zones(project string, groups []*v1alpha1.NodeGroup) (out []string) {
	for _, g := range groups {
		if g.Spec.GCP.Project == project {
			out = append(out, cmp.Or(g.Spec.Zone, g.Spec.GCP.Location))
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for at := range v.beside {
		if at.project == project {
			out = append(out, at.name)
		}
	}
	return out
}

// besideOf is the label of the managed instance group that an instance stands beside.
func (v *Inventory) besideOf(in *computepb.Instance) string {
	if label := in.GetLabels()[labelManager]; label != "" {
		return label
	}
	for _, g := range v.Groups() {
		if v.Names.IsOf(in.GetName(), g.Name) {
			return managerLabel(ManagerOf(g))
		}
	}
	return ""
}

// lastBeside is how many machines stood beside a managed instance group when the zone was listed last; false if it never was.
func (v *Inventory) lastBeside(id api.Manager, name string) (n int, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	count, known := v.beside[zone{id.Project, name}]
	return count[managerLabel(id)], known
}

// Beside are the machines of a launch that exist, by their names, and how many others there are beside the managed instance group of its
// NodeGroup, in all of its offerings. Each zone is listed by itself: of one that is away, other than that of the launch, the last
// known state counts.
func (v *Inventory) Beside(ctx context.Context, g *v1alpha1.NodeGroup, launched, zones []string) (
	ours []cloudprovider.Machine, others int, err error) {
	id, names, listed := ManagerOf(g), map[string]bool{}, map[string]bool{}
	for _, name := range launched {
		names[name] = true
	}
	filter := v.Names.FilterOf(slices.DeleteFunc(v.Groups(), func(g *v1alpha1.NodeGroup) bool { return ManagerOf(g) != id }))
	for _, zone := range zones {
		found, err := v.cloud.InstancesOf(ctx, id.Project, zone, filter)
		if last, known := v.lastBeside(id, zone); err != nil && zone != ZoneOf(g) && known {
			others += last
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("listing the machines of zone %s: %w", zone, err)
		}
		for _, in := range found {
			listed[in.GetName()] = true
			switch m := v.standing(id.Project, in); {
			case !v.isBeside(id, in):
			case names[m.Name]:
				m.Group = g.Name
				ours = append(ours, m)
			case m.State != cloudprovider.Terminated:
				others++
			}
		}
	}
	return ours, others + v.unlisted(id, listed, names), nil
}

// Freshen notes that machines have been requested, which lists may not show yet.
func (v *Inventory) Freshen(id api.Manager, names []string) {
	for _, name := range names {
		v.fresh.Note(id, name, struct{}{})
	}
}

// Stale notes that machines are not to be, or are no more.
func (v *Inventory) Stale(id api.Manager, names []string) {
	v.fresh.Forget(id, names...)
}

// unlisted counts the machines that have been requested and that lists may not know
// yet, without those of the launch itself.
func (v *Inventory) unlisted(id api.Manager, listed, ours map[string]bool) (n int) {
	for name := range v.fresh.All(id) {
		switch {
		case listed[name]:
			v.fresh.Forget(id, name)
		case !ours[name]:
			n++
		}
	}
	return n
}

// Place is where an instance is.
type Place struct{ Project, Zone, Name string }

// Strays are the machines of those names that belong to a group which is gone: their names have the hash of its name.
func (v *Inventory) Strays(ctx context.Context, group string, names []string) (out []Place, err error) {
	all, err := v.cloud.Instances(ctx, v.config.Project, v.Names.Filter())
	for _, away := range all.Failed {
		err = away // they may be there
	}
	if err != nil {
		return nil, fmt.Errorf("listing the machines of NodeGroup %s, which is gone: %w", group, err)
	}
	for _, in := range all.All() {
		ofGroup := in.GetLabels()[labelGroup] == labelValue(group) || v.Names.IsOf(in.GetName(), group)
		if ofGroup && slices.Contains(names, in.GetName()) && !IsMember(in) {
			out = append(out, Place{v.config.Project, api.Base(in.GetZone()), in.GetName()})
		}
	}
	return out, nil
}
