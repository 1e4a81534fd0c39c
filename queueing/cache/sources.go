package cache

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// source is a counter or a capacity of devices that counts against quota.
type source struct {
	// resource has the quota.
	resource          corev1.ResourceName
	counter, capacity string
	driver            string
	selector          resourcev1.DeviceSelector
}

// sourceCharge is what a request is charged, or why that is not known.
type sourceCharge struct {
	resources nodegroups.Resources
	why       string
}

// allSources returns the sources of a mapping.
func allSources(m *kueueconfig.DeviceClassMapping) (out []source) {
	for i := range m.Sources {
		if c := m.Sources[i].Counter; c != nil {
			out = append(out, source{resource: m.Name, counter: c.Name, driver: c.Driver, selector: c.DeviceSelector})
		}
		if c := m.Sources[i].Capacity; c != nil {
			out = append(out, source{resource: m.Name, capacity: string(c.Name), driver: c.Driver, selector: c.DeviceSelector})
		}
	}
	return out
}

// sourcesByClass returns the sources of each DeviceClass, of all mappings that have it.
func sourcesByClass(r *kueueconfig.Resources) map[string][]source {
	if r == nil {
		return nil
	}
	out := map[string][]source{}
	for i := range r.DeviceClassMappings {
		of := allSources(&r.DeviceClassMappings[i])
		for _, class := range r.DeviceClassMappings[i].DeviceClassNames {
			out[string(class)] = append(out[string(class)], of...)
		}
	}
	return out
}

// sources returns what counts the devices of a class in place of their number.
func (s *Settings) sources(class string) []source { return s.sourcesOf[class] }

// isSource reports whether a source counts devices of the driver.
func (s *Settings) isSource(driver string) bool { return s.sourceDrivers[driver] }

// kindOf names the kind of sources; empty for none.
func kindOf(all []source) string {
	switch {
	case len(all) == 0:
		return ""
	case all[0].counter != "":
		return "counters"
	}
	return "capacity sources"
}

// mostCharges limits the cached charges. A charge beyond the limit is computed again.
const mostCharges = 4096

// sourceCharge computes what the sources of its class charge for a request.
func (s *Cache) sourceCharge(q *resourcev1.ExactDeviceRequest, sources []source) (nodegroups.Resources, string) {
	text, err := json.Marshal(q)
	if err != nil {
		panic(fmt.Sprintf("a request cannot be marshalled: %v", err)) // it came as JSON
	}
	known, ok := s.devices.charges[string(text)]
	if !ok {
		known.resources, known.why = s.chargeBySources(q, sources)
		if len(s.devices.charges) >= mostCharges {
			clear(s.devices.charges)
		}
		s.devices.charges[string(text)] = known
	}
	return known.resources, known.why
}

func (s *Cache) chargeBySources(q *resourcev1.ExactDeviceRequest, sources []source) (out nodegroups.Resources, why string) {
	class := s.devices.classes.Class(q.DeviceClassName)
	if class == nil {
		return nil, fmt.Sprintf("DeviceClass %s doesn't exist: create it; the job starts once there is one", q.DeviceClassName)
	}
	for i := range q.Selectors {
		if cel := q.Selectors[i].CEL; cel != nil && fit.Identifies(cel.Expression) {
			return nil, "a selector reads what identifies one device: select by attributes that machines have in common, such as productName"
		}
	}
	out = nodegroups.Resources{}
	for i := range sources {
		amount, why := s.devices.amount(&sources[i], class, q)
		if why != "" {
			return nil, why
		}
		of := sources[i].resource
		out[of] = nodegroups.Plus(out[of], nodegroups.Times(amount, max(1, q.Count)))
	}
	return out, ""
}

// amount returns what a source counts for one device of a request: the maximum of the devices that may serve it, since which of them
// will is not known.
func (p *published) amount(of *source, class *resourcev1.DeviceClass, q *resourcev1.ExactDeviceRequest) (amount int64, why string) {
	matching, has, counts := int64(0), false, false
	for _, key := range slices.Sorted(maps.Keys(p.kinds)) {
		kind := p.kinds[key]
		if kind.driver != of.driver {
			continue
		}
		ok, why := p.matches(&kind, of, class, q)
		if why != "" {
			return 0, why
		}
		if !ok {
			continue
		}
		matching += kind.n
		v, offered, suits := of.of(&kind.device, q)
		has, counts = has || offered, counts || suits
		if suits {
			amount = max(amount, v) // a value below zero counts as none
		}
	}
	switch n := max(1, q.Count); {
	case matching < n:
		kind := "counter"
		if of.capacity != "" {
			kind = "capacity"
		}
		return 0, fmt.Sprintf("insufficient matching devices for %s driver: %d device(s) match but %d requested; the job starts once driver %s "+
			"publishes them, or a NodeGroup declares them in spec.template.devices", kind, matching, n, of.driver)
	case !has && of.counter != "":
		return 0, fmt.Sprintf("matched devices have no consumesCounters entry for counter %q: correct the name in "+
			"resources.deviceClassMappings, or select devices that have it", of.counter)
	case !has:
		return 0, fmt.Sprintf("matched devices have no capacity dimension %q: correct the name in resources.deviceClassMappings, or "+
			"select devices that have it", of.capacity)
	case !counts:
		return 0, fmt.Sprintf("capacity request cannot be satisfied by any matched device's RequestPolicy for dimension %q: request less",
			of.capacity)
	}
	return amount, ""
}

// matches reports whether a device suits the source, the class and the request.
func (p *published) matches(kind *deviceKind, of *source, class *resourcev1.DeviceClass, q *resourcev1.ExactDeviceRequest) (
	ok bool, why string,
) {
	for _, by := range []struct {
		name      string
		selectors []resourcev1.DeviceSelector
	}{
		{"deviceSelector", []resourcev1.DeviceSelector{of.selector}}, {"DeviceClass selector", class.Spec.Selectors},
		{"request selector", q.Selectors},
	} {
		ok, err := p.selectors.Matches(by.selectors, kind.driver, &kind.device)
		if err != nil {
			return false, fmt.Sprintf("CEL evaluation error in %s for a device of driver %s: %v", by.name, kind.driver, err)
		}
		if !ok {
			return false, ""
		}
	}
	return true, ""
}

// of returns what the source counts of one device. Has reports whether the device has the counter or the capacity, and ok whether it
// can serve the request.
func (s *source) of(d *resourcev1.Device, q *resourcev1.ExactDeviceRequest) (amount int64, has, ok bool) {
	if s.counter != "" {
		for i := range d.ConsumesCounters {
			if c, found := d.ConsumesCounters[i].Counters[s.counter]; found {
				amount, has = max(amount, nodegroups.Scaled(c.Value, 0)), true
			}
		}
		return amount, has, has
	}
	c, has := d.Capacity[resourcev1.QualifiedName(s.capacity)]
	if !has {
		return 0, false, false
	}
	want := c.Value
	if p := c.RequestPolicy; p != nil && p.Default != nil {
		want = *p.Default
	}
	if q.Capacity != nil {
		if r, requested := q.Capacity.Requests[resourcev1.QualifiedName(s.capacity)]; requested {
			want = r
		}
	}
	amount, ok = rounded(want, c.RequestPolicy)
	return amount, true, ok
}

// rounded returns what a device with this policy consumes for an amount. Ok is false if the policy allows nothing as large.
func rounded(want resource.Quantity, policy *resourcev1.CapacityRequestPolicy) (amount int64, ok bool) {
	amount = nodegroups.Scaled(want, 0)
	switch {
	case policy == nil:
		return amount, true
	case len(policy.ValidValues) > 0:
		for _, v := range policy.ValidValues { // in ascending order
			if v.Cmp(want) >= 0 {
				return nodegroups.Scaled(v, 0), true
			}
		}
		return 0, false
	case policy.ValidRange == nil:
		return amount, true
	}
	within := policy.ValidRange
	if within.Min != nil {
		least := nodegroups.Scaled(*within.Min, 0)
		amount = max(amount, least)
		if within.Step != nil {
			if step := nodegroups.Scaled(*within.Step, 0); step > 0 && (amount-least)%step != 0 {
				amount = nodegroups.Plus(least, nodegroups.Times((amount-least)/step+1, step))
			}
		}
	}
	return amount, within.Max == nil || amount <= nodegroups.Scaled(*within.Max, 0)
}
