package aws

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// listed is the default time for which terminated instances and ended reservations are listed.
const listed = time.Hour

// ListTerminated sets how long terminated machines are listed and found by ID.
func (f *Front) ListTerminated(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.ListsTerminated.Duration = d
}

// forgets reports whether the machine terminated so long ago that its ID is no longer found.
func (f *Front) forgets(in cloudsim.Instance) bool {
	return in.Phase == cloudsim.Terminated && f.world.Now().Sub(in.TerminatedAt) > cmp.Or(f.config.ListsTerminated.Duration, listed)
}

func (f *Front) describeInstances(p *params) []element {
	want := wildcards(p.filters("Filter", "Value", "instance-id", "instance-state-name", "tag-key", "tag:*"))
	names := p.texts("InstanceId")
	var found []cloudsim.Instance
	known := map[string]bool{}
	for _, in := range f.world.Instances(false) {
		if f.forgets(in) {
			continue
		}
		known[in.ID] = true
		state, _ := f.stateOf(in)
		if (len(names) == 0 || slices.Contains(names, in.ID)) &&
			want.match(map[string]string{"instance-id": in.ID, "instance-state-name": state}, f.tagsOf(in)) {
			found = append(found, in)
		}
	}
	for _, id := range names {
		if !known[id] {
			panic(&cloudsim.Error{Code: "InvalidInstanceID.NotFound", Message: "The instance ID '" + id + "' does not exist"})
		}
	}
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{
		el("reservationSet", each("item", found, func(in cloudsim.Instance) []element {
			return []element{el("reservationId", "r-0"), el("instancesSet", el("item", f.instance(in)))}
		})),
		el("nextToken", next),
	}
}

// tagsOf are the tags that Auto Scaling adds beside those of the launch.
func (f *Front) tagsOf(in cloudsim.Instance) map[string]string {
	if in.Group == "" {
		return in.Tags
	}
	out := map[string]string{"aws:autoscaling:groupName": in.Group}
	maps.Copy(out, in.Tags)
	return out
}

func (f *Front) stateOf(in cloudsim.Instance) (name string, code int) {
	switch {
	case in.Phase == cloudsim.Terminated:
		return "terminated", 48
	case in.Ending && !f.leaving[in.ID]:
		return "shutting-down", 32
	case in.Phase == cloudsim.Stopped:
		return "stopped", 80
	case in.Phase == cloudsim.Pending:
		return "pending", 0
	default:
		return "running", 16
	}
}

func (f *Front) instance(in cloudsim.Instance) []element {
	state, code := f.stateOf(in)
	out := []element{
		el("instanceId", in.ID), el("instanceState", el("code", code), el("name", state)),
		el("instanceType", in.Pool.Type), el("placement", el("availabilityZone", in.Pool.Zone), el("groupName", in.Together)),
		el("launchTime", in.StartedAt), el("subnetId", f.subnetIn(in)), el("tagSet", tagSet(f.tagsOf(in))),
	}
	if in.Pool.CapacityType == v1alpha1.Spot {
		out = append(out, el("instanceLifecycle", "spot"))
	}
	if in.Reservation != "" {
		out = append(out, el("capacityReservationId", in.Reservation))
	}
	switch in.Reason {
	case "":
		if in.Phase == cloudsim.Stopped {
			out = append(out, stateReason("Server.ScheduledStop", "Stopped due to scheduled retirement"))
		}
	case cloudsim.ReasonTerminated:
		out = append(out, stateReason("Client.UserInitiatedShutdown", "User initiated shutdown"))
	case cloudsim.ReasonReclaimed:
		out = append(out, stateReason("Server.SpotInstanceTermination", "Spot instance termination"))
	case reasonNoKey:
		out = append(out, stateReason("Client.InternalError", "Client error on launch"))
	default:
		if strings.HasPrefix(in.Reason, "Client.") || strings.HasPrefix(in.Reason, "Server.") {
			return append(out, stateReason(in.Reason, "the machine ended on launch"))
		}
		out = append(out, stateReason("Server.InternalError", "Internal error on launch"))
	}
	return out
}

func stateReason(code, message string) element {
	return el("stateReason", el("code", code), el("message", code+": "+message))
}

// subnetIn is the first subnet in the zone of the instance, preferably of its group.
func (f *Front) subnetIn(in cloudsim.Instance) string {
	var out string
	g := find(f.config.Groups, func(g *Group) bool { return g.Name == in.Group })
	for _, s := range slices.Backward(f.config.Subnets) {
		if s.Zone == in.Pool.Zone && (g == nil || slices.Contains(g.Subnets, s.ID)) {
			out = s.ID
		}
	}
	return out
}

func tagSet(tags map[string]string) []element {
	return each("item", slices.Sorted(maps.Keys(tags)), func(k string) []element {
		return []element{el("key", k), el("value", tags[k])}
	})
}

func (f *Front) createTags(p *params) []element {
	names, tags := p.texts("ResourceId"), p.tags("Tag")
	p.checkRead()
	visible := map[string]bool{}
	for _, in := range f.world.Instances(false) {
		visible[in.ID] = !f.forgets(in)
	}
	for _, id := range names {
		if strings.HasPrefix(id, "i-") && !visible[id] {
			panic(&cloudsim.Error{Code: "InvalidInstanceID.NotFound", Message: "The instance ID '" + id + "' does not exist"})
		}
	}
	for _, id := range names {
		f.world.Tag(id, tags)
	}
	return []element{el("return", "true")}
}

func (f *Front) describeSubnets(p *params) []element {
	want := wildcards(p.filters("Filter", "Value", "subnet-id"))
	found := slices.DeleteFunc(slices.Clone(f.config.Subnets), func(s Subnet) bool {
		return !want.match(map[string]string{"subnet-id": s.ID}, nil)
	})
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{el("subnetSet", each("item", found, func(s Subnet) []element {
		return []element{el("subnetId", s.ID), el("availabilityZone", s.Zone), el("availabilityZoneId", zoneID(s.Zone)), el("vpcId", "vpc-0"),
			el("availableIpAddressCount", s.free())}
	})), el("nextToken", next)}
}

// free addresses of the subnet.
func (s *Subnet) free() int {
	if s.Full {
		return 0
	}
	return 4091
}

// zoneID is the name of a zone that is the same for all accounts: use1-az1 for
// us-east-1a.
func zoneID(zone string) string {
	region, letter := zone[:len(zone)-1], zone[len(zone)-1]
	parts := strings.Split(region, "-")
	short := parts[0]
	for _, p := range parts[1:] {
		short += p[:1]
	}
	return short + "-az" + string('1'+letter-'a')
}

func (f *Front) describeInstanceTypes(p *params) []element {
	want := wildcards(p.filters("Filter", "Value", "instance-type"))
	found := slices.DeleteFunc(slices.Clone(f.config.Types), func(t Type) bool {
		return !want.match(map[string]string{"instance-type": t.Name}, nil)
	})
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{el("instanceTypeSet", each("item", found, describeType)), el("nextToken", next)}
}

func describeType(t Type) []element {
	arch := t.Arch
	if arch == "" {
		arch = "x86_64"
	}
	strategies := []string{"partition", "spread"}
	if !t.NotClustered {
		strategies = append(strategies, "cluster")
	}
	out := []element{
		el("supportedUsageClasses", texts("item", t.soldAs())),
		el("placementGroupInfo", el("supportedStrategies", texts("item", strategies))),
		el("instanceType", t.Name), el("vCpuInfo", el("defaultVCpus", t.VCPUs)), el("memoryInfo", el("sizeInMiB", t.MemoryMiB)),
		el("processorInfo", el("supportedArchitectures", el("item", arch))),
		el("networkInfo", el("maximumNetworkInterfaces", t.Interfaces), el("ipv4AddressesPerInterface", t.AddressesPerInterface),
			el("efaSupported", t.EFAs > 0), el("efaInfo", el("maximumEfaInterfaces", t.EFAs))),
	}
	if t.GPUs > 0 {
		out = append(out, el("gpuInfo", el("gpus", el("item", el("count", t.GPUs), el("manufacturer", t.GPUMaker)))))
	}
	if t.Neurons > 0 {
		out = append(out, el("neuronInfo", el("neuronDevices", el("item", el("count", t.Neurons)))))
	}
	return out
}

func (f *Front) describeInstanceTypeOfferings(p *params) []element {
	if kind := p.text("LocationType"); kind != "availability-zone" {
		panic(invalid("LocationType is '%s': only availability-zone is simulated", kind))
	}
	want := wildcards(p.filters("Filter", "Value", "instance-type", "location"))
	type offering struct{ kind, zone string }
	var found []offering
	for _, pool := range f.world.Pools() {
		o := offering{pool.Type, pool.Zone}
		if pool.Cloud == v1alpha1.ProviderAWS && !slices.Contains(found, o) &&
			want.match(map[string]string{"instance-type": o.kind, "location": o.zone}, nil) {
			found = append(found, o)
		}
	}
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{el("instanceTypeOfferingSet", each("item", found, func(o offering) []element {
		return []element{el("instanceType", o.kind), el("location", o.zone), el("locationType", "availability-zone")}
	})), el("nextToken", next)}
}
