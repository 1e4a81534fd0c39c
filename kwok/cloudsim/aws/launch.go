package aws

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/kwok/cloudsim"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// machines is what is launched.
type machines struct {
	template     *Template
	subnet       *Subnet
	kind         string
	capacityType v1alpha1.CapacityType
	count        int
	// least is the fewest that are taken.
	least       int
	reservation string
	group       string
	tags        map[string]string
	// placement group; empty for none.
	placement string
}

// SetUnreachable sets the zones that are away.
func (f *Front) SetUnreachable(zones ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.Unreachable = zones
}

// unreachable is the error of what is launched or reserved in a zone that is away; nil in others.
func (f *Front) unreachable(zone string) *cloudsim.Error {
	if !slices.Contains(f.config.Unreachable, zone) {
		return nil
	}
	return &cloudsim.Error{Status: 500, Code: "InternalError", Message: "An internal error has occurred"}
}

func (f *Front) launch(m machines) ([]cloudsim.Instance, *cloudsim.Error) {
	if refused := f.unreachable(m.subnet.Zone); refused != nil {
		return nil, refused
	}
	kind := f.config.typeOf(m.kind)
	if kind == nil {
		return nil, invalid("The instance type '%s' does not exist", m.kind)
	}
	if class := f.usageClass(&m); !slices.Contains(kind.soldAs(), class) {
		return nil, unsold(kind, class)
	}
	if refused := f.mayUse(&m); refused != nil {
		return nil, refused
	}
	m.placement = cmp.Or(m.placement, m.template.PlacementGroup)
	if r := f.reservation(m.reservation); r != nil && r.Together != "" && r.Together != m.placement {
		return nil, invalid("the reservation %s is in the placement group '%s': a launch into it from '%s' is not simulated", r.ID, r.Together,
			m.placement)
	}
	if refused := f.mayBePlaced(m.placement, m.kind, m.subnet.Zone); refused != nil {
		return nil, refused
	}
	if m.subnet.Full {
		return nil, &cloudsim.Error{Status: 400, Code: "InsufficientFreeAddressesInSubnet",
			Message: fmt.Sprintf("There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", m.subnet.ID)}
	}
	got, refused := f.world.Launch(cloudsim.Order{
		Pool:  cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: m.kind, Zone: m.subnet.Zone, CapacityType: m.capacityType},
		Count: m.count, Min: m.least, Reservation: m.reservation, Together: m.placement, Group: m.group, Tags: m.tags,
		ID:   func(n int64) string { return fmt.Sprintf("i-%017x", n) },
		Node: func(id string) *kwokv1alpha1.MachineNode { return f.node(m, id) },
	})
	for _, in := range got {
		f.protected[in.ID] = m.template.Protected
		if r := f.reservation(m.reservation); r != nil && f.config.block(r.ID) != nil {
			f.world.EndAt(in.ID, r.EndsAt.Add(-blockEnd))
		}
		if m.template.Ends != "" {
			f.world.Fail(in.ID, m.template.Ends)
		}
		for _, action := range kmsActions {
			if m.template.Key != "" && !f.use(action) {
				f.world.Fail(in.ID, reasonNoKey)
			}
		}
	}
	if refused != nil {
		return got, refusal(refused, m.capacityType)
	}
	return got, nil
}

// usageClass is how machines are bought.
func (f *Front) usageClass(m *machines) string {
	switch {
	case f.config.block(m.reservation) != nil:
		return blockClass
	case m.capacityType == v1alpha1.Spot:
		return spotClass
	default:
		return onDemandClass
	}
}

func unsold(t *Type, class string) *cloudsim.Error {
	return &cloudsim.Error{Code: "Unsupported", Message: fmt.Sprintf("The requested configuration is currently not supported: %s is not sold "+
		"as %s. Please check the documentation for supported configurations.", t.Name, class)}
}

// reasonNoKey is why machines end whose volumes the caller may not encrypt.
const reasonNoKey = "NoKey"

// node is what registers.
func (f *Front) node(m machines, id string) *kwokv1alpha1.MachineNode {
	if m.template.NoNode {
		return nil
	}
	t := f.config.typeOf(m.kind)
	n := &kwokv1alpha1.MachineNode{
		Labels: map[string]string{
			corev1.LabelHostname: id, corev1.LabelInstanceTypeStable: m.kind,
			corev1.LabelTopologyZone: m.subnet.Zone, corev1.LabelTopologyRegion: f.config.Region,
			corev1.LabelOSStable: "linux", corev1.LabelArchStable: nodeArch(t.Arch),
		},
		ProviderID: fmt.Sprintf("aws:///%s/%s", m.subnet.Zone, id),
		Taints:     m.template.Taints,
		Capacity:   t.Capacity, Allocatable: t.Allocatable, Devices: t.Devices,
	}
	maps.Copy(n.Labels, m.template.Labels)
	if len(t.Devices) > 0 {
		n.Labels[kwokv1alpha1.DevicesLabel] = "true"
	}
	return n
}

func nodeArch(arch string) string {
	if arch == "arm64" {
		return "arm64"
	}
	return "amd64"
}

func (f *Front) subnetOf(id string) *Subnet {
	s := f.config.subnet(id)
	if s == nil {
		panic(&cloudsim.Error{Code: "InvalidSubnetID.NotFound", Message: fmt.Sprintf("The subnet ID '%s' does not exist", id)})
	}
	return s
}

// roomIn returns the first of the subnets that has addresses left, or the first. All are in
// one zone.
func (f *Front) roomIn(ids []string) *Subnet {
	var out *Subnet
	for _, id := range ids {
		s := f.subnetOf(id)
		if out != nil && s.Zone != out.Zone {
			panic(invalid("subnets %v: only subnets of one zone are simulated", ids))
		}
		if out == nil || out.Full && !s.Full {
			out = s
		}
	}
	return out
}

// createFleet supports fleets of type instant, with one template, one instance type and one zone.
func (f *Front) createFleet(p *params) []element {
	if kind := p.text("Type"); kind != "instant" {
		panic(invalid("Type is '%s': only instant fleets are simulated", kind))
	}
	configs := p.each("LaunchTemplateConfigs")
	if len(configs) != 1 || len(p.each(configs[0]+".Overrides")) == 0 {
		panic(invalid("only fleets of one launch template, with overrides, are simulated"))
	}
	spec := configs[0] + ".LaunchTemplateSpecification."
	m := machines{
		template: f.templateOf(p, spec, spec+"Version").Template,
		count:    p.number("TargetCapacitySpecification.TotalTargetCapacity"),
		tags:     p.tagSpecifications("TagSpecification")["instance"],
	}
	for _, override := range p.each(configs[0] + ".Overrides") {
		kind, subnet := p.text(override+".InstanceType"), f.subnetOf(p.text(override+".SubnetId"))
		if m.subnet != nil && m.kind == kind && m.subnet.Zone == subnet.Zone {
			// A pool is a type in a zone, in whichever subnet of it.
			panic(&cloudsim.Error{Code: "InvalidFleetConfig", Message: "The fleet configuration contains duplicate instance pools"})
		}
		if m.subnet != nil {
			panic(invalid("only fleets of one instance type in one zone are simulated"))
		}
		m.kind, m.subnet, m.placement = kind, subnet, p.text(override+".Placement.GroupName")
	}
	if m.template.MarketType != "" {
		panic(&cloudsim.Error{Code: "InvalidParameterCombination", Message: "a fleet takes no launch template with market options"})
	}
	options := "OnDemandOptions"
	m.capacityType = v1alpha1.OnDemand
	switch kind := p.text("TargetCapacitySpecification.DefaultTargetCapacityType"); kind {
	case "on-demand":
	case "spot":
		options, m.capacityType = "SpotOptions", v1alpha1.Spot
	default:
		panic(invalid("DefaultTargetCapacityType is '%s': only on-demand and spot are simulated", kind))
	}
	p.text(options + ".AllocationStrategy")
	single := []bool{p.is(options + ".SingleAvailabilityZone"), p.is(options + ".SingleInstanceType")}
	m.least = p.number(options + ".MinTargetCapacity")
	if m.least > 0 && !slices.Contains(single, true) {
		panic(invalid("MinTargetCapacity needs SingleAvailabilityZone or SingleInstanceType"))
	}
	if m.count < 1 || m.least > 1000 || m.least > m.count {
		panic(invalid("TotalTargetCapacity is %d and MinTargetCapacity %d", m.count, m.least))
	}
	p.checkRead()
	if slices.Contains(f.config.HalfLaunched, f.fleets) {
		m.least = 0
	}
	f.fleets++
	got, refused := f.launch(m)
	out := []element{el("fleetId", fmt.Sprintf("fleet-%017x", f.fleets))}
	lifecycle := "on-demand"
	if m.capacityType == v1alpha1.Spot {
		lifecycle = "spot"
	}
	source := el("launchTemplateAndOverrides",
		el("launchTemplateSpecification", el("launchTemplateId", m.template.ID), el("version", p.text(spec+"Version"))),
		el("overrides", el("instanceType", m.kind), el("subnetId", m.subnet.ID)))
	if refused != nil {
		var errors []*cloudsim.Error
		if len(got) == 0 {
			errors = append(errors, &cloudsim.Error{Code: "UnfulfillableCapacity",
				Message: "Failed to fulfill capacity. Please review errors for more information."})
		}
		out = append(out, el("errorSet", each("item", append(errors, refused), func(e *cloudsim.Error) []element {
			return []element{el("errorCode", e.Code), el("errorMessage", e.Message), el("lifecycle", lifecycle), source}
		})))
	}
	if len(got) > 0 {
		out = append(out, el("fleetInstanceSet", el("item",
			el("instanceIds", texts("item", ids(got))), el("instanceType", m.kind), el("lifecycle", lifecycle),
			el("availabilityZone", m.subnet.Zone), el("subnetId", m.subnet.ID), source)))
	}
	return out
}

func ids(list []cloudsim.Instance) (out []string) {
	for _, in := range list {
		out = append(out, in.ID)
	}
	return out
}

func (f *Front) runInstances(p *params) []element {
	template := f.templateOf(p, "LaunchTemplate.", "LaunchTemplate.Version").Template
	m := machines{
		template: template, subnet: f.subnetOf(f.subnetToRun(p, template)), kind: p.text("InstanceType"), capacityType: v1alpha1.OnDemand,
		count: p.number("MaxCount"), least: p.number("MinCount"),
		tags: p.tagSpecifications("TagSpecification")["instance"], placement: p.text("Placement.GroupName"),
	}
	if m.kind == "" {
		m.kind = m.template.Type
	}
	preference := p.text("CapacityReservationSpecification.CapacityReservationPreference")
	m.reservation = p.text("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId")
	p.checkRead()
	switch {
	case m.template.MarketType == "spot":
		panic(invalid("only on-demand machines and those of Capacity Blocks are simulated here"))
	case preference == "capacity-reservations-only" && m.reservation != "":
		r := f.reservation(m.reservation)
		if r == nil || !f.world.Visible(r.MadeAt) {
			panic(&cloudsim.Error{Code: "InvalidCapacityReservationId.NotFound",
				Message: fmt.Sprintf("The capacity reservation '%s' does not exist", m.reservation)})
		}
		if b := f.config.block(r.ID); (b != nil) != (m.template.MarketType == "capacity-block") {
			panic(&cloudsim.Error{Code: "InvalidParameterCombination",
				Message: "The market type capacity-block is for launches into a Capacity Block, and only for them."})
		}
		if state := f.stateOfReservation(*r); state != "active" {
			panic(&cloudsim.Error{Code: "InvalidCapacityReservationState",
				Message: fmt.Sprintf("The capacity reservation '%s' is in state '%s'.", r.ID, state)})
		}
		if r.Pool.Type != m.kind || r.Pool.Zone != m.subnet.Zone {
			panic(invalid("the reservation %s is for %s in %s", r.ID, r.Pool.Type, r.Pool.Zone))
		}
		m.capacityType = r.Pool.CapacityType
	case preference != "" || m.reservation != "":
		panic(invalid("only a target reservation with the preference capacity-reservations-only is simulated"))
	}
	got, refused := f.launch(m)
	if refused != nil {
		panic(refused)
	}
	return []element{el("reservationId", "r-0"), el("instancesSet", each("item", got,
		func(in cloudsim.Instance) []element { return f.instance(in) }))}
}

// subnetToRun is the subnet of RunInstances: of the call, or of all of its network interfaces,
// which replace those of the template.
func (f *Front) subnetToRun(p *params, t *Template) string {
	subnet, interfaces := p.text("SubnetId"), p.each("NetworkInterface")
	switch {
	case len(interfaces) == 0 && len(t.Interfaces) == 0:
		return subnet
	case subnet != "":
		panic(&cloudsim.Error{Code: "InvalidParameterCombination",
			Message: "Network interfaces and an instance-level subnet ID may not be specified on the same request"})
	case len(interfaces) != len(t.Interfaces):
		panic(invalid("%d network interfaces: give one for each of the %d of the launch template", len(interfaces), len(t.Interfaces)))
	}
	for i, prefix := range interfaces {
		got := Interface{
			Type: p.text(prefix + ".InterfaceType"), Card: p.number(prefix + ".NetworkCardIndex"), Device: p.number(prefix + ".DeviceIndex"),
			Groups: p.texts(prefix + ".SecurityGroupId"),
		}
		if !reflect.DeepEqual(got, t.Interfaces[i]) || i > 0 && p.text(prefix+".SubnetId") != subnet {
			panic(invalid("network interface %d is %+v in subnet %q: it is %+v in the launch template", i, got, p.text(prefix+".SubnetId"),
				t.Interfaces[i]))
		}
		subnet = p.text(prefix + ".SubnetId")
	}
	return subnet
}

func (f *Front) terminateInstances(p *params) []element {
	names := p.texts("InstanceId")
	p.checkRead()
	f.mustExist(names)
	type state struct {
		name string
		code int
	}
	before := map[string]state{}
	for _, in := range f.world.Instances(true) {
		name, code := f.stateOf(in)
		before[in.ID] = state{name, code}
	}
	for _, id := range names {
		if slices.Contains(f.config.Protected, id) || f.protected[id] {
			panic(&cloudsim.Error{Code: "OperationNotPermitted", Message: fmt.Sprintf("The instance '%s' may not be terminated. "+
				"Modify its 'disableApiTermination' instance attribute and try again.", id)})
		}
	}
	for _, id := range names {
		f.world.Terminate(id)
	}
	return []element{el("instancesSet", each("item", names, func(id string) []element {
		return []element{el("instanceId", id), el("currentState", el("code", 32), el("name", "shutting-down")),
			el("previousState", el("code", before[id].code), el("name", before[id].name))}
	}))}
}

// mustExist refuses the whole call for one bad ID.
func (f *Front) mustExist(names []string) {
	known := map[string]bool{}
	for _, in := range f.world.Instances(true) {
		known[in.ID] = !f.forgets(in)
	}
	var unknown []string
	for _, id := range names {
		if !strings.HasPrefix(id, "i-") {
			panic(&cloudsim.Error{Code: "InvalidInstanceID.Malformed", Message: fmt.Sprintf("Invalid id: \"%s\"", id)})
		}
		if !known[id] {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		panic(&cloudsim.Error{Code: "InvalidInstanceID.NotFound", Message: fmt.Sprintf("The instance IDs '%s' do not exist",
			strings.Join(unknown, ", "))})
	}
}
