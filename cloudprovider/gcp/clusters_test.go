package gcp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// muster is the Muster of one cluster, as far as it is seen in the cloud: it launches a gang
// in each of its groups every four hours, ends it after three, and terminates by name
// what is listed under a token that it does not know.
type muster struct {
	*lab
	name, uid string
	groups    []*v1alpha1.NodeGroup
	gangs     map[string]*ownGang
	made      int
}

// ownGang is a launch of a muster.
type ownGang struct {
	cloudprovider.LaunchRequest
	at time.Time
	// over is when it was refused or terminated; zero while it runs.
	over time.Time
}

func newMuster(l *lab, name, uid string) *muster {
	return &muster{lab: l, name: name, uid: uid, gangs: map[string]*ownGang{}}
}

func (m *muster) provider() *gcp.Provider {
	m.Helper()
	p, err := gcp.New(context.Background(), gcp.Config{
		Project: project, Cluster: m.name, ClusterUID: m.uid, Location: region, Clock: m.clock, Endpoint: m.url, CallsPerSecond: 100_000,
		Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return m.groups, nil },
	})
	if err != nil {
		m.Fatal(err)
	}
	return p
}

func (m *muster) discover(p *gcp.Provider) {
	m.Helper()
	found, err := p.Discover(context.Background())
	if err != nil {
		m.Fatal(err)
	}
	m.groups = nil
	for _, f := range found.Groups {
		m.groups = append(m.groups, &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: f.Name}, Spec: f.Spec})
	}
}

func (m *muster) launchAll() {
	for _, g := range m.groups {
		m.made++
		token := fmt.Sprintf("%s-%d", m.uid, m.made)
		m.gangs[token] = &ownGang{LaunchRequest: cloudprovider.LaunchRequest{Group: g, Count: 2, Token: token,
			Request: "ns/" + token}, at: m.clock.Now()}
	}
}

// look calls what is in flight, and terminates what is not to be there.
func (m *muster) look(p *gcp.Provider) {
	m.Helper()
	for _, g := range m.gangs {
		if g.over.IsZero() && m.clock.Since(g.at) > 3*time.Hour {
			g.over = m.clock.Now()
		}
		if !g.over.IsZero() {
			continue
		}
		if machines, err := p.Launch(context.Background(), g.LaunchRequest); cloudprovider.Refusal(err) != nil {
			g.over = m.clock.Now()
		} else if err == nil && len(machines) != g.Count {
			m.Errorf("launch %s has %d machines: want %d", g.Token, len(machines), g.Count)
		}
	}
	orphans := map[string][]string{}
	for _, machine := range m.list(p) {
		if machine.Launch == "" || machine.State >= cloudprovider.Terminated {
			continue
		}
		if g := m.gangs[machine.Launch]; g == nil || !g.over.IsZero() {
			orphans[machine.Group] = append(orphans[machine.Group], machine.Name)
		}
	}
	for group, names := range orphans {
		if err := p.Terminate(context.Background(), group, names); err != nil {
			m.Errorf("cluster %s terminates %v: %v", m.name, names, err)
		}
	}
}

// of is the gang that a machine is of; nil for none.
func (m *muster) of(id string) *ownGang {
	for token, g := range m.gangs {
		if strings.Contains(id, inventory.Shorten(token)+"-") {
			return g
		}
	}
	return nil
}

// TestTwoClustersForADay: two clusters in one project, each with every launch method. Neither
// touches a machine of the other, nor one that no Muster has launched.
func TestTwoClustersForADay(t *testing.T) {
	hours := 24
	if testing.Short() {
		hours = 6
	}
	const prodUID, otherUID = "0a0a0a0a-0000-4000-8000-000000000001", "0b0b0b0b-0000-4000-8000-000000000002"
	for name, tc := range map[string]struct {
		// other cluster's name; its groups are those of prod where it has the same.
		other string
		// restored NodeGroups are those of prod, which a backup has brought to the other.
		restored bool
	}{
		"each with groups of its own":                                  {other: "staging"},
		"one with the NodeGroups of a backup of the other":             {other: "staging", restored: true},
		"of one name, as blue and green, with the same groups":         {other: "prod"},
		"of one name, with the same groups and NodeGroups of a backup": {other: "prod", restored: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(400), Lag: metav1.Duration{Duration: 5 * time.Second}}, shared("prod", tc.other))
			clusters := []*muster{newMuster(l, "prod", prodUID), newMuster(l, tc.other, otherUID)}
			providers := []*gcp.Provider{clusters[0].provider(), clusters[1].provider()}
			strangers := l.open()
			for step := 0; step < hours*6; step++ {
				for i, m := range clusters {
					if step%(5*6) == i*6 { // a restart
						providers[i] = m.provider()
					}
					if step%(4*6) == 0 {
						m.discover(providers[i])
						if i == 1 && tc.restored {
							m.groups = clusters[0].groups
						}
						m.launchAll()
					}
					m.look(providers[i])
				}
				l.clock.Step(10 * time.Minute)
			}
			if n := len(clusters[0].groups); n < len(methods) {
				t.Fatalf("prod has %d groups, want one for each of %v", n, methods)
			}
			l.checkClusters(clusters, strangers)
		})
	}
}

// TestTerminateOfOthers: what another Muster or a person has made is not deleted, even by
// name.
func TestTerminateOfOthers(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64)}, shared("prod", "prod"))
	blue, green := newMuster(l, "prod", "blue"), newMuster(l, "prod", "green")
	theirs := blue.provider()
	blue.discover(theirs)
	blue.launchAll()
	for range 10 {
		blue.look(theirs)
		l.clock.Step(time.Minute)
	}
	p, before := green.provider(), len(l.open())
	green.discover(p)
	for i, g := range blue.groups {
		var named []string
		for _, m := range l.list(theirs) {
			if m.Group == g.Name && m.Launch != "" {
				named = append(named, m.Name)
			}
		}
		if err := p.Terminate(context.Background(), green.groups[i].Name, named); err != nil {
			t.Error(err)
		}
	}
	if got := len(l.open()); got != before {
		t.Errorf("%d machines are left of %d", got, before)
	}
}

// checkClusters looks whose machines were terminated, and whether they were given up.
func (l *lab) checkClusters(clusters []*muster, strangers []cloudsim.Line) {
	l.Helper()
	made := map[string]int{}
	for _, in := range l.world.Instances(true) {
		owner := ""
		for _, m := range clusters {
			g := m.of(in.ID)
			if g == nil {
				continue
			}
			owner = m.uid
			if in.Reason == cloudsim.ReasonTerminated && (g.over.IsZero() || in.TerminatedAt.Before(g.over)) {
				l.Errorf("%s of cluster %s was deleted while its gang was running", in.ID, m.name)
			}
			if in.Phase != cloudsim.Terminated && !g.over.IsZero() {
				l.Errorf("%s of cluster %s is left over", in.ID, m.name)
			}
		}
		made[owner]++
		if owner == "" && in.Phase == cloudsim.Terminated {
			l.Errorf("%s, which no Muster has launched, was deleted", in.ID)
		}
	}
	if made[""] != len(strangers) || made[clusters[0].uid] < 2*len(methods) {
		l.Errorf("machines by the cluster that launched them: %v, want %d of none and many of prod", made, len(strangers))
	}
}

// shared is a project with the groups of simulated for each cluster, each of which has a
// machine that it has launched itself.
func shared(clusters ...string) gcpsim.Config {
	out := simulated()
	out.Templates, out.Groups = nil, nil
	for i, cluster := range clusters {
		if i > 0 && cluster == clusters[0] {
			continue
		}
		for _, t := range simulated().Templates {
			t.Name += "-" + cluster
			t.Metadata = map[string]string{"muster-dev-enabled": "", "muster-dev-cluster": cluster, "muster-dev-max-nodes": "100"}
			if strings.HasPrefix(t.Name, "plain") {
				owned := t
				owned.Name, owned.Metadata = "owned-"+cluster, map[string]string{"muster-dev-launch-method": "CreateInstances"}
				for k, v := range t.Metadata {
					owned.Metadata[k] = v
				}
				out.Templates = append(out.Templates, owned)
			}
			out.Templates = append(out.Templates, t)
		}
		for _, g := range simulated().Groups {
			g.Template += "-" + cluster
			if strings.HasPrefix(g.Name, "owned") {
				g.Template = "owned-" + cluster
			}
			g.Name += "-" + cluster
			if !strings.HasPrefix(g.Name, "flex") {
				g.TargetSize = 1
			}
			out.Groups = append(out.Groups, g)
		}
	}
	return out
}
