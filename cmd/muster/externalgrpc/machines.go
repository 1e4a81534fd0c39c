package externalgrpc

import (
	"cmp"
	"slices"
	"sync"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// machines are the machines of all clouds.
type machines struct {
	mu    sync.Mutex
	known map[key]cloudprovider.Machine
	// ids are the keys of the machines by their providerID.
	ids map[string]key
	// taken are the machines that the autoscaler has deleted, until their cloud reports their end.
	taken map[key]bool
}

type key struct{ group, name string }

func newMachines() *machines {
	return &machines{known: map[key]cloudprovider.Machine{}, ids: map[string]key{}, taken: map[key]bool{}}
}

// observe stores a state of a machine. An outdated state is ignored.
func (ms *machines) observe(m cloudprovider.Machine) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	k := key{m.Group, m.Name}
	if old, ok := ms.known[k]; ok && m.State < old.State && !m.Restarted(old) {
		return
	}
	ms.known[k] = m
	if m.ProviderID != "" && !m.Hold {
		ms.ids[m.ProviderID] = k
	}
	if m.State >= cloudprovider.Terminated {
		delete(ms.taken, k)
	}
	if m.State == cloudprovider.Gone {
		delete(ms.known, k)
		delete(ms.ids, m.ProviderID)
	}
}

// take marks machines of a group as deleted.
func (ms *machines) take(group string, names []string) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, name := range names {
		if k := (key{group, name}); ms.known[k].Counts() {
			ms.taken[k] = true
		}
	}
}

// picture has the machines of a group.
type picture struct {
	// living machines have not ended. taken has the names of deleted and unwanted machines.
	living []cloudprovider.Machine
	taken  map[string]bool
	// holds are the reservations in the cloud that will make machines.
	holds []cloudprovider.Machine
	// made has the names of all known machines, by the token of their launch.
	made map[string][]string
}

func (ms *machines) of(g *v1alpha1.NodeGroup, r *record) picture {
	p := ms.in(g.Name)
	for i := range r.Open {
		l := &r.Open[i]
		for _, m := range p.living {
			if m.Launch == l.token(g) && l.unwanted(m.Name) {
				p.taken[m.Name] = true
			}
		}
	}
	return p
}

// in returns the machines of a group, without its record.
func (ms *machines) in(group string) picture {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	p := picture{taken: map[string]bool{}, made: map[string][]string{}}
	for k, m := range ms.known {
		switch {
		case k.group != group, m.Unattributed: // the record of its launch counts it
		case m.Hold && m.State < cloudprovider.Terminated:
			p.holds = append(p.holds, m)
		case !m.Hold:
			p.made[m.Launch] = append(p.made[m.Launch], m.Name)
			if m.Counts() {
				p.living = append(p.living, m)
				p.taken[m.Name] = ms.taken[k]
			}
		}
	}
	byName := func(a, b cloudprovider.Machine) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(p.living, byName)
	slices.SortFunc(p.holds, byName)
	return p
}

// size is the number of machines of the group that stay.
func (p *picture) size() (n int) {
	for _, m := range p.living {
		if !p.taken[m.Name] {
			n++
		}
	}
	return n
}

// byID finds the machine of a node by its providerID.
func (ms *machines) byID(providerID string) (m cloudprovider.Machine, ok bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	k, ok := ms.ids[providerID]
	m = ms.known[k]
	return m, ok && !m.Unattributed
}
