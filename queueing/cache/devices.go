package cache

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// devices are the objects that the resource claims of pods refer to (DRA).
type devices struct {
	published
	nodeDevices
	byName    map[string]*resourcev1.DeviceClass
	classes   fit.Classes
	templates map[types.NamespacedName]*resourcev1.ResourceClaimTemplate
}

func newDevices() devices {
	return devices{
		published: newPublished(), nodeDevices: newNodeDevices(), byName: map[string]*resourcev1.DeviceClass{},
		templates: map[types.NamespacedName]*resourcev1.ResourceClaimTemplate{},
	}
}

func (d *devices) clone() devices {
	return devices{
		published: d.published.clone(), nodeDevices: newNodeDevices(), byName: maps.Clone(d.byName), classes: d.classes,
		templates: maps.Clone(d.templates),
	}
}

// setDeviceClass stores a DeviceClass, or removes a deleted one.
func (s *Cache) setDeviceClass(o *resourcev1.DeviceClass, deleted bool) {
	s.devices.byName[o.Name] = o
	if deleted {
		delete(s.devices.byName, o.Name)
	}
	s.devices.classes = fit.NewClasses(maps.Values(s.devices.byName))
	clear(s.devices.charges)
	s.devices.classesChanged()
	s.rereadPods(func(w *Workload) bool {
		return slices.ContainsFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool { return fit.MayClaim(&ps.Template.Spec) })
	})
}

// setClaimTemplate stores a ResourceClaimTemplate, or removes a deleted one.
func (s *Cache) setClaimTemplate(o *resourcev1.ResourceClaimTemplate, deleted bool) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	s.devices.templates[key] = o
	if deleted {
		delete(s.devices.templates, key)
	}
	s.rereadPods(func(w *Workload) bool {
		return w.Object.Namespace == o.Namespace && slices.ContainsFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool {
			return slices.ContainsFunc(ps.Template.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
				return c.ResourceClaimTemplateName != nil && *c.ResourceClaimTemplateName == o.Name
			})
		})
	})
}

// claimed adds a pod's claims to its requests, under the resources of resources.deviceClassMappings, which count against quota. If
// a claim cannot be counted it returns the reason in Kueue's words.
func (s *Cache) claimed(namespace string, ps *kueue.PodSet, requests nodegroups.Resources) (out nodegroups.Resources, why string) {
	if len(s.devices.byName) == 0 && len(ps.Template.Spec.ResourceClaims) == 0 {
		return requests, "" // the common case, without a copy
	}
	out = requests.Clone()
	for _, name := range requests.Names() {
		class := s.devices.classes.ClassOf(name)
		if class == nil || requests[name] == 0 {
			continue
		}
		if kind := kindOf(s.sources(class.Name)); kind != "" {
			return requests, fmt.Sprintf("spec.podSets[%s].template.spec: extended resource %s resolves to DeviceClass %s with %s configured: "+
				"claim the devices by a ResourceClaimTemplate", ps.Name, name, class.Name, kind)
		}
		if logical, mapped := s.mapping(class.Name); mapped && logical != name {
			delete(out, name)
			out[logical] = nodegroups.Plus(out[logical], requests[name])
		}
	}
	for i := range ps.Template.Spec.ResourceClaims {
		charge, why := s.claimCharge(namespace, ps, i)
		if why != "" {
			return requests, fmt.Sprintf("spec.podSets[%s].template.spec.resourceClaims[%d]: %s", ps.Name, i, why)
		}
		out.Add(charge, 1)
	}
	return out, ""
}

// mapping returns the resource that counts devices of a class.
func (s *Settings) mapping(class string) (corev1.ResourceName, bool) {
	if s.Config.Resources == nil {
		return "", false
	}
	for i := range s.Config.Resources.DeviceClassMappings {
		m := &s.Config.Resources.DeviceClassMappings[i]
		if slices.Contains(m.DeviceClassNames, corev1.ResourceName(class)) {
			return m.Name, true
		}
	}
	return "", false
}

// claimCharge counts the devices of the i-th claim of a podSet's pod.
func (s *Cache) claimCharge(namespace string, ps *kueue.PodSet, i int) (out nodegroups.Resources, why string) {
	c := &ps.Template.Spec.ResourceClaims[i]
	if c.ResourceClaimTemplateName == nil {
		return nil, "a ResourceClaim that pods share is not supported: name a ResourceClaimTemplate in resourceClaimTemplateName, so that each " +
			"pod has a claim of its own"
	}
	name := *c.ResourceClaimTemplateName
	t := s.devices.templates[types.NamespacedName{Namespace: namespace, Name: name}]
	if t == nil {
		return nil, fmt.Sprintf("ResourceClaimTemplate %s doesn't exist: create it in namespace %s; the job starts once there is one", name,
			namespace)
	}
	out = nodegroups.Resources{}
	for k := range t.Spec.Spec.Devices.Requests {
		q := &t.Spec.Spec.Devices.Requests[k]
		charge, why := s.requestCharge(q, ps)
		if why != "" {
			return nil, fmt.Sprintf("ResourceClaimTemplate %s: devices.requests[%d]: %s", name, k, why)
		}
		out.Add(charge, 1)
	}
	return out, ""
}

// requestCharge counts the devices of one request, or what the sources of their class count. Alternatives count only if each requests
// the same number of the same resource; requests with adminAccess take none.
func (s *Cache) requestCharge(q *resourcev1.DeviceRequest, ps *kueue.PodSet) (out nodegroups.Resources, why string) {
	if q.Exactly != nil {
		if ptr.Deref(q.Exactly.AdminAccess, false) {
			return nil, ""
		}
		resource, why := s.mapped(q.Exactly.DeviceClassName, q.Exactly.AllocationMode, ps)
		if why != "" {
			return nil, why
		}
		if sources := s.sources(q.Exactly.DeviceClassName); len(sources) > 0 {
			return s.sourceCharge(q.Exactly, sources)
		}
		return nodegroups.Resources{resource: max(1, q.Exactly.Count)}, ""
	}
	for k := range q.FirstAvailable {
		f := &q.FirstAvailable[k]
		resource, why := s.mapped(f.DeviceClassName, f.AllocationMode, ps)
		if why != "" {
			return nil, why
		}
		charge := nodegroups.Resources{resource: max(1, f.Count)}
		if k > 0 && !maps.Equal(charge, out) || len(s.sources(f.DeviceClassName)) > 0 {
			return nil, "FirstAvailable device selection is not supported, unless all alternatives count as the same number of the same resource, " +
				"without sources"
		}
		out = charge
	}
	return out, ""
}

// mapped returns the resource that counts the devices of a request.
func (s *Cache) mapped(class string, mode resourcev1.DeviceAllocationMode, ps *kueue.PodSet) (resource corev1.ResourceName, why string) {
	if mode == resourcev1.DeviceAllocationModeAll {
		return "", "AllocationMode 'All' is not supported: ask for a number of devices with ExactCount"
	}
	resource, ok := s.mapping(class)
	if !ok {
		return "", fmt.Sprintf("DeviceClass %s is not mapped in DRA configuration for podset %s: an administrator adds it to "+
			"resources.deviceClassMappings", class, ps.Name)
	}
	return resource, ""
}

// RefusedClaims explains why the devices of a Workload cannot be counted; empty if they can.
func (w *Workload) RefusedClaims() string { return strings.Join(w.refusedClaims, "; ") }
