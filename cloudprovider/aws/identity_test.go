package aws

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
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
		other.Tags[clusterUIDTag] = twinUID
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
		if err := theirs.TakeBack(context.Background(), groups[1].Name, names(s.listed(theirs))); err != nil {
			t.Fatal(err)
		}
		if alive := s.alive(); alive[token+"a"] != 4 || alive[token+"b"] != 0 {
			t.Errorf("alive are %v, want the 4 of the first cluster", alive)
		}
	})
}

// A launch whose tags are still to come is its own cluster's alone.
func TestAnIntentIsOneClusters(t *testing.T) {
	s := newSim(t, plenty(fault("CreateTags", "CallLost", 0, 1, 2)), account())
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	if _, err := s.provider().Launch(context.Background(), request(g, 4, token)); err == nil {
		t.Fatal("the launch is through")
	}
	if list := s.listed(s.providerOf(twinUID, nil)); len(list) > 0 {
		t.Errorf("another cluster of the name lists %+v", list)
	}
	if list := s.listed(s.provider()); len(list) != 1 || !list[0].Hold {
		t.Errorf("the cluster lists %+v, want the hold", list)
	}
}

// An Auto Scaling group is the cluster's that has claimed it first.
func TestAGroupIsClaimed(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { delete(c.Groups[0].Tags, clusterUIDTag) }))
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

// For a day one cluster launches and takes back all that it lists, and the machines of another
// one of its name run on.
func TestADayOfTwoClustersOfOneName(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, groups := twins(t, i)
		ours, theirs := s.provider(), s.providerOf(twinUID, nil)
		running := 0
		for round := range 48 {
			if round < 20 {
				if _, err := theirs.Launch(context.Background(), request(groups[1], 2, fmt.Sprint("their-", round))); err != nil {
					t.Fatal(err)
				}
				running += 2
			}
			if _, err := ours.Launch(context.Background(), request(groups[0], 3, fmt.Sprint("our-", round))); err != nil {
				t.Fatal(err)
			}
			s.clock.Step(30 * time.Minute)
			if err := ours.TakeBack(context.Background(), groups[0].Name, names(s.listed(ours))); err != nil {
				t.Fatal(err)
			}
			if alive := s.live(); alive != running {
				t.Fatalf("after %d rounds %d machines are alive, want the other cluster's %d", round+1, alive, running)
			}
		}
	})
}
