// Package placement puts machines that must be together near each other: by compact placement policies, which it makes for a launch and
// deletes when nothing needs them any more, and by the blocks of a reservation.
package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/collocation"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// What Google documents of compact placement policies, beside that a VM has one at most and that they are of a region:
const (
	// mostCompact is how many VMs a policy without a maximum distance takes; GKE's documents and cluster-toolkit, which Google
	// publishes for Slurm, say the same.
	mostCompact = 1500
	// maintenanceTerminate is the only maintenance policy that VMs of a policy may have: they are not migrated. VMs with GPUs
	// must have it anyway, and Spot VMs have it unless they say otherwise.
	maintenanceTerminate = "TERMINATE"
)

// uncollocated are the machine series that take no compact placement policy, as cluster-toolkit has them. VMs of A4X take only
// one with a GPU topology, which their instance template names.
var uncollocated = []string{"a4x", "e2", "m1", "m2", "m3", "n1", "t2a", "t2d"}

// lookAgain is how often it is looked for policies that this process does not know of.
const lookAgain = time.Hour

// policyID names a resource policy of a project.
type policyID struct{ region, name string }

func (p policyID) String() string { return p.region + "/" + p.name }

// Policies are the compact placement policies that Muster has made for launches whose machines must be together.
type Policies struct {
	config Config
	cloud  *api.Client
	names  inventory.Names

	// tracker has a scope for each project.
	tracker *collocation.Tracker[policyID]

	mu sync.Mutex
	// loose are the managed instance groups whose machines were requested together and were not placed together, with the level.
	loose map[api.Manager]string
}

// Config is what Policies work with.
type Config struct {
	// Cluster and ClusterUID are written into the description of each policy.
	Cluster, ClusterUID string
	Clock               clock.PassiveClock
	// MayAct returns an error while another process may act in place of this one; nil means that there is no other.
	MayAct func() error
}

// NewPolicies returns the Policies of a cluster, which have those names. It makes no call.
func NewPolicies(cloud *api.Client, names inventory.Names, c Config) *Policies {
	return &Policies{
		config: c, cloud: cloud, names: names, loose: map[api.Manager]string{},
		tracker: collocation.NewTracker[policyID](collocation.Config{Clock: c.Clock, MayAct: c.MayAct, LookAgain: lookAgain}),
	}
}

// isLoose reports whether a managed instance group that makes its own machines has nothing that puts them near each other. Those of a
// resize request are near, as Google documents, and those of a reservation are where it is.
func isLoose(method v1alpha1.GCPLaunchMethod, t *template.Template, mig *computepb.InstanceGroupManager) bool {
	return method == v1alpha1.GCPCreateInstances && !t.Placed && mig.GetResourcePolicies().GetWorkloadPolicy() == "" &&
		t.CapacityType() != v1alpha1.Reserved
}

// Request notes whether a launch requires a domain that its managed instance group does not guarantee.
func (s *Policies) Request(req cloudprovider.LaunchRequest, t *template.Template, mig *computepb.InstanceGroupManager) {
	if req.Together.Level == "" || !isLoose(req.Group.Spec.GCP.LaunchMethod, t, mig) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loose[inventory.ManagerOf(req.Group)] = req.Together.Level
}

// Of finds or makes the placement policy of a launch, and returns its name. It is empty where the launch goes on without: its
// machines may be near each other all the same, and are judged by the labels of their nodes.
func (s *Policies) Of(ctx context.Context, req cloudprovider.LaunchRequest, t *template.Template) (name string, err error) {
	if req.Together.Level == "" || !collocates(t, req.Group.Spec.GCP.MachineType) {
		return "", nil
	}
	project, zone, there := req.Group.Spec.GCP.Project, inventory.ZoneOf(req.Group), 0
	id := policyID{api.Region(zone), s.names.Policy(req.Token, zone)}
	if req.Together.Value != "" {
		if id.name, there, err = s.neighbours(ctx, req); err != nil || id.name == "" {
			return "", err
		}
	}
	if there+req.Count > mostCompact {
		return "", &cloudprovider.Error{Class: v1alpha1.Quota, Code: "PlacementPolicyLimit",
			Message: fmt.Sprintf("%d machines must be in one domain of %s, and a compact placement policy takes %d: ask for fewer, or for a "+
				"wider domain",
				there+req.Count, req.Together.Level, mostCompact)}
	}
	s.tracker.Need(project, id)
	if req.Together.Value == "" {
		err = s.insert(ctx, req, project, id)
		if r := cloudprovider.Refusal(err); r != nil && r.Passes() {
			err = cloudprovider.Inconclusive(err)
		}
		s.tracker.Fared(err)
	}
	switch {
	case cloudprovider.Refusal(err) != nil:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("making placement policy %s: %w", id.name, err)
	}
	return id.name, nil
}

// insert makes a policy, unless an earlier call has.
func (s *Policies) insert(ctx context.Context, req cloudprovider.LaunchRequest, project string, id policyID) error {
	err := s.cloud.InsertPolicy(ctx, project, id.region, &computepb.ResourcePolicy{
		Name: new(id.name), Description: new(fmt.Sprintf("Muster of cluster %s (%s) for %s", s.config.Cluster, s.config.ClusterUID, req.Request)),
		GroupPlacementPolicy: &computepb.ResourcePolicyGroupPlacementPolicy{
			Collocation: new(computepb.ResourcePolicyGroupPlacementPolicy_COLLOCATED.String()),
		},
	})
	if errors.Is(err, api.ErrExists) {
		return nil
	}
	return err
}

// neighbours is the policy that most machines of the launch's request have in its zone, and how many those are. The name is empty
// where they have none of Muster's.
func (s *Policies) neighbours(ctx context.Context, req cloudprovider.LaunchRequest) (name string, there int, err error) {
	all, err := s.cloud.InstancesOf(ctx, req.Group.Spec.GCP.Project, inventory.ZoneOf(req.Group), s.names.FilterFor(req.Token))
	if err != nil {
		return "", 0, fmt.Errorf("listing the machines of request %s: %w", req.Request, err)
	}
	count := map[string]int{}
	for _, in := range all {
		if inventory.StateOf(in.GetStatus()) == cloudprovider.Terminated || !s.names.IsFor(req, in) {
			continue
		}
		for _, id := range s.ours(in) {
			count[id.name]++
		}
	}
	name = collocation.Most(count)
	return name, count[name], nil
}

// ours are Muster's policies among those of an instance.
func (s *Policies) ours(in *computepb.Instance) (out []policyID) {
	for _, link := range in.GetResourcePolicies() {
		if name := api.Base(link); strings.HasPrefix(name, s.names.PolicyPrefix()) {
			out = append(out, policyID{api.Region(api.Base(in.GetZone())), name})
		}
	}
	return out
}

// Sweep deletes the policies that nothing needs any more, given all of Muster's machines in each project that could be listed.
func (s *Policies) Sweep(ctx context.Context, machines map[string][]*computepb.Instance) {
	var scopes []collocation.Scope[policyID]
	for project, all := range machines {
		for _, in := range all {
			s.tracker.Need(project, s.ours(in)...)
		}
		scopes = append(scopes, s.scopeOf(project))
	}
	s.tracker.Sweep(ctx, scopes...)
}

// scopeOf a project are the policies of the cluster there.
func (s *Policies) scopeOf(project string) collocation.Scope[policyID] {
	return collocation.Scope[policyID]{
		Name: project,
		List: func(ctx context.Context) (out []policyID, err error) {
			found, err := s.cloud.Policies(ctx, project, "name eq "+s.names.PolicyPrefix()+".*")
			for region, policies := range found.Items {
				for _, policy := range policies {
					out = append(out, policyID{region, policy.GetName()})
				}
			}
			return out, err
		},
		// A deletion that was accepted is tried again until the cloud does not find the policy, since its operation may fail.
		Delete: func(ctx context.Context, id policyID) (gone bool, err error) {
			err = s.cloud.DeletePolicy(ctx, project, id.region, id.name)
			if gone = errors.Is(err, api.ErrNotFound); gone || errors.Is(err, api.ErrInUse) {
				err = nil
			}
			return gone, err
		},
	}
}

// Warnings report that machines which must be together are launched without a policy, and why.
func (s *Policies) Warnings(t *template.Template, mig *computepb.InstanceGroupManager,
	spec *v1alpha1.NodeGroupSpec) []cloudprovider.Warning {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := inventory.ManagerOf(&v1alpha1.NodeGroup{Spec: *spec})
	if level := s.loose[id]; level != "" && isLoose(spec.GCP.LaunchMethod, t, mig) {
		return []cloudprovider.Warning{{Reason: NoWorkloadPolicy, Message: fmt.Sprintf("a gang that must be in one domain of %s was launched in "+
			"managed instance group %s, which puts its machines anywhere: use a group with a workload policy of type HIGH_THROUGHPUT and "+
			"a maximum topology distance, or with a compact placement policy in its instance template", level, id.Name)}}
	}
	refused := s.tracker.Refused()
	if refused == "" || len(spec.Topology) == 0 || spec.GCP.LaunchMethod != v1alpha1.GCPBulkInsert || !collocates(t, spec.GCP.MachineType) {
		return nil
	}
	return []cloudprovider.Warning{{Reason: NoPlacementPolicy, Message: "machines that must be in one domain, such as a rack, are launched " +
		"without a compact placement policy, and may be scattered: " + refused}}
}

// collocates reports whether Muster may put machines of the template and the type into a compact placement policy. One that the
// template names is left, and machines of a reservation are where it is.
func collocates(t *template.Template, machineType string) bool {
	series, _, _ := strings.Cut(machineType, "-")
	return !t.Placed && t.CapacityType() != v1alpha1.Reserved && !slices.Contains(uncollocated, series) &&
		(t.Maintenance == maintenanceTerminate || t.Maintenance == "" && t.Model() == template.Spot)
}

// Reasons of warnings.
const (
	// NoPlacementPolicy: machines that must be together are launched without a compact placement policy.
	NoPlacementPolicy = "NoPlacementPolicy"
	// NoWorkloadPolicy: machines that must be together are made by a group that puts them anywhere.
	NoWorkloadPolicy = "NoWorkloadPolicy"
)
