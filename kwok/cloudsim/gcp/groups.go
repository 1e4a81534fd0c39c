package gcp

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// group is a managed instance group. It never gives up: a VM that cannot be made is retried
// at each call.
type group struct {
	*Group
	// managed are its instances by name, whether or not there is a VM yet.
	managed map[string]*managed
	// requests are its resize requests by name.
	requests map[string]*resizeRequest
}

// managed is an instance as its group sees it.
type managed struct {
	zone, name string
	vm         *vm
	// failed is why the last attempt to make the VM did not; nil for no attempt.
	failed *opError
	// request that the instance waits for; nil for none.
	request *resizeRequest
	// deleting instances are members until their VM is gone, and count no more.
	deleting bool
}

func newGroup(g *Group) *group {
	out := &group{Group: g, managed: map[string]*managed{}, requests: map[string]*resizeRequest{}}
	for i := range g.TargetSize {
		out.add(fmt.Sprintf("%s-%04d", g.Name, i), nil)
	}
	return out
}

func (g *group) scope() string {
	if g.Zone != "" {
		return "zones/" + g.Zone
	}
	return "regions/" + g.Region
}

// add a managed instance, in the zone that has the fewest.
func (g *group) add(name string, request *resizeRequest) {
	zone := g.Zone
	if g.Region != "" {
		count := map[string]int{}
		for _, m := range g.managed {
			count[m.zone]++
		}
		zone = slices.MinFunc(g.Zones, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
	}
	g.managed[name] = &managed{zone: zone, name: name, request: request}
}

// settle lets the groups do what they do all the time.
func (f *Front) settle() {
	known := f.instances(true)
	for _, key := range slices.Sorted(maps.Keys(f.vms)) {
		if v := f.vms[key]; known[v.inWorld].Phase == cloudsim.Terminated && (v.deleted || v.onTermination == terminationDelete) {
			delete(f.vms, key)
			if v.owner != nil && known[v.inWorld].Reason == cloudsim.ReasonTimeOver {
				delete(v.owner.managed, v.name) // what has had its time is not made again
			}
		}
	}
	for _, g := range f.groups {
		for _, name := range slices.Sorted(maps.Keys(g.requests)) {
			f.tryRequest(g, g.requests[name])
		}
		for _, name := range slices.Sorted(maps.Keys(g.managed)) {
			f.tryInstance(g, g.managed[name], known)
		}
	}
}

// tryInstance makes the VM of a managed instance, or repairs it.
func (f *Front) tryInstance(g *group, m *managed, known map[string]*cloudsim.Instance) {
	if m.vm != nil && f.vms[m.vm.key()] != m.vm {
		m.vm = nil // it was deleted
		if m.deleting {
			delete(g.managed, m.name)
			return
		}
	}
	if m.vm != nil && !m.deleting && g.repairs() && f.repaired(known[m.vm.inWorld]) {
		f.terminate(m.vm, false)
		m.vm = nil
	}
	if m.vm != nil || m.request != nil {
		return
	}
	t, refused := f.templateOf("global/instanceTemplates/" + g.Template)
	if refused != nil {
		m.failed = &opError{"RESOURCE_NOT_FOUND", refused.Message}
		return
	}
	made, failed := f.launch(f.machineOf(g, t), m.zone, []string{m.name}, 1, g)
	if len(made) == 1 {
		m.vm, m.failed = made[0], nil
	} else {
		m.failed = asOpError(failed, m.zone)
	}
}

// repaired says that a VM has ended so long ago that another stands in its place.
func (f *Front) repaired(in *cloudsim.Instance) bool {
	return in != nil && in.Phase == cloudsim.Terminated && !f.world.Now().Before(in.TerminatedAt.Add(f.config.OperationTime.Duration))
}

func (g *group) repairs() bool { return cmp.Or(g.ActionOnFailure, "REPAIR") == "REPAIR" }

// machineOf is what the group makes: of the first type that it allows.
func (f *Front) machineOf(g *group, t *Template) machine {
	m := machine{template: t, machineType: t.MachineType, labels: t.Labels, policy: t.PlacementPolicy}
	if len(g.MachineTypes) > 0 {
		m.machineType = g.MachineTypes[0]
	}
	return m
}

// templateOf finds a template by its link.
func (f *Front) templateOf(link string) (*Template, *cloudsim.Error) {
	name := link[strings.LastIndexByte(link, '/')+1:]
	for i := range f.config.Templates {
		if t := &f.config.Templates[i]; t.Name == name {
			return t, nil
		}
	}
	return nil, notFound("projects/" + f.config.Project + "/global/instanceTemplates/" + name)
}

func (f *Front) machineType(name string) *MachineType {
	for i := range f.config.MachineTypes {
		if t := &f.config.MachineTypes[i]; t.Name == name {
			return t
		}
	}
	return nil
}

// groupOf the call.
func (f *Front) groupOf(c *call) (*group, *cloudsim.Error) {
	for _, g := range f.groups {
		if g.scope() == scopeOf(c) && g.Name == c.PathValue("group") {
			return g, nil
		}
	}
	return nil, notFound("projects/" + f.config.Project + "/" + scopeOf(c) + "/instanceGroupManagers/" + c.PathValue("group"))
}

type groupJSON struct {
	Kind             string `json:"kind"`
	ID               string `json:"id"`
	Name             string `json:"name"`
	Zone             string `json:"zone,omitempty"`
	Region           string `json:"region,omitempty"`
	InstanceTemplate string `json:"instanceTemplate"`
	TargetSize       int    `json:"targetSize"`
	SelfLink         string `json:"selfLink"`
	TargetSizePolicy struct {
		Mode string `json:"mode"`
	} `json:"targetSizePolicy"`
	UpdatePolicy struct {
		Type           string `json:"type"`
		Redistribution string `json:"instanceRedistributionType"`
	} `json:"updatePolicy"`
	Lifecycle struct {
		DefaultActionOnFailure string `json:"defaultActionOnFailure"`
	} `json:"instanceLifecyclePolicy"`
	Policies     map[string]string             `json:"resourcePolicies,omitempty"`
	AutoHealing  []map[string]string           `json:"autoHealingPolicies,omitempty"`
	Distribution *distributionJSON             `json:"distributionPolicy,omitempty"`
	Flexibility  *map[string]map[string]typesJ `json:"instanceFlexibilityPolicy,omitempty"`
}

type distributionJSON struct {
	TargetShape string     `json:"targetShape,omitempty"`
	Zones       []zoneJSON `json:"zones"`
}

type zoneJSON struct {
	Zone string `json:"zone"`
}

type typesJ struct {
	MachineTypes []string `json:"machineTypes"`
}

func (f *Front) group(g *group) *groupJSON {
	out := &groupJSON{
		Kind: "compute#instanceGroupManager", ID: "1", Name: g.Name, TargetSize: g.size(),
		SelfLink: f.link(g.scope() + "/instanceGroupManagers/" + g.Name),
	}
	if g.Template != "" {
		out.InstanceTemplate = f.link("global/instanceTemplates/" + g.Template)
		if t, _ := f.templateOf(g.Template); t != nil && t.Region != "" {
			out.InstanceTemplate = f.link("regions/" + t.Region + "/instanceTemplates/" + g.Template)
		}
	}
	if g.Zone != "" {
		out.Zone = f.link(g.scope())
	} else {
		out.Region = f.link(g.scope())
		out.Distribution = &distributionJSON{TargetShape: "EVEN"}
		for _, z := range g.Zones {
			out.Distribution.Zones = append(out.Distribution.Zones, zoneJSON{f.link("zones/" + z)})
		}
	}
	out.TargetSizePolicy.Mode = cmp.Or(g.TargetSizeMode, "INDIVIDUAL")
	out.UpdatePolicy.Type = cmp.Or(g.UpdateType, "OPPORTUNISTIC")
	out.UpdatePolicy.Redistribution = cmp.Or(g.Redistribution, "NONE")
	out.Lifecycle.DefaultActionOnFailure = cmp.Or(g.ActionOnFailure, "REPAIR")
	if g.HealthCheck != "" {
		out.AutoHealing = []map[string]string{{"healthCheck": f.link("global/healthChecks/" + g.HealthCheck)}}
	}
	if g.WorkloadPolicy != "" {
		region := cmp.Or(g.Region, regionOf(g.Zone))
		out.Policies = map[string]string{"workloadPolicy": f.link("regions/" + region + "/resourcePolicies/" + g.WorkloadPolicy)}
	}
	if len(g.MachineTypes) > 0 {
		out.Flexibility = &map[string]map[string]typesJ{"instanceSelections": {"all": {g.MachineTypes}}}
	}
	return out
}

// size returns the target size. VMs that are being deleted do not count.
func (g *group) size() (n int) {
	for _, m := range g.managed {
		if !m.deleting {
			n++
		}
	}
	return n
}

func (f *Front) getGroup(c *call) (any, *cloudsim.Error) {
	g, refused := f.groupOf(c)
	if refused != nil {
		return nil, refused
	}
	return f.group(g), nil
}

func (f *Front) listGroups(c *call) (any, *cloudsim.Error) {
	cut, next, refused := page(f, c, f.groups)
	if refused != nil {
		return nil, refused
	}
	items := map[string]map[string][]*groupJSON{}
	for _, g := range cut {
		if items[g.scope()] == nil {
			items[g.scope()] = map[string][]*groupJSON{}
		}
		items[g.scope()]["instanceGroupManagers"] = append(items[g.scope()]["instanceGroupManagers"], f.group(g))
	}
	return aggregated(f, c, "compute#instanceGroupManagerAggregatedList", items, next)
}

type managedJSON struct {
	Name           string `json:"name"`
	Instance       string `json:"instance"`
	ID             string `json:"id,omitempty"`
	InstanceStatus string `json:"instanceStatus,omitempty"`
	CurrentAction  string `json:"currentAction"`
	LastAttempt    *struct {
		Errors *opErrors `json:"errors"`
	} `json:"lastAttempt,omitempty"`
	Flexible   *typeJSON        `json:"propertiesFromFlexibilityPolicy,omitempty"`
	Scheduling *terminationJSON `json:"scheduling,omitempty"`
}

type typeJSON struct {
	MachineType string `json:"machineType"`
}

func (f *Front) listManaged(c *call) (any, *cloudsim.Error) {
	g, refused := f.groupOf(c)
	if refused != nil {
		return nil, refused
	}
	cut, next, refused := page(f, c, slices.Sorted(maps.Keys(g.managed)))
	if refused != nil {
		return nil, refused
	}
	known := f.instances(true)
	out := []managedJSON{}
	for _, name := range cut {
		m := g.managed[name]
		j := managedJSON{Name: m.name, Instance: f.link("zones/" + m.zone + "/instances/" + m.name), CurrentAction: "CREATING"}
		if m.vm != nil {
			j.ID, j.InstanceStatus, j.CurrentAction = m.vm.id(), m.vm.state(known[m.vm.inWorld]), "NONE"
			j.Scheduling = termination(known[m.vm.inWorld])
			if len(g.MachineTypes) > 0 {
				j.Flexible = &typeJSON{m.vm.machineType}
			}
			switch {
			case m.deleting:
				j.CurrentAction = "DELETING"
			case j.InstanceStatus == "STAGING":
				j.CurrentAction = "CREATING"
			case known[m.vm.inWorld].Phase == cloudsim.Terminated && g.repairs():
				j.CurrentAction = "RECREATING"
			}
		}
		if m.failed != nil {
			j.LastAttempt = &struct {
				Errors *opErrors `json:"errors"`
			}{wrap(m.failed)}
		}
		out = append(out, j)
	}
	return map[string]any{"managedInstances": out, "nextPageToken": next}, nil
}

type named struct {
	Name string `json:"name"`
}

// createInstances adds instances of given names, and raises the target size.
func (f *Front) createInstances(c *call) (any, *cloudsim.Error) {
	g, refused := f.groupOf(c)
	if refused != nil {
		return nil, refused
	}
	var in struct {
		Instances []named `json:"instances"`
	}
	if refused := c.read(&in); refused != nil {
		return nil, refused
	}
	if refused := f.fresh(g, in.Instances); refused != nil {
		return nil, refused
	}
	for _, n := range in.Instances {
		g.add(n.Name, nil)
	}
	f.settle()
	return f.operation(f.begin("compute.instanceGroupManagers.createInstances", scopeOf(c))), nil
}

// fresh says what is wrong with names for new instances.
func (f *Front) fresh(g *group, instances []named) *cloudsim.Error {
	if len(instances) == 0 || len(instances) > 1000 {
		return invalid("instances", fmt.Sprint(len(instances)), "There must be between 1 and 1000 instances.")
	}
	seen := map[string]bool{}
	for _, n := range instances {
		switch {
		case !rfc1035.MatchString(n.Name):
			return invalid("instances.name", n.Name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		case g.managed[n.Name] != nil || seen[n.Name]:
			return refusal(http.StatusConflict, "alreadyExists", "Instance '%s' already exists in the managed instance group '%s'.", n.Name, g.Name)
		}
		seen[n.Name] = true
	}
	return nil
}

// deleteInstances ends instances by name, and lowers the target size by them.
func (f *Front) deleteInstances(c *call) (any, *cloudsim.Error) {
	g, refused := f.groupOf(c)
	if refused != nil {
		return nil, refused
	}
	var in struct {
		Instances []string `json:"instances"`
		Skip      bool     `json:"skipInstancesOnValidationError"`
	}
	if refused := c.read(&in); refused != nil {
		return nil, refused
	}
	if len(in.Instances) == 0 || len(in.Instances) > 1000 {
		return nil, invalid("instances", fmt.Sprint(len(in.Instances)), "There must be between 1 and 1000 instances.")
	}
	var going []*managed
	for _, link := range in.Instances {
		if slices.ContainsFunc(g.Undeletable, func(end string) bool { return strings.HasSuffix(link, end) }) {
			return nil, refusal(http.StatusBadRequest, "resourceInUseByAnotherResource", "The instance '%s' cannot be deleted.", link)
		}
		parts := strings.Split(link, "/")
		m := g.managed[parts[len(parts)-1]]
		switch {
		case m != nil && m.request == nil && !m.deleting && len(parts) >= 4 && parts[len(parts)-3] == m.zone:
			going = append(going, m)
		case !in.Skip:
			return nil, invalid("instances", link, "The instance is not a member of the group, or it is being deleted.")
		}
	}
	for _, m := range going {
		if m.vm != nil && f.vms[m.vm.key()] == m.vm {
			m.deleting = f.terminate(m.vm, isGraceful(c))
		}
		if m.vm == nil || f.vms[m.vm.key()] != m.vm {
			delete(g.managed, m.name)
		}
	}
	return f.operation(f.begin("compute.instanceGroupManagers.deleteInstances", scopeOf(c))), nil
}
