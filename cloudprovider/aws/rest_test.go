package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/discover"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// manyGroups are 200 groups, of which every other one is managed by EKS, each with a launch template of its own.
func manyGroups(c *simaws.Config) {
	proto := c.Groups[0]
	c.Groups, c.Templates = nil, nil
	for i := range 200 {
		g, name := proto, fmt.Sprintf("gpu-%03d", i)
		g.Name, g.Template, g.Tags = name, name, map[string]string{
			cloudprovider.Enabled: "", inventory.ClusterTag + cluster: inventory.Owned, inventory.ClusterUIDTag: clusterUID,
		}
		if i%2 == 0 {
			g.Tags[asg.ManagedTag], g.Tags["eks:cluster-name"] = name, cluster
		}
		if i%4 < 2 {
			g.Version = "1"
		}
		c.Groups = append(c.Groups, g)
		c.Templates = append(c.Templates, simaws.Template{ID: "lt-" + name, Name: name, Type: kind})
	}
}

// calls is how many there have been.
func (s *sim) calls() (n int64) {
	for _, calls := range s.world.Calls(v1alpha1.ProviderAWS) {
		n += calls
	}
	return n
}

// A discovery every minute makes few calls, however many groups there are.
func TestDiscoveryAtRest(t *testing.T) {
	s := newSim(t, plenty(), account(manyGroups))
	p := s.provider()
	for minute := range 31 {
		before := s.world.Calls(v1alpha1.ProviderAWS)
		began := s.calls()
		d, err := p.Discover(t.Context())
		if err != nil || len(d.Groups) != 200 {
			t.Fatalf("got %d groups, %v and %v, want 200", len(d.Groups), d.Refused, err)
		}
		if n := s.calls() - began; minute > 0 && n > 20 {
			after := s.world.Calls(v1alpha1.ProviderAWS)
			for action := range after {
				after[action] -= before[action]
			}
			t.Fatalf("in minute %d there were %d calls, want at most 20: %v", minute, n, after)
		}
		s.clock.Step(time.Minute)
	}
}

// A list of 10,000 machines in 200 groups, half of which were launched by their groups, takes 30 calls at most.
func TestAListOfTenThousand(t *testing.T) {
	s := newSim(t, plenty(), account(manyGroups))
	for i := range 200 {
		g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand)
		g.Name = fmt.Sprintf("gpu-%03d", i)
		g.Spec.AWS.AutoScalingGroup = g.Name
		s.groups = append(s.groups, g)
		order := cloudsim.Order{Pool: demandPool, Count: 50, ID: func(n int64) string { return fmt.Sprintf("i-%017x", n) }}
		if i%2 == 0 {
			order.Group = g.Name
		} else {
			order.Tags = map[string]string{inventory.LaunchTag: token, inventory.NodeGroupTag: g.Name, inventory.GroupTag: g.Name,
				inventory.ClusterTag + cluster: inventory.Owned, inventory.ClusterUIDTag: clusterUID}
		}
		if _, refused := s.world.Launch(order); refused != nil {
			t.Fatal(refused)
		}
	}
	s.clock.Step(time.Hour)
	p := s.provider()
	s.listed(p)
	began := s.calls()
	if n := len(s.listed(p)); n != 10000 || s.calls()-began > 30 {
		t.Errorf("got %d machines by %d calls, want 10000 by 30 at most", n, s.calls()-began)
	}
}

// Where EKS does not answer, discovery waits for it once, and goes on with what it has read.
func TestDiscoveryWithoutEKS(t *testing.T) {
	s := newSim(t, plenty(), account(manyGroups, func(c *simaws.Config) {
		for i := range c.Templates {
			c.Templates[i].Labels = map[string]string{"pool": "training"}
		}
	}))
	s.patience = patience
	p := s.provider()
	harm := func() func() {
		return s.world.Harm(cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: "DescribeNodegroup", Type: cloudsim.CallUnanswered})
	}
	discovered := func(what string, unread, labelled int) {
		t.Helper()
		d, err := p.Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range d.Groups {
			if slices.ContainsFunc(f.Warnings, func(w cloudprovider.Warning) bool {
				return w.Reason == discover.NodegroupUnread && strings.Contains(w.Message, "DescribeNodegroup: ")
			}) {
				unread--
			}
			if f.Spec.Template.Labels["pool"] != "" {
				labelled--
			}
		}
		if unread != 0 || labelled != 0 {
			t.Errorf("%s: %d groups less are unread than wanted, and %d less have labels", what, unread, labelled)
		}
	}
	end := harm()
	discovered("from the beginning", 100, 0)
	if n := s.world.Calls(v1alpha1.ProviderAWS)["DescribeNodegroup"]; n != 1 {
		t.Errorf("EKS was called %d times", n)
	}
	end()
	discovered("once it answers", 0, 100)
	end = harm()
	discovered("when it does no more", 0, 100)
	end()
	s.front.Deny("eks:DescribeNodegroup")
	p = s.provider()
	for range 2 {
		discovered("where it refuses", 100, 0)
	}
}

// A new version of a launch template that a group follows shows in the next discovery, and none is read for a group that names its version.
func TestNewVersionsOfLaunchTemplates(t *testing.T) {
	for name, groups := range map[string]int{"of few groups": 2, "of many": 200} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, plenty(), account(manyGroups, func(c *simaws.Config) {
				c.Groups = c.Groups[:groups]
				c.Groups[0].Version, c.Groups[1].Version = "1", "$Latest"
				if groups > 2 {
					c.Groups[2].Version = "$Default"
				}
			}))
			p := s.provider()
			sources := func() (out []string) {
				d, err := p.Discover(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range d.Groups[:min(3, groups)] {
					out = append(out, f.Spec.Template.Source+" "+f.Spec.Template.Capacity.StorageEphemeral().String())
				}
				return out
			}
			sources()
			for i := range min(3, groups) {
				s.front.Revise(fmt.Sprintf("gpu-%03d", i), func(t *simaws.Template) { t.VolumeGiB = 100 }, i == 2)
				s.front.Revise(fmt.Sprintf("gpu-%03d", i), func(t *simaws.Template) { t.VolumeGiB = 200 }, false)
			}
			s.clock.Step(time.Minute)
			want := []string{"lt-gpu-000/1 0", "lt-gpu-001/3 200Gi", "lt-gpu-002/2 100Gi"}[:min(3, groups)]
			if got := sources(); !slices.Equal(got, want) {
				t.Errorf("groups are made from %v, want %v", got, want)
			}
		})
	}
}
