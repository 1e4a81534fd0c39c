package cache

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/workload"
)

// nodeDevices are the devices that drivers publish for nodes, which topology placement counts by class. The count is an upper bound:
// only kube-scheduler's allocator decides whether a claim can have a combination of them.
type nodeDevices struct {
	// byNode are the slices of each node by name, and outdated the nodes whose amounts have to be computed again.
	byNode   map[string]map[string]*resourcev1.ResourceSlice
	outdated map[string]bool
	// amountsOf caches under which names a kind of device counts.
	amountsOf map[string][]corev1.ResourceName
}

func newNodeDevices() nodeDevices {
	return nodeDevices{
		byNode: map[string]map[string]*resourcev1.ResourceSlice{}, outdated: map[string]bool{}, amountsOf: map[string][]corev1.ResourceName{},
	}
}

// setNodeSlice stores a slice of a node, or removes a deleted one. The node of a slice never changes.
func (d *nodeDevices) setNodeSlice(o *resourcev1.ResourceSlice, deleted bool) {
	if o.Spec.NodeName == nil {
		return // other nodes may take its devices
	}
	node := *o.Spec.NodeName
	d.outdated[node] = true
	if deleted {
		if delete(d.byNode[node], o.Name); len(d.byNode[node]) == 0 {
			delete(d.byNode, node)
		}
		return
	}
	if d.byNode[node] == nil {
		d.byNode[node] = map[string]*resourcev1.ResourceSlice{}
	}
	d.byNode[node][o.Name] = o
}

// classesChanged has the amounts of all nodes computed again.
func (d *nodeDevices) classesChanged() {
	clear(d.amountsOf)
	for node := range d.byNode {
		d.outdated[node] = true
	}
}

// ForgetNodes removes all nodes, with their pods and devices, once no flavor has a Topology.
func (s *Cache) ForgetNodes() {
	s.Nodes.forget()
	s.devices.nodeDevices = newNodeDevices()
}

// RefreshDevices updates what nodes have free for topology placement.
func (s *Cache) RefreshDevices() {
	d := &s.devices
	if len(d.outdated) == 0 || !s.UsesTopologies() {
		return
	}
	for node := range d.outdated {
		s.Nodes.SetDevices(node, s.amountsOn(node))
	}
	clear(d.outdated)
}

// amountsOn counts the devices of a node's complete pools that claims without tolerations may have.
func (s *Cache) amountsOn(node string) nodegroups.Resources {
	pools := map[pool][]*resourcev1.ResourceSlice{}
	for _, of := range s.devices.byNode[node] {
		id := pool{of.Spec.Driver, of.Spec.Pool.Name}
		pools[id] = append(pools[id], of)
	}
	out := nodegroups.Resources{}
	for _, all := range pools {
		for _, of := range complete(all) {
			for i := range of.Spec.Devices {
				d := &of.Spec.Devices[i]
				if slices.ContainsFunc(d.Taints, fit.KeepsOff) {
					continue
				}
				for _, name := range s.amountNames(of.Spec.Driver, d) {
					n := int64(1)
					if ptr.Deref(d.AllowMultipleAllocations, false) {
						n = fit.SharesOfDevice
					}
					out[name] = nodegroups.Plus(out[name], n)
				}
			}
		}
	}
	return out
}

// amountNames returns the names under which a device counts, one for each of its classes. A selector that cannot be evaluated matches
// nothing.
func (s *Cache) amountNames(driver string, d *resourcev1.Device) []corev1.ResourceName {
	kind := withoutIdentity(d)
	key := kindKey(driver, &kind)
	names, known := s.devices.amountsOf[key]
	if !known {
		for _, name := range s.devices.classes.Names() {
			class := s.devices.classes.Class(name)
			if ok, err := s.devices.selectors.Matches(class.Spec.Selectors, driver, d); ok && err == nil {
				names = append(names, s.devices.classes.AmountName(class))
			}
		}
		s.devices.amountsOf[key] = names
	}
	return names
}

// onNode returns the requests of a pod with the devices of its claims, under the names that nodes count them by.
func (s *Cache) onNode(namespace string, spec *corev1.PodSpec, requests nodegroups.Resources) nodegroups.Resources {
	if len(s.devices.byName) == 0 {
		return requests
	}
	out := requests
	for _, name := range requests.Names() {
		class := s.devices.classes.ClassOf(name)
		if class == nil || s.devices.classes.AmountName(class) == name {
			continue
		}
		out = out.Clone()
		delete(out, name)
		out.Add(nodegroups.Resources{s.devices.classes.AmountName(class): requests[name]}, 1)
	}
	for i := range spec.ResourceClaims {
		if name := spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil {
			if t := s.devices.templates[types.NamespacedName{Namespace: namespace, Name: *name}]; t != nil {
				out = out.Clone()
				out.Add(s.devices.classes.Charge(&t.Spec.Spec.Devices), 1)
			}
		}
	}
	return out
}

// setPod counts a pod on its node.
func (s *Cache) setPod(p *corev1.Pod) {
	s.Nodes.SetPod(p, p.Labels[workload.PodSetLabel], func(spec *corev1.PodSpec) nodegroups.Resources {
		return s.onNode(p.Namespace, spec, workload.PodRequests(spec))
	})
}
