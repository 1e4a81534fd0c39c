package gcp_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// subblock is the finer level.
const subblock = "cloud.google.com/gce-topology-subblock"

// denseLab has a reservation of block b1 with 6 and 9 hosts, and block b2 with 9, of which 4 are degraded. The cloud deals machines to
// the three sub-blocks in turn.
func denseLab(t *testing.T, change func(*gcpsim.Config)) (*lab, *v1alpha1.NodeGroup) {
	t.Helper()
	sim := simulated()
	sim.PageSize = 1
	sim.Templates[0].Reservation = "bought"
	sim.Reservations = []gcpsim.Reservation{{Name: "bought", Zone: zoneA, Count: 24, Blocks: []gcpsim.ReservationBlock{
		{Name: "b1", SubBlocks: []gcpsim.ReservationSubBlock{{Name: "s1", Hosts: 6}, {Name: "s2", Hosts: 9}}},
		{Name: "b2", SubBlocks: []gcpsim.ReservationSubBlock{{Name: "s3", Hosts: 9, Degraded: 4}}},
	}}}
	if change != nil {
		change(&sim)
	}
	pools := every(24)
	pools[0].Script.Domains = &v1alpha1.KwokDomains{
		NodeLabel: subblock, Placement: v1alpha1.PlacedScattered,
		Of: []v1alpha1.KwokDomain{{Name: "s1", Machines: 6}, {Name: "s2", Machines: 9}, {Name: "s3", Machines: 9}},
	}
	l := newLab(t, cloudsim.Config{Pools: pools, Lag: metav1.Duration{Duration: 3 * time.Second}}, sim)
	g := l.nodeGroup("bulk")
	g.Spec.CapacityType = v1alpha1.Reserved
	return l, g
}

func TestDenseReservation(t *testing.T) {
	type ask struct {
		count        int
		level, value string
		// want are the machines by sub-block after it, or what the refusal says.
		want    map[string]int
		refused string
	}
	for name, tc := range map[string]struct {
		change func(*gcpsim.Config)
		asks   []ask
	}{
		"the sub-block with the fewest free hosts that holds all": {asks: []ask{
			{count: 6, level: subblock, want: map[string]int{"s1": 6}},
			{count: 4, level: subblock, want: map[string]int{"s1": 6, "s3": 4}},
			{count: 7, level: subblock, want: map[string]int{"s1": 6, "s2": 7, "s3": 4}},
			{count: 6, level: subblock, refused: "the largest free part of reservation bought, s3, has at most 5 free hosts"},
		}},
		"degraded hosts are not free": {asks: []ask{{count: 9, level: subblock, want: map[string]int{"s2": 9}},
			{count: 7, level: subblock, refused: "s1, has at most 6 free hosts"}}},
		"a block": {asks: []ask{{count: 12, level: block, want: map[string]int{"s1": 6, "s2": 6}},
			{count: 6, level: block, refused: "b2, has at most 5 free hosts"}}},
		"the one that machines are to join": {asks: []ask{{count: 2, level: subblock, value: "s2", want: map[string]int{"s2": 2}},
			{count: 8, level: subblock, value: "s2", refused: "s2, has at most 7 free hosts"}}},
		"one that the reservation does not have": {asks: []ask{{count: 3, level: subblock, value: "s9", want: map[string]int{"s1": 1, "s2": 1, "s3": 1}}}},
		"a label of the owner's own":             {asks: []ask{{count: 3, level: "example.com/rack", want: map[string]int{"s1": 1, "s2": 1, "s3": 1}}}},
		"not dense": {change: func(c *gcpsim.Config) { c.Reservations[0].Blocks = nil },
			asks: []ask{{count: 3, level: subblock, want: map[string]int{"s1": 1, "s2": 1, "s3": 1}}}},
		"not to be listed": {change: func(c *gcpsim.Config) { c.Denied = []string{"compute.reservationSubBlocks.list"} },
			asks: []ask{{count: 3, level: subblock, want: map[string]int{"s1": 1, "s2": 1, "s3": 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			l, g := denseLab(t, tc.change)
			for i, ask := range tc.asks {
				before := l.blocks()
				req := launchOf(g, ask.count)
				req.Token, req.Together = token+strings.Repeat("x", i), cloudprovider.Domain{Level: ask.level, Value: ask.value}
				machines, err := launch(t, l, l.provider(), req)
				refusal := cloudprovider.Refusal(err)
				switch {
				case ask.refused == "" && (err != nil || len(machines) != ask.count || !maps.Equal(l.blocks(), ask.want)):
					t.Fatalf("ask %d: %v; machines in %v, want %v", i, err, l.blocks(), ask.want)
				case ask.refused != "" && (refusal == nil || refusal.Class != v1alpha1.Stockout || !strings.Contains(refusal.Message, ask.refused)):
					t.Fatalf("ask %d: %v; want a stockout that says %q", i, err, ask.refused)
				case ask.refused != "" && !maps.Equal(l.blocks(), before):
					t.Fatalf("ask %d: machines in %v, and in %v before: want none to have been launched", i, l.blocks(), before)
				}
				l.clock.Step(time.Minute)
			}
		})
	}
}

// A call that is repeated goes where the first one went, though its machines are not listed and fill the sub-block.
func TestDenseReservationOnceMore(t *testing.T) {
	l, g := denseLab(t, nil)
	p, req := l.provider(), launchOf(g, 6)
	req.Together.Level = subblock
	l.world.HitNext(policyCall("instances.bulkInsert", cloudsim.ReplyLost), 1)
	if _, err := p.Launch(t.Context(), req); err == nil {
		t.Fatal("the reply was not lost")
	}
	machines, err := p.Launch(t.Context(), req)
	if in := l.blocks(); err != nil || len(machines) != 6 || !maps.Equal(in, map[string]int{"s1": 6}) {
		t.Errorf("%v: %d machines, in %v: want 6 in s1", err, len(machines), in)
	}
}

// What the cloud answers too many lists with says nothing about the launch.
func TestDenseReservationThrottled(t *testing.T) {
	l, g := denseLab(t, nil)
	req := launchOf(g, 6)
	req.Together.Level = subblock
	l.world.HitNext(policyCall("reservationSubBlocks.list", cloudsim.CallRefused), 1)
	if _, err := l.provider().Launch(t.Context(), req); err == nil || cloudprovider.Refusal(err) != nil || len(l.open()) > 0 {
		t.Errorf("got %v and %d machines, want an error to call again after", err, len(l.open()))
	}
}
