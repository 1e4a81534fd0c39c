package model

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning"
)

// links find the node of a machine and the machine of a node, by the provider ID
// that both bear.
type links struct {
	nodes    map[string]string
	machines map[string]machineKey
	// ended are the IDs of nodes whose machine has ended: nobody waits until the
	// node itself is seen to be unready.
	ended map[string]bool
	// lone are the machines that have not ended and have no node, by the request
	// that they were launched for.
	lone map[types.UID]map[machineKey]bool
}

func newLinks() links {
	return links{
		nodes: map[string]string{}, machines: map[string]machineKey{}, ended: map[string]bool{},
		lone: map[types.UID]map[machineKey]bool{},
	}
}

func (m *Model) linkMachine(key machineKey, c cloudprovider.Machine) {
	if c.ProviderID != "" {
		m.links.machines[c.ProviderID] = key
	}
	m.relink(key, c)
}

func (m *Model) unlinkMachine(key machineKey, c cloudprovider.Machine) {
	if m.links.machines[c.ProviderID] == key {
		delete(m.links.machines, c.ProviderID)
	}
	m.relink(key, c)
}

// linkNode follows a node that has changed; old is nil where it is new, now where it
// is gone.
func (m *Model) linkNode(old, now *corev1.Node) {
	if old != nil && (now == nil || now.Spec.ProviderID != old.Spec.ProviderID) && m.links.nodes[old.Spec.ProviderID] == old.Name {
		delete(m.links.nodes, old.Spec.ProviderID)
		m.relinkNode(old.Spec.ProviderID)
	}
	if now != nil && now.Spec.ProviderID != "" && m.links.nodes[now.Spec.ProviderID] != now.Name {
		m.links.nodes[now.Spec.ProviderID] = now.Name
		m.relinkNode(now.Spec.ProviderID)
	}
}

func (m *Model) relinkNode(id string) {
	if key, ok := m.links.machines[id]; ok {
		m.relink(key, m.groups.machines[key])
	} else if _, ok := m.links.nodes[id]; !ok {
		delete(m.links.ended, id)
	}
}

// relink brings up to date what follows from a machine and its node.
func (m *Model) relink(key machineKey, c cloudprovider.Machine) {
	_, listed := m.groups.machines[key]
	alive := listed && c.State < cloudprovider.Terminated
	name, hasNode := m.links.nodes[c.ProviderID]
	owner := provisioning.TokenUID(c.Launch)
	if alive && !hasNode {
		if m.links.lone[owner] == nil {
			m.links.lone[owner] = map[machineKey]bool{}
		}
		m.links.lone[owner][key] = true
	} else if delete(m.links.lone[owner], key); len(m.links.lone[owner]) == 0 {
		delete(m.links.lone, owner)
	}
	if other, ok := m.links.machines[c.ProviderID]; ok && other != key {
		// Another NodeGroup lists it now.
		m.machineStale(key)
		return
	}
	delete(m.links.ended, c.ProviderID)
	if hasNode {
		// A machine that is not listed since its NodeGroup was deleted may run on.
		if !alive && (listed || m.groups.objects[key.group] != nil) {
			m.links.ended[c.ProviderID] = true
		}
		m.nodes.stale[name] = true
	}
	m.machineStale(key)
}

// machineOf is the machine of that provider ID, or nil where none is known or it
// has ended.
func (m *Model) machineOf(id string) *cloudprovider.Machine {
	key, ok := m.links.machines[id]
	if !ok || m.links.ended[id] {
		return nil
	}
	c := m.groups.machines[key]
	return &c
}
