package aws

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestAllThatCostsIsListed(t *testing.T) {
	script := func(c *cloudsim.Config) {
		for i := range c.Pools {
			c.Pools[i].Script.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Machines: []int64{0}}}
		}
	}
	s := newSim(t, plenty(script), account(func(c *simaws.Config) {
		c.PageSize, c.Cluster = 3, ""
		c.Groups = append(c.Groups, simaws.Group{Name: "their-gpu", Max: 8, Template: "gpu", Subnets: []string{subnet}})
	}))
	fleet := nodeGroup(v1alpha1.AWSFleet, v1alpha1.Spot)
	fleet.Name = "gpu-spot"
	own := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{fleet, own}
	s.front.Grow(group, 2)
	p := s.provider()
	for _, g := range s.groups {
		if _, err := p.Launch(context.Background(), request(g, 4, token+g.Name)); err != nil {
			t.Fatal(err)
		}
	}
	other, err := New(context.Background(), Config{
		Region: region, Cluster: "test", ClusterUID: "test", Endpoint: s.server.URL, Clock: s.clock, unpaced: true,
		Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	theirs := nodeGroup(v1alpha1.AWSFleet, v1alpha1.Spot)
	theirs.Spec.AWS.AutoScalingGroup = "their-gpu"
	if _, err := other.Launch(context.Background(), request(theirs, 4, "their-1")); err != nil {
		t.Fatal(err)
	}
	s.clock.Step(2 * time.Minute)

	got := map[string]int{}
	reason := ""
	for _, m := range s.listed(s.provider()) {
		got[strings.Join([]string{m.Group, m.Launch, []string{"booting", "running", "terminated"}[m.State]}, " ")]++
		if m.State == cloudprovider.Terminated && m.Group == "gpu-spot" {
			reason = m.Reason
		}
	}
	want := map[string]int{
		"gpu-spot " + token + "gpu-spot running":    3,
		"gpu-spot " + token + "gpu-spot terminated": 1,
		"gpu-a " + token + "gpu-a running":          4,
		"gpu-a  running":                            1,
		"gpu-a  terminated":                         1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("machines by group, launch and state (-want +got):\n%s", diff)
	}
	if reason != "Server.InternalError: Internal error on launch" {
		t.Errorf("reason is %q, want the cloud's own", reason)
	}
	if list := s.listed(other); len(list) != 4 {
		t.Errorf("the other cluster sees %d machines, want its own 4", len(list))
	}
}

// A machine of LaunchInstances that is not tagged yet may be of the launch, or the group's own: nothing is done with it.
func TestMachinesOfAnIntentAreNotTakenForTheGroupsOwn(t *testing.T) {
	s := newSim(t, plenty(tagsFail()), account())
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	if _, err := p.Launch(context.Background(), request(g, 4, token)); err == nil {
		t.Fatal("the launch is through")
	}
	list := s.listed(p)
	if hold := known(slices.Clone(list)); len(hold) != 1 || !hold[0].Hold || hold[0].Launch != token {
		t.Errorf("got %+v, want the hold", hold)
	}
	if len(list) != 5 || slices.ContainsFunc(list, func(m cloudprovider.Machine) bool {
		return !m.Hold && (m.Launch != "" || m.Group != g.Name)
	}) {
		t.Errorf("got %+v, want the hold and 4 machines without a launch", list)
	}
	if _, err := p.Launch(context.Background(), request(g, 4, token)); err != nil {
		t.Fatal(err)
	}
	list = s.listed(p)
	if len(list) != 4 || slices.ContainsFunc(list, func(m cloudprovider.Machine) bool { return m.Hold || m.Launch != token }) {
		t.Errorf("got %+v, want the 4 machines", list)
	}
}

func TestCallsOfAGangOf64(t *testing.T) {
	want := map[string]map[string]int64{
		"Fleet/OnDemand": {"DescribeAutoScalingGroups": 1, "DescribeInstances": 2, "DescribeCapacityReservations": 1, "CreateFleet": 1,
			"DescribeLaunchTemplateVersions": 1, "TerminateInstances": 1},
		"Fleet/Spot": {"DescribeAutoScalingGroups": 1, "DescribeInstances": 2, "DescribeCapacityReservations": 1, "CreateFleet": 1,
			"DescribeLaunchTemplateVersions": 1, "TerminateInstances": 1},
		"Fleet/Reserved": {"DescribeAutoScalingGroups": 1, "DescribeInstances": 2, "DescribeCapacityReservations": 1, "RunInstances": 1,
			"DescribeLaunchTemplateVersions": 1,
			"TerminateInstances":             1},
		"Reservation": {"DescribeAutoScalingGroups": 1, "DescribeInstances": 2, "DescribeCapacityReservations": 1,
			"CreateCapacityReservation": 1, "DescribeLaunchTemplateVersions": 1, "RunInstances": 1, "CancelCapacityReservation": 1,
			"TerminateInstances": 1},
		"LaunchInstances": {"DescribeAutoScalingGroups": 1, "DescribeInstances": 3, "DescribeCapacityReservations": 1,
			"CreateOrUpdateTags": 1, "LaunchInstances": 1, "CreateTags": 1, "DeleteTags": 1,
			"DescribeAutoScalingInstances": 2, "TerminateInstanceInAutoScalingGroup": 1},
	}
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(), account())
		p := s.provider()
		machines := s.launched(p, g, 64)
		if err := p.Terminate(context.Background(), g.Name, names(machines)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[ways[i].name], s.world.Calls(v1alpha1.ProviderAWS)); diff != "" {
			t.Errorf("calls to launch 64 machines and terminate them (-want +got):\n%s", diff)
		}
	})
}

func TestAnIdleWatchOnlyRefreshes(t *testing.T) {
	s := newSim(t, plenty(), account())
	s.groups = []*v1alpha1.NodeGroup{nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand), nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.Spot)}
	p := s.provider()
	ctx, cancel := context.WithCancel(context.Background())
	done, synced := make(chan error), make(chan struct{})
	go func() { done <- p.Watch(ctx, func(cloudprovider.Machine) {}, func() { close(synced) }) }()
	<-synced
	for s.clock.Waiters() == 0 {
		select {
		case err := <-done:
			t.Fatalf("the watch has ended: %v", err)
		default:
			runtime.Gosched()
		}
	}
	s.clock.Step(59 * time.Second)
	want := map[string]int64{"DescribeAutoScalingGroups": 1, "DescribeInstances": 2, "DescribeCapacityReservations": 1,
		"DescribePlacementGroups": 1} // for the next ten minutes
	if diff := cmp.Diff(want, s.world.Calls(v1alpha1.ProviderAWS)); diff != "" {
		t.Errorf("calls in the first minute (-want +got):\n%s", diff)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
