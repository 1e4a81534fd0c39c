package aws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// placementGroup has the strategy cluster: its machines share the domain of their pool.
type placementGroup struct {
	name   string
	id     string
	tags   map[string]string
	madeAt time.Time
}

// mostPlacementGroups is how many an account may have in a region.
const mostPlacementGroups = 500

// ownPlacementGroups adds the placement groups of Auto Scaling groups and launch templates, which exist from the start.
func (f *Front) ownPlacementGroups() {
	for _, g := range f.config.Groups {
		f.addPlacementGroup(g.PlacementGroup, nil, time.Time{})
	}
	for _, t := range f.config.Templates {
		f.addPlacementGroup(t.PlacementGroup, nil, time.Time{})
	}
}

func (f *Front) addPlacementGroup(name string, tags map[string]string, madeAt time.Time) {
	if name != "" {
		f.placements++
		f.placementGroups[name] = &placementGroup{name, fmt.Sprintf("pg-%017x", f.placements), tags, madeAt}
	}
}

// PlacementGroups returns the names of the existing placement groups.
func (f *Front) PlacementGroups() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.placementGroups))
}

func (f *Front) arnOf(g *placementGroup) string {
	return fmt.Sprintf("arn:aws:ec2:%s:000000000000:placement-group/%s", f.config.Region, g.name)
}

func (f *Front) describePlacementGroup(g *placementGroup) []element {
	return []element{
		el("groupName", g.name), el("groupId", g.id), el("groupArn", f.arnOf(g)), el("state", "available"), el("strategy", "cluster"),
		el("tagSet", tagSet(g.tags)),
	}
}

func unknownPlacementGroup(name string) *cloudsim.Error {
	return &cloudsim.Error{Code: "InvalidPlacementGroup.Unknown", Message: fmt.Sprintf("The Placement Group '%s' is unknown.", name)}
}

func (f *Front) createPlacementGroup(p *params) []element {
	name, tags := p.text("GroupName"), p.tagSpecifications("TagSpecification")["placement-group"]
	if strategy := p.text("Strategy"); strategy != "cluster" {
		panic(invalid("Strategy is '%s': only cluster is simulated", strategy))
	}
	p.checkRead()
	switch {
	case name == "" || len(name) > 255:
		panic(invalid("Value (%s) for parameter groupName is invalid. It must have 1 to 255 characters", name))
	case f.placementGroups[name] != nil:
		panic(&cloudsim.Error{Code: "InvalidPlacementGroup.Duplicate", Message: fmt.Sprintf("The Placement Group '%s' already exists.", name)})
	case len(f.placementGroups) >= mostPlacementGroups:
		panic(&cloudsim.Error{Code: "PlacementGroupLimitExceeded",
			Message: fmt.Sprintf("The maximum number of placement groups (%d) has been reached.", mostPlacementGroups)})
	}
	f.addPlacementGroup(name, tags, f.world.Now())
	return []element{el("placementGroup", f.describePlacementGroup(f.placementGroups[name]))}
}

func (f *Front) describePlacementGroups(p *params) []element {
	want, names := wildcards(p.filters("Filter", "Value", "group-name", "strategy", "state", "tag-key", "tag:*")), p.texts("GroupName")
	p.checkRead()
	var found []*placementGroup
	for _, name := range slices.Sorted(maps.Keys(f.placementGroups)) {
		g := f.placementGroups[name]
		if f.world.Visible(g.madeAt) && (len(names) == 0 || slices.Contains(names, name)) &&
			want.match(map[string]string{"group-name": name, "strategy": "cluster", "state": "available"}, g.tags) {
			found = append(found, g)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(found, func(g *placementGroup) bool { return g.name == name }) {
			panic(unknownPlacementGroup(name))
		}
	}
	return []element{el("placementGroupSet", each("item", found, f.describePlacementGroup))}
}

func (f *Front) deletePlacementGroup(p *params) []element {
	name := p.text("GroupName")
	p.checkRead()
	if f.placementGroups[name] == nil {
		panic(unknownPlacementGroup(name))
	}
	// Terminating machines count, stopped ones do not.
	zones := f.zonesOf(name, func(in cloudsim.Instance) bool { return in.Phase != cloudsim.Stopped })
	if len(zones) > 0 {
		panic(&cloudsim.Error{Code: "InvalidPlacementGroup.InUse",
			Message: fmt.Sprintf("The placement group '%s' is in use and may not be deleted.", name)})
	}
	delete(f.placementGroups, name)
	return []element{el("return", "true")}
}

// zonesOf are the zones in which a placement group has machines that count, or reservations.
func (f *Front) zonesOf(name string, counts func(cloudsim.Instance) bool) map[string]bool {
	zones := map[string]bool{}
	for _, in := range f.world.Instances(true) {
		if in.Together == name && in.Phase != cloudsim.Terminated && counts(in) {
			zones[in.Pool.Zone] = true
		}
	}
	for _, r := range f.world.Reservations() {
		if r.Together == name && r.EndedAt.IsZero() {
			zones[r.Pool.Zone] = true
		}
	}
	return zones
}

// mayBePlaced refuses machines of a type in a zone that cannot be in a placement group; empty is for none.
func (f *Front) mayBePlaced(group, kind, zone string) *cloudsim.Error {
	if group == "" {
		return nil
	}
	g := f.placementGroups[group]
	if g == nil || !f.world.Visible(g.madeAt) {
		return unknownPlacementGroup(group)
	}
	if t := f.config.typeOf(kind); t != nil && t.NotClustered {
		return &cloudsim.Error{Code: "InvalidParameterCombination", Message: fmt.Sprintf("Cluster placement groups are not supported by the "+
			"'%s' instance type. Specify a supported instance type or change the placement group strategy, and try again.", kind)}
	}
	for other := range f.zonesOf(group, func(cloudsim.Instance) bool { return true }) {
		if other != zone {
			return &cloudsim.Error{Code: "InvalidPlacementGroup.InUse",
				Message: fmt.Sprintf("The placement group '%s' is in use in another availability zone: %s", group, other)}
		}
	}
	return nil
}

// mostDescribed is how many reservations a call may name.
const mostDescribed = 10

func (f *Front) describeCapacityReservationTopology(p *params) []element {
	names := p.texts("CapacityReservationId")
	p.checkRead()
	if len(names) == 0 || len(names) > mostDescribed {
		panic(invalid("%d Capacity Reservations: only descriptions of 1 to %d are simulated", len(names), mostDescribed))
	}
	var found []cloudsim.Reservation
	for _, id := range names {
		r := f.reservation(id)
		if r == nil || !f.world.Visible(r.MadeAt) {
			panic(&cloudsim.Error{Code: "InvalidCapacityReservationId.NotFound",
				Message: fmt.Sprintf("The capacity reservation '%s' does not exist", id)})
		}
		found = append(found, *r)
	}
	return []element{el("capacityReservationSet", each("item", found, func(r cloudsim.Reservation) []element {
		out := []element{
			el("capacityReservationId", r.ID), el("instanceType", r.Pool.Type), el("availabilityZone", r.Pool.Zone),
			el("state", f.stateOfReservation(r)), el("networkNodeSet", texts("item", f.networkNodes(r))),
		}
		if r.Together != "" {
			out = append(out, el("groupName", r.Together))
		}
		return out
	}))}
}

// networkLayer begins the label of nodes by which the domains of a pool are a layer of the network.
const networkLayer = "topology.k8s.aws/network-node-layer-"

// networkNodes returns the network nodes that all places of a reservation share, from the top, as far as the account may see them.
func (f *Front) networkNodes(r cloudsim.Reservation) (out []string) {
	state := f.stateOfReservation(r)
	if len(r.Domains) == 0 || state != "active" && state != "pending" {
		return nil
	}
	pools := f.world.Pools()
	domains := find(pools, func(p *cloudsim.Pool) bool { return p.PoolKey == r.Pool }).Script.Domains
	number, ok := strings.CutPrefix(domains.NodeLabel, networkLayer)
	layer, err := strconv.Atoi(number)
	if !ok || err != nil {
		return nil
	}
	for at := 1; at <= layer; at++ {
		nodes := map[string]bool{}
		for _, d := range domains.Of {
			if slices.Contains(r.Domains, d.Name) {
				nodes[cmp.Or(d.NodeLabels(domains.NodeLabel)[networkLayer+strconv.Itoa(at)], fmt.Sprintf("nn-%s-%d", r.Pool.Zone, at))] = true
			}
		}
		if len(nodes) > 1 {
			break
		}
		out = slices.AppendSeq(out, maps.Keys(nodes))
	}
	if most := f.config.NetworkNodes; most > 0 && most < len(out) {
		out = out[:most]
	}
	return out
}
