package aws

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

func validation(format string, args ...any) *cloudsim.Error {
	return &cloudsim.Error{Code: "ValidationError", Message: fmt.Sprintf(format, args...)}
}

func (f *Front) group(name string) *Group {
	return find(f.config.Groups, func(g *Group) bool { return g.Name == name })
}

func (f *Front) groupOf(name string) *Group {
	g := f.group(name)
	if g == nil {
		panic(validation("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", name))
	}
	return g
}

// members are the machines of a group. One that has ended is a member until the group
// notices; with the process ReplaceUnhealthy suspended, until it is taken out.
func (f *Front) members(name string) []cloudsim.Instance {
	return slices.DeleteFunc(f.world.Owned(name), func(in cloudsim.Instance) bool { return f.left[in.ID] })
}

// staying are the members that no lifecycle hook holds on their way out.
func (f *Front) staying(name string) []cloudsim.Instance {
	return slices.DeleteFunc(f.members(name), func(in cloudsim.Instance) bool { return f.leaving[in.ID] })
}

// replaceLost removes ended instances from their groups, and launches the instances that the groups then lack.
func (f *Front) replaceLost() {
	for i := range f.config.Groups {
		g := &f.config.Groups[i]
		if g.Template == "" {
			continue
		}
		for _, in := range f.members(g.Name) {
			ended := in.Phase == cloudsim.Terminated || in.Phase == cloudsim.Stopped
			if ended && (f.leaving[in.ID] || !slices.Contains(g.Suspended, "ReplaceUnhealthy")) {
				f.world.Terminate(in.ID)
				f.left[in.ID] = true
			}
		}
		for range f.desired[g.Name] - len(f.staying(g.Name)) {
			smallest, _, _ := f.balance(g)
			if got, _ := f.grow(g, smallest, 1); len(got) == 0 {
				break // the rest is tried again later
			}
		}
		f.rebalance(g)
	}
}

// rebalance moves a machine from the zone with the most to that with the fewest, as the
// process AZRebalance does: the new one comes first, and pods on the old one are lost.
func (f *Front) rebalance(g *Group) {
	smallest, most, fewest := f.balance(g)
	if slices.Contains(g.Suspended, "AZRebalance") || len(most)-fewest < 2 {
		return
	}
	if got, _ := f.grow(g, smallest, 1); len(got) == 1 {
		f.world.Terminate(most[0].ID)
		f.left[most[0].ID] = true
	}
}

// balance of a group: the subnet in its zone with the fewest machines and their number, and
// the machines in its zone with the most.
func (f *Front) balance(g *Group) (smallest *Subnet, most []cloudsim.Instance, fewest int) {
	in := map[string][]cloudsim.Instance{}
	for _, m := range f.staying(g.Name) {
		in[m.Pool.Zone] = append(in[m.Pool.Zone], m)
	}
	for _, id := range g.Subnets {
		s := f.config.subnet(id)
		if n := len(in[s.Zone]); smallest == nil || n < fewest {
			smallest, fewest = s, n
		}
		if len(in[s.Zone]) > len(most) {
			most = in[s.Zone]
		}
	}
	return smallest, most, fewest
}

// Grow raises the desired capacity of a group, as other clients than Muster may do.
func (f *Front) Grow(group string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired[group] += by
	f.replaceLost()
}

// grow launches machines that the group owns.
func (f *Front) grow(g *Group, in *Subnet, count int) ([]cloudsim.Instance, *cloudsim.Error) {
	types, capacityType, _ := f.config.offers(g)
	tags := map[string]string{}
	for k, v := range f.tags[g.Name] {
		if strings.HasPrefix(k, "kubernetes.io/cluster/") {
			tags[k] = v // the tags that people let propagate
		}
	}
	maps.Copy(tags, g.Propagated)
	m := machines{template: f.version(g.Template, g.Version).Template, subnet: in, kind: types[0], capacityType: capacityType,
		count: count, group: g.Name, tags: tags, placement: g.PlacementGroup}
	if r := f.reservation(m.template.Reservation); r != nil {
		m.reservation, m.capacityType = r.ID, r.Pool.CapacityType
	}
	return f.launch(m)
}

func (f *Front) launchInstances(p *params) []element {
	g := f.groupOf(p.text("AutoScalingGroupName"))
	count, zones, strategy := p.number("RequestedCapacity"), p.texts("AvailabilityZones"), p.text("RetryStrategy")
	var subnets []string
	for _, id := range g.Subnets {
		if slices.Contains(zones, f.config.subnet(id).Zone) {
			subnets = append(subnets, id)
		}
	}
	p.checkRead()
	if g.Template == "" {
		panic(validation("LaunchInstances needs a group with a launch template"))
	}
	types, capacityType, oneCapacityType := f.config.offers(g)
	switch {
	case !oneCapacityType:
		panic(validation("LaunchInstances does not take groups that mix On-Demand and Spot"))
	case strategy != "none":
		panic(validation("RetryStrategy is '%s': only none is simulated", strategy))
	case count < 1 || count > 100:
		panic(validation("RequestedCapacity is %d: it must be between 1 and 100", count))
	case len(zones) != 1 || len(subnets) == 0:
		panic(validation("AvailabilityZones %v: name one zone of the group", zones))
	case f.desired[g.Name]+count > g.Max:
		panic(validation("New SetDesiredCapacity value %d is above max value %d for the AutoScalingGroup.", f.desired[g.Name]+count, g.Max))
	}
	subnet := f.roomIn(subnets)
	got, refused := f.grow(g, subnet, count)
	f.desired[g.Name] += len(got)
	out := []element{el("AutoScalingGroupName", g.Name)}
	where := []element{
		el("AvailabilityZone", subnet.Zone), el("SubnetId", subnet.ID), el("InstanceType", types[0]), el("MarketType", capacityType),
	}
	if len(got) > 0 {
		out = append(out, el("Instances", el("member", where, el("InstanceIds", texts("member", ids(got))))))
	}
	if refused != nil {
		out = append(out, el("Errors", el("member", where, el("ErrorCode", refused.Code), el("ErrorMessage", refused.Message))))
	}
	return out
}

func (f *Front) terminateInAutoScalingGroup(p *params) []element {
	names := p.texts("InstanceIds")
	if id := p.text("InstanceId"); id != "" {
		names = append(names, id)
	}
	shrink, name := p.is("ShouldDecrementDesiredCapacity"), p.text("AutoScalingGroupName")
	p.checkRead()
	if len(names) == 0 || len(names) > 100 {
		panic(validation("%d instances: name between 1 and 100", len(names)))
	}
	if len(p.each("InstanceIds")) > 0 {
		f.groupOf(name)
	}
	of := map[string]string{}
	for _, g := range f.config.Groups {
		for _, in := range f.members(g.Name) {
			of[in.ID] = g.Name
			if f.leaving[in.ID] && !f.retains(in.ID) && slices.Contains(names, in.ID) {
				panic(validation("The instance %s is not in InService, Pending or Standby.", in.ID))
			}
		}
	}
	for _, id := range names {
		if of[id] == "" || name != "" && of[id] != name {
			panic(validation("Instance Id not found - No managed instance found for instance ID: %s", id))
		}
		name = of[id]
	}
	if g := f.group(name); shrink && f.desired[name]-len(names) < g.Min {
		panic(validation("Currently, desiredSize equals minSize (%d). Terminating instance without replacement will violate group's min size "+
			"constraint. "+
			"Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.", g.Min))
	}
	for _, id := range names {
		g := f.group(name)
		switch wait := g.TerminatingWait.Duration; {
		case f.leaving[id] || wait == 0:
			f.world.Terminate(id)
			f.left[id] = true
		case g.Retains:
			f.leaving[id], f.retainedFrom[id] = true, f.world.Now().Add(wait)
		default:
			f.world.TerminateAfter(id, wait)
			f.leaving[id] = true
		}
		if shrink {
			f.desired[name]--
		}
	}
	return []element{el("Activities", each("member", names, func(id string) []element {
		return []element{el("ActivityId", id), el("AutoScalingGroupName", name), el("StatusCode", "InProgress"), el("Cause", "user request"),
			el("StartTime", f.world.Now())}
	}))}
}

// retains reports whether the group keeps a member for good that was to leave it.
func (f *Front) retains(id string) bool {
	from, ok := f.retainedFrom[id]
	return ok && !f.world.Now().Before(from)
}

func (f *Front) leavingState(id string) string {
	if f.retains(id) {
		return "Terminating:Retained"
	}
	return "Terminating:Wait"
}

func (f *Front) describeAutoScalingGroups(p *params) []element {
	names := p.texts("AutoScalingGroupNames")
	want := p.filters("Filters", "Values", "tag-key", "tag:*")
	var found []Group
	for _, g := range f.config.Groups {
		if (len(names) == 0 || slices.Contains(names, g.Name)) && want.match(nil, f.tags[g.Name]) {
			found = append(found, g)
		}
	}
	found, next := page(f, p, "MaxRecords", found)
	p.checkRead()
	return []element{el("AutoScalingGroups", each("member", found, f.describeGroup)), el("NextToken", next)}
}

func (f *Front) describeGroup(g Group) []element {
	var zones []string
	for _, id := range g.Subnets {
		if zone := f.config.subnet(id).Zone; !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	out := []element{
		el("AutoScalingGroupName", g.Name), el("MinSize", g.Min), el("MaxSize", g.Max), el("DesiredCapacity", f.desired[g.Name]),
		el("DefaultCooldown", 300), el("HealthCheckType", "EC2"), el("CreatedTime", f.created),
		el("VPCZoneIdentifier", strings.Join(g.Subnets, ",")), el("AvailabilityZones", texts("member", zones)),
		el("CapacityRebalance", g.CapacityRebalance),
		el("SuspendedProcesses", each("member", g.Suspended, func(s string) []element { return []element{el("ProcessName", s)} })),
		el("Tags", each("member", slices.Sorted(maps.Keys(f.tags[g.Name])), func(k string) []element {
			return []element{el("Key", k), el("Value", f.tags[g.Name][k]), el("ResourceId", g.Name), el("ResourceType", "auto-scaling-group")}
		}), each("member", slices.Sorted(maps.Keys(g.Propagated)), func(k string) []element {
			return []element{el("Key", k), el("Value", g.Propagated[k]), el("PropagateAtLaunch", true), el("ResourceId", g.Name),
				el("ResourceType", "auto-scaling-group")}
		})),
		el("Instances", each("member", f.members(g.Name), func(in cloudsim.Instance) []element {
			state, health := "InService", "Healthy"
			switch {
			case in.Phase == cloudsim.Terminated:
				health = "Unhealthy"
			case f.leaving[in.ID]:
				state = f.leavingState(in.ID)
			case in.Phase == cloudsim.Pending:
				state = "Pending"
			}
			return []element{el("InstanceId", in.ID), el("InstanceType", in.Pool.Type), el("AvailabilityZone", in.Pool.Zone),
				el("LifecycleState", state), el("HealthStatus", health), el("ProtectedFromScaleIn", false)}
		})),
	}
	if g.MaxInstanceLifetime > 0 {
		out = append(out, el("MaxInstanceLifetime", g.MaxInstanceLifetime))
	}
	if g.PlacementGroup != "" {
		out = append(out, el("PlacementGroup", g.PlacementGroup))
	}
	if g.WarmPool {
		out = append(out, el("WarmPoolConfiguration", el("MinSize", 1)))
	}
	if g.Template == "" {
		return append(out, el("LaunchConfigurationName", g.Name))
	}
	t := f.config.template(g.Template)
	spec := []element{el("LaunchTemplateId", t.ID), el("LaunchTemplateName", t.Name)}
	if g.Version != "" {
		spec = append(spec, el("Version", g.Version))
	}
	if g.Mixed == nil {
		return append(out, el("LaunchTemplate", spec))
	}
	overrides := each("member", g.Mixed.Types, func(s string) []element { return []element{el("InstanceType", s)} })
	if g.Mixed.Attributes {
		overrides = []element{el("member", el("InstanceRequirements", el("VCpuCount", el("Min", 1)), el("MemoryMiB", el("Min", 1))))}
	}
	return append(out, el("MixedInstancesPolicy",
		el("LaunchTemplate", el("LaunchTemplateSpecification", spec), el("Overrides", overrides)),
		el("InstancesDistribution", el("OnDemandBaseCapacity", g.Mixed.OnDemandBase),
			el("OnDemandPercentageAboveBaseCapacity", g.Mixed.OnDemandPercent))))
}

func (f *Front) describeAutoScalingInstances(p *params) []element {
	names := p.texts("InstanceIds")
	if len(names) == 0 || len(names) > 50 {
		panic(validation("%d instances: name between 1 and 50", len(names)))
	}
	type member struct{ group, id, zone, state string }
	var found []member
	for _, g := range f.config.Groups {
		for _, in := range f.members(g.Name) {
			if slices.Contains(names, in.ID) {
				state := "InService"
				if f.leaving[in.ID] {
					state = f.leavingState(in.ID)
				}
				found = append(found, member{g.Name, in.ID, in.Pool.Zone, state})
			}
		}
	}
	found, next := page(f, p, "MaxRecords", found)
	p.checkRead()
	return []element{el("AutoScalingInstances", each("member", found, func(m member) []element {
		return []element{el("InstanceId", m.id), el("AutoScalingGroupName", m.group), el("AvailabilityZone", m.zone),
			el("LifecycleState", m.state), el("HealthStatus", "HEALTHY"), el("ProtectedFromScaleIn", false)}
	})), el("NextToken", next)}
}

// groupTags are the tags of a call that is about the tags of one group.
func (f *Front) groupTags(p *params) (name string, tags map[string]string) {
	tags = map[string]string{}
	for _, t := range p.each("Tags") {
		if kind := p.text(t + ".ResourceType"); kind != "auto-scaling-group" {
			panic(validation("ResourceType is '%s': it must be auto-scaling-group", kind))
		}
		if p.is(t + ".PropagateAtLaunch") {
			panic(validation("only tags that do not propagate are simulated"))
		}
		name = f.groupOf(p.text(t + ".ResourceId")).Name
		tags[p.text(t+".Key")] = p.text(t + ".Value")
	}
	p.checkRead()
	return name, tags
}

func (f *Front) createOrUpdateTags(p *params) []element {
	name, tags := f.groupTags(p)
	maps.Copy(f.tags[name], tags)
	return nil
}

func (f *Front) deleteTags(p *params) []element {
	name, tags := f.groupTags(p)
	for k := range tags {
		delete(f.tags[name], k)
	}
	return nil
}

func (f *Front) describePolicies(p *params) []element {
	found, next := page(f, p, "MaxRecords", f.config.Policies)
	p.checkRead()
	return []element{el("ScalingPolicies", each("member", found, func(i GroupItem) []element {
		return []element{el("AutoScalingGroupName", i.Group), el("PolicyName", i.Name), el("Enabled", !i.Disabled)}
	})), el("NextToken", next)}
}

func (f *Front) describeScheduledActions(p *params) []element {
	found, next := page(f, p, "MaxRecords", f.config.Schedules)
	p.checkRead()
	return []element{el("ScheduledUpdateGroupActions", each("member", found, func(i GroupItem) []element {
		return []element{el("AutoScalingGroupName", i.Group), el("ScheduledActionName", i.Name)}
	})), el("NextToken", next)}
}

func (f *Front) describeInstanceRefreshes(p *params) []element {
	g := f.groupOf(p.text("AutoScalingGroupName"))
	found := slices.DeleteFunc(slices.Clone(f.config.Refreshes), func(r Refresh) bool { return r.Group != g.Name })
	found, next := page(f, p, "MaxRecords", found)
	p.checkRead()
	return []element{el("InstanceRefreshes", each("member", found, func(r Refresh) []element {
		return []element{el("AutoScalingGroupName", r.Group), el("Status", r.Status), el("InstanceRefreshId", "refresh-0")}
	})), el("NextToken", next)}
}
