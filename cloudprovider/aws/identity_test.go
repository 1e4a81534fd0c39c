package aws

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// twinUID is the UID of another cluster of the same name.
const twinUID = "a3c2b9d0-0000-4000-8000-000000000002"

// twins are two clusters of one name in one account, each with an Auto Scaling group.
func twins(t *testing.T, i int) (s *sim, groups [2]*v1alpha1.NodeGroup) {
	s, g := way(t, i, plenty(), account(func(c *simaws.Config) {
		other := c.Groups[0]
		other.Name, other.Tags = "their-gpu", maps.Clone(other.Tags)
		other.Tags[inventory.ClusterUIDTag] = twinUID
		c.Groups = append(c.Groups, other)
	}))
	theirs := g.DeepCopy()
	theirs.Name, theirs.Spec.AWS.AutoScalingGroup = "their-gpu", "their-gpu"
	s.groups = append(s.groups, theirs)
	return s, [2]*v1alpha1.NodeGroup{g, theirs}
}

// Neither of two clusters of one name lists or terminates what the other has, by any way
// to launch, in the middle of a launch, and though both know both groups.
func TestClustersOfOneNameKeepApart(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, groups := twins(t, i)
		ours, theirs := s.provider(), s.providerOf(twinUID, nil)
		for n, p := range []*Provider{ours, theirs} {
			// Each group has machines that it has launched by itself, too.
			s.front.Grow(groups[n].Spec.AWS.AutoScalingGroup, n+1)
			if _, err := p.Launch(context.Background(), request(groups[n], 4+n, token+string('a'+rune(n)))); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Launch(context.Background(), request(groups[1-n], 2, token)); refusedAs(err) != "OtherCluster" {
				t.Errorf("a launch in the other cluster's group: %v, want a refusal", err)
			}
		}
		own := map[*Provider]int{ours: 1, theirs: 2}
		if ways[i].pool != demandPool {
			own = map[*Provider]int{} // no NodeGroup offers what the Auto Scaling groups launch
		}
		s.clock.Step(2 * time.Minute)
		for n, p := range []*Provider{ours, theirs} {
			list := s.listed(p)
			if want := 4 + n + own[p]; len(list) != want {
				t.Errorf("cluster %d lists %d machines, want its own %d: %+v", n, len(list), want, list)
			}
		}
		if err := theirs.Terminate(context.Background(), groups[1].Name, names(s.listed(theirs))); err != nil {
			t.Fatal(err)
		}
		if alive := s.alive(); alive[token+"a"] != 4 || alive[token+"b"] != 0 {
			t.Errorf("alive are %v, want the 4 of the first cluster", alive)
		}
	})
}

// A launch whose tags are still to come is its own cluster's alone.
func TestAnIntentIsOneClusters(t *testing.T) {
	s := newSim(t, plenty(tagsFail()), account())
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	if _, err := s.provider().Launch(context.Background(), request(g, 4, token)); err == nil {
		t.Fatal("the launch is through")
	}
	if list := s.listed(s.providerOf(twinUID, nil)); len(list) > 0 {
		t.Errorf("another cluster of the name lists %+v", list)
	}
	if list := known(s.listed(s.provider())); len(list) != 1 || !list[0].Hold {
		t.Errorf("the cluster lists %+v, want the hold", list)
	}
}

// An Auto Scaling group is the cluster's that has claimed it first.
func TestAGroupIsClaimed(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { delete(c.Groups[0].Tags, inventory.ClusterUIDTag) }))
	s.groups = []*v1alpha1.NodeGroup{nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand)}
	s.front.Grow(group, 2)
	ours, theirs := s.provider(), s.providerOf(twinUID, nil)
	if list := s.listed(theirs); len(list) > 0 {
		t.Errorf("machines of a group that no cluster has claimed are listed: %+v", list)
	}
	if found, err := ours.Discover(context.Background()); err != nil || len(found.Groups) != 1 {
		t.Fatalf("discovery: %+v, %v", found, err)
	}
	if list := s.listed(ours); len(list) != 2 {
		t.Errorf("the cluster lists %+v, want the 2 machines of its group", list)
	}
	found, err := theirs.Discover(context.Background())
	if err != nil || len(found.Groups) > 0 || len(found.Refused) != 1 || !strings.Contains(found.Refused[0].Reason, clusterUID) {
		t.Errorf("another cluster of the name discovers %+v (%v), want a refusal that names the cluster", found, err)
	}
	if list := s.listed(theirs); len(list) > 0 {
		t.Errorf("another cluster of the name lists %+v", list)
	}
}

// refusedAs is the code of the refusal in err; empty for none.
func refusedAs(err error) string {
	if e := cloudprovider.Refusal(err); e != nil {
		return e.Code
	}
	return ""
}

// tenant is the Muster of one of several clusters of an account, as far as it is seen in the cloud: it launches a gang in each of its
// groups every four hours, ends it after three, and terminates by name what is listed under a token that it does not know.
type tenant struct {
	*sim
	uid    string
	groups []*v1alpha1.NodeGroup
	gangs  map[string]*tenantGang
	made   int
}

type tenantGang struct {
	cloudprovider.LaunchRequest
	at time.Time
	// whole: all of its machines were launched. over is when it was terminated; zero while it runs.
	whole bool
	over  time.Time
}

// provider is a new adapter. The NodeGroups that it gets are those of all clusters, as after a restore of another's backup.
func (c *tenant) provider() *Provider { return c.providerOf(c.uid, nil) }

func (c *tenant) launchAll() {
	for _, g := range c.groups {
		c.made++
		token := fmt.Sprintf("%s-%d", c.uid, c.made)
		c.gangs[token] = &tenantGang{LaunchRequest: request(g, 2, token), at: c.clock.Now()}
	}
}

// look calls what is in flight, and terminates what is not to be there.
func (c *tenant) look(p *Provider) {
	c.t.Helper()
	for _, g := range c.gangs {
		if g.over.IsZero() && c.clock.Since(g.at) > 3*time.Hour {
			g.over = c.clock.Now()
		}
		if g.whole || !g.over.IsZero() {
			continue
		}
		machines, err := p.Launch(c.t.Context(), g.LaunchRequest)
		if err == nil && len(machines) != g.Count || cloudprovider.Refusal(err) != nil {
			c.t.Errorf("launch %s by %s has %d machines and the error %v: want %d", g.Token, g.Group.Name, len(machines), err, g.Count)
		}
		g.whole = err == nil
	}
	orphans := map[string][]string{}
	for _, m := range c.listed(p) {
		if m.Launch == "" || m.State >= cloudprovider.Terminated {
			continue
		}
		if g := c.gangs[m.Launch]; g == nil || !g.over.IsZero() {
			orphans[m.Group] = append(orphans[m.Group], m.Name)
		}
	}
	for group, names := range orphans {
		if err := p.Terminate(c.t.Context(), group, names); err != nil {
			c.t.Errorf("cluster %s terminates %v: %v", c.uid, names, err)
		}
	}
}

// TestTwoClustersForADay: two clusters of one name in one account, each with every way to launch, and both with the NodeGroups of both.
// Neither touches a machine of the other, nor one that no Muster has launched.
func TestTwoClustersForADay(t *testing.T) {
	hours := 24
	if testing.Short() {
		hours = 6
	}
	config := account()
	config.Groups = nil
	clusters := []*tenant{{uid: clusterUID}, {uid: twinUID}}
	for _, c := range clusters {
		c.gangs = map[string]*tenantGang{}
		for i, w := range ways {
			asg := account().Groups[0]
			asg.Name, asg.Tags = fmt.Sprintf("gpu-%d-%s", i, c.uid[:4]), maps.Clone(asg.Tags)
			asg.Tags[inventory.ClusterUIDTag] = c.uid
			config.Groups = append(config.Groups, asg)
			g := nodeGroup(w.method, w.capacityType)
			g.Name, g.Spec.AWS.AutoScalingGroup = asg.Name, asg.Name
			if w.capacityType == v1alpha1.Reserved {
				g.Spec.AWS.CapacityReservation = "cr-" + c.uid[:4]
			}
			c.groups = append(c.groups, g)
		}
	}
	s := newSim(t, plenty(lag(5*time.Second), func(c *cloudsim.Config) {
		c.Pools = append(c.Pools, cloudsim.Pool{PoolKey: reservedPool})
	}), config)
	var providers []*Provider
	strangers := 0
	for _, c := range clusters {
		c.sim = s
		if _, refused := s.world.Reserve("cr-"+c.uid[:4], cloudsim.Order{Pool: reservedPool, Count: 8}, time.Time{}); refused != nil {
			t.Fatal(refused)
		}
		for _, g := range c.groups {
			s.groups = append(s.groups, g)
			s.front.Grow(g.Spec.AWS.AutoScalingGroup, 1)
			strangers++
		}
		providers = append(providers, c.provider())
	}
	s.clock.Step(time.Hour)
	for step := range hours * 6 {
		for i, c := range clusters {
			if step%(5*6) == i*6 { // a restart
				providers[i] = c.provider()
			}
			if step%(4*6) == 0 {
				c.launchAll()
			}
			c.look(providers[i])
		}
		s.clock.Step(10 * time.Minute)
	}
	s.checkTenants(clusters, strangers)
}

// checkTenants looks whose machines were terminated, and whether they were given up.
func (s *sim) checkTenants(clusters []*tenant, strangers int) {
	s.t.Helper()
	made, gangs := map[string]int{}, map[string]*tenantGang{}
	for _, c := range clusters {
		maps.Copy(gangs, c.gangs)
	}
	for _, in := range s.world.Instances(true) {
		g := gangs[in.Tags[inventory.LaunchTag]]
		made[in.Tags[inventory.ClusterUIDTag]]++
		switch {
		case g == nil && in.Phase == cloudsim.Terminated:
			s.t.Errorf("%s, which no Muster has launched, was terminated", in.ID)
		case g == nil:
			made["none"]++
		case in.Phase != cloudsim.Terminated && !g.over.IsZero():
			s.t.Errorf("%s of launch %s is left over", in.ID, g.Token)
		case in.Phase == cloudsim.Terminated && (g.over.IsZero() || in.TerminatedAt.Before(g.over)):
			s.t.Errorf("%s of launch %s was terminated while its gang was running", in.ID, g.Token)
		}
	}
	if made["none"] != strangers || made[clusterUID] < 2*len(ways) || made[twinUID] < 2*len(ways) {
		s.t.Errorf("machines by the cluster that launched them: %v, want %d of none and many of each", made, strangers)
	}
}
