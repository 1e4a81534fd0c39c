package gcp

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// policy is a compact placement policy: a resource policy of a region, which has no labels.
type policy struct {
	region, name, description string
	madeAt                    time.Time
}

func (p *policy) path() string { return "regions/" + p.region + "/resourcePolicies/" + p.name }

// mostCompact is how many VMs a compact placement policy without a maximum distance takes.
const mostCompact = 1500

// uncollocated are the machine series that take no compact placement policy: cluster-toolkit, which Google publishes for Slurm,
// leaves them out. VMs of A4X need one with a GPU topology.
var uncollocated = []string{"a4x", "e2", "m1", "m2", "m3", "n1", "t2a", "t2d"}

const (
	maintenanceTerminate = "TERMINATE"
	maintenanceMigrate   = "MIGRATE"
)

// onHostMaintenance of the VMs of a template. Neither Spot VMs nor those with GPUs can migrate.
func (f *Front) onHostMaintenance(t *Template) string {
	mt := f.machineType(t.MachineType)
	if t.OnHostMaintenance != "" {
		return t.OnHostMaintenance
	}
	if t.ProvisioningModel == modelSpot || mt != nil && mt.GPUs > 0 {
		return maintenanceTerminate
	}
	return maintenanceMigrate
}

// Policies are the compact placement policies that calls have made, and not deleted: how many VMs each has, by its name.
func (f *Front) Policies() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for _, p := range f.policies {
		out[p.name] = len(f.membersOf(p.region, p.name))
	}
	return out
}

type policyJSON struct {
	Kind                 string `json:"kind,omitempty"`
	Name                 string `json:"name"`
	Description          string `json:"description,omitempty"`
	Region               string `json:"region,omitempty"`
	Status               string `json:"status,omitempty"`
	CreationTimestamp    string `json:"creationTimestamp,omitempty"`
	SelfLink             string `json:"selfLink,omitempty"`
	GroupPlacementPolicy *struct {
		Collocation string `json:"collocation"`
	} `json:"groupPlacementPolicy,omitempty"`
}

func (f *Front) policyKey(region, name string) string { return region + "/" + name }

func (f *Front) insertPolicy(c *call) (any, *cloudsim.Error) {
	var in policyJSON
	if refused := c.read(&in); refused != nil {
		return nil, refused
	}
	p := &policy{region: c.PathValue("region"), name: in.Name, description: in.Description, madeAt: f.world.Now()}
	key := f.policyKey(p.region, p.name)
	switch {
	case !rfc1035.MatchString(in.Name):
		return nil, invalid("resource.name", in.Name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
	case in.GroupPlacementPolicy == nil || in.GroupPlacementPolicy.Collocation != "COLLOCATED":
		return nil, invalid("resource.groupPlacementPolicy", "", "Only policies with the collocation COLLOCATED are simulated.")
	case f.policies[key] != nil:
		return nil, refusal(http.StatusConflict, "alreadyExists", "The resource 'projects/%s/%s' already exists", f.config.Project, p.path())
	}
	f.policies[key] = p
	return f.operation(f.begin("insert", scopeOf(c))), nil
}

func (f *Front) deletePolicy(c *call) (any, *cloudsim.Error) {
	key := f.policyKey(c.PathValue("region"), c.PathValue("policy"))
	p := f.policies[key]
	if p == nil {
		return nil, notFound("projects/" + f.config.Project + "/" + scopeOf(c) + "/resourcePolicies/" + c.PathValue("policy"))
	}
	if members := f.membersOf(p.region, p.name); len(members) > 0 {
		return nil, refusal(http.StatusBadRequest, "resourceInUseByAnotherResource",
			"The resource_policy resource 'projects/%s/%s' is already being used by 'projects/%[1]s/zones/%s/instances/%s'",
			f.config.Project, p.path(), members[0].zone, members[0].name)
	}
	delete(f.policies, key)
	return f.operation(f.begin("delete", scopeOf(c))), nil
}

// membersOf a policy are the VMs that it applies to, stopped ones included, by their names.
func (f *Front) membersOf(region, name string) (out []*vm) {
	for _, key := range slices.Sorted(maps.Keys(f.vms)) {
		if v := f.vms[key]; v.policy == name && regionOf(v.zone) == region {
			out = append(out, v)
		}
	}
	return out
}

var nameTerm = regexp.MustCompile(`^name eq (\S+)$`)

// namesLike is the regular expression of a filter by name.
func namesLike(filter string) (*regexp.Regexp, *cloudsim.Error) {
	term := nameTerm.FindStringSubmatch(filter)
	if term == nil {
		return nil, invalid("filter", filter, "Only a term like name eq prefix-.* is simulated.")
	}
	names, err := regexp.Compile("^(?:" + term[1] + ")$")
	if err != nil {
		return nil, invalid("filter", filter, "Invalid list filter expression.")
	}
	return names, nil
}

// listPolicies answers for all regions together.
func (f *Front) listPolicies(c *call) (any, *cloudsim.Error) {
	match := regexp.MustCompile("")
	if filter := c.URL.Query().Get("filter"); filter != "" {
		var refused *cloudsim.Error
		if match, refused = namesLike(filter); refused != nil {
			return nil, refused
		}
	}
	var all []*policy
	for _, key := range slices.Sorted(maps.Keys(f.policies)) {
		if p := f.policies[key]; match.MatchString(p.name) && f.world.Visible(p.madeAt) {
			all = append(all, p)
		}
	}
	cut, next, refused := page(f, c, all)
	if refused != nil {
		return nil, refused
	}
	type scoped struct {
		ResourcePolicies []policyJSON `json:"resourcePolicies"`
	}
	items := map[string]*scoped{}
	for _, p := range cut {
		scope := "regions/" + p.region
		if items[scope] == nil {
			items[scope] = &scoped{}
		}
		out := policyJSON{Kind: "compute#resourcePolicy", Name: p.name, Description: p.description, Region: f.link(scope), Status: "READY",
			CreationTimestamp: p.madeAt.UTC().Format(time.RFC3339Nano), SelfLink: f.link(p.path())}
		items[scope].ResourcePolicies = append(items[scope].ResourcePolicies, out)
	}
	return aggregated(f, c, "compute#resourcePolicyAggregatedList", items, next)
}

// apply checks that a number of new VMs in a zone may have the placement policies of a call, and puts them in.
func (f *Front) apply(m *machine, policies []string, zone string, count int) *cloudsim.Error {
	const field = "resource.instanceProperties.resourcePolicies"
	region := regionOf(zone)
	switch {
	case len(policies) > 1:
		return invalid(field, strings.Join(policies, ","), "An instance can have one placement policy.")
	case len(policies) == 1 && f.policies[f.policyKey(region, policies[0])] == nil:
		return notFound(fmt.Sprintf("projects/%s/regions/%s/resourcePolicies/%s", f.config.Project, region, policies[0]))
	case len(policies) == 1:
		m.policy = policies[0]
	}
	if m.policy == "" {
		return nil
	}
	members := f.membersOf(region, m.policy)
	series, _, _ := strings.Cut(m.machineType, "-")
	resource := fmt.Sprintf("projects/%s/regions/%s/resourcePolicies/%s", f.config.Project, region, m.policy)
	if refused := f.need(resource, usePolicy); refused != nil {
		return refused
	}
	switch {
	case slices.Contains(uncollocated, series):
		return invalid(field, m.policy, fmt.Sprintf("Machine type %s does not support compact placement policies.", m.machineType))
	case f.onHostMaintenance(m.template) != maintenanceTerminate:
		return invalid(field, m.policy, "A compact placement policy needs the host maintenance policy TERMINATE.")
	case len(members)+count > mostCompact:
		return invalid(field, m.policy, fmt.Sprintf("A compact placement policy can have %d instances.", mostCompact))
	case len(members) > 0 && members[0].zone != zone:
		return invalid(field, m.policy, "The instances of a compact placement policy are in one zone.")
	}
	return nil
}
