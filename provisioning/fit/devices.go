package fit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Devices are those that DRA drivers publish of a node, or of a machine that may be launched, without those that are allocated. A
// value does not change.
type Devices interface {
	// Key is the same for devices of which the same can be allocated.
	Key() string
	// Amounts count the devices of each DeviceClass that are not allocated, by the name of AmountName. Counting is a bound: which
	// of them suit a claim together only Allocate tells.
	Amounts() nodegroups.Resources
	// Allocate allocates the claims of up to n pods, one pod after the other, and returns the number of pods and what is left.
	Allocate(c *Claims, n int) (pods int, left Devices)
	// Obstacle says why Allocate finds no devices for a pod, or is empty.
	Obstacle(c *Claims) string
	// Unpublished says which of its pools are not complete, or is empty.
	Unpublished() string
	// Describe is what is published as a NodeGroup describes it; nil where not all is published, or too much.
	Describe() []v1alpha1.DevicePool
}

// Claims are the devices that each pod of a podSet claims.
type Claims struct {
	// Key is the same for claims of the same.
	Key string
	// Specs are those of the pod's ResourceClaims.
	Specs []resourcev1.ResourceClaimSpec
	// Extended are the requests of extended resources that DeviceClasses name. A node whose device plugin offers the resource
	// gives them as amounts, any other as a claim.
	Extended []ExtendedRequest
}

// ExtendedRequest is an amount of an extended resource that a DeviceClass stands for.
type ExtendedRequest struct {
	Resource corev1.ResourceName
	Class    string
	Count    int64
}

// Classes are DeviceClasses with the resources that stand for them.
type Classes struct {
	byName map[string]*resourcev1.DeviceClass
	of     map[corev1.ResourceName]*resourcev1.DeviceClass
}

// NewClasses are these classes. They must not be changed later.
func NewClasses(classes iter.Seq[*resourcev1.DeviceClass]) Classes {
	c := Classes{map[string]*resourcev1.DeviceClass{}, map[corev1.ResourceName]*resourcev1.DeviceClass{}}
	for class := range classes {
		c.byName[class.Name] = class
		c.of[ImplicitName(class.Name)] = class
		if name := class.Spec.ExtendedResourceName; name != nil {
			if of := c.of[corev1.ResourceName(*name)]; of == nil || standsBefore(class, of) {
				c.of[corev1.ResourceName(*name)] = class
			}
		}
	}
	return c
}

// standsBefore reports whether an extended resource that both classes name stands for the first: as kube-scheduler does, for the
// newest, then for the first by name.
func standsBefore(a, b *resourcev1.DeviceClass) bool {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// Class is the DeviceClass of that name, or nil.
func (c *Classes) Class(name string) *resourcev1.DeviceClass { return c.byName[name] }

// ClassOf is the DeviceClass that an extended resource stands for, or nil.
func (c *Classes) ClassOf(resource corev1.ResourceName) *resourcev1.DeviceClass {
	return c.of[resource]
}

// Names are those of the classes, in order.
func (c *Classes) Names() []string { return slices.Sorted(maps.Keys(c.byName)) }

// AmountName is the resource by which devices of a class are counted: its extended resource, where it is the class that this name
// stands for, else the name that every class has.
func (c *Classes) AmountName(class *resourcev1.DeviceClass) corev1.ResourceName {
	if name := class.Spec.ExtendedResourceName; name != nil {
		if of := c.ClassOf(corev1.ResourceName(*name)); of != nil && of.Name == class.Name {
			return corev1.ResourceName(*name)
		}
	}
	return ImplicitName(class.Name)
}

// ImplicitName is the extended resource that stands for a DeviceClass without its naming one.
func ImplicitName(class string) corev1.ResourceName {
	return corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class)
}

// MayClaim reports whether pods of the spec claim devices, or request some that a DeviceClass may stand for.
func MayClaim(spec *corev1.PodSpec) bool {
	if len(spec.ResourceClaims) > 0 {
		return true
	}
	for name := range TemplateRequests(spec) {
		if nodegroups.Extended(name) {
			return true
		}
	}
	return false
}

// readDevices reads which devices the pod claims, and adds them to its amounts.
func (p *Pod) readDevices(spec *corev1.PodSpec, objects *Objects) Refusal {
	var claims Claims
	for i := range spec.ResourceClaims {
		field := fmt.Sprintf("spec.resourceClaims[%d]", i)
		claim, r := p.readResourceClaim(field, &spec.ResourceClaims[i], objects)
		if r.Refused() {
			return r
		}
		claims.Specs = append(claims.Specs, *claim)
	}
	if r := p.readExtended(&claims, objects.Classes); r.Refused() {
		return r
	}
	if len(claims.Specs) == 0 && len(claims.Extended) == 0 {
		return Refusal{}
	}
	for i := range claims.Specs {
		p.Requests.Add(objects.Classes.Charge(&claims.Specs[i].Devices), 1)
	}
	claims.Key = keyOf(claims)
	p.Claims = &claims
	return Refusal{}
}

func (p *Pod) readResourceClaim(field string, c *corev1.PodResourceClaim, objects *Objects) (*resourcev1.ResourceClaimSpec, Refusal) {
	switch {
	case c.ResourceClaimTemplateName == nil:
		return nil, unsupported(field+".resourceClaimName", "a claim that pods share",
			"name a ResourceClaimTemplate in resourceClaimTemplateName, so that each pod has a claim of its own")
	case objects.ClaimTemplate == nil || objects.Classes == nil:
		return nil, unsupported(field, "dynamic resource allocation",
			"request devices by container resources, or run these pods without a request")
	}
	field += ".resourceClaimTemplateName"
	name := *c.ResourceClaimTemplateName
	t := objects.ClaimTemplate(p.Namespace, name)
	if t == nil {
		return nil, unready(field, fmt.Sprintf("ResourceClaimTemplate %s, which does not exist", name))
	}
	for i := range t.Spec.Spec.Devices.Requests {
		if r := readDeviceRequest(field, name, &t.Spec.Spec.Devices.Requests[i], objects.Classes); r.Refused() {
			return nil, r
		}
	}
	return &t.Spec.Spec, Refusal{}
}

// readDeviceRequest refuses what of a request is not there, or cannot be judged.
func readDeviceRequest(field, template string, q *resourcev1.DeviceRequest, known *Classes) Refusal {
	classes, selectors := []string(nil), []resourcev1.DeviceSelector(nil)
	if e := q.Exactly; e != nil {
		classes, selectors = append(classes, e.DeviceClassName), e.Selectors
		if len(e.DerivedAttributes) > 0 {
			return unsupported(field, fmt.Sprintf("request %s of ResourceClaimTemplate %s has derivedAttributes", q.Name, template),
				"remove them, or run these pods without a request")
		}
	}
	for i := range q.FirstAvailable {
		s := &q.FirstAvailable[i]
		classes, selectors = append(classes, s.DeviceClassName), append(selectors, s.Selectors...)
	}
	for _, name := range classes {
		if known.Class(name) == nil {
			return unready(field, fmt.Sprintf("DeviceClass %s of ResourceClaimTemplate %s, which does not exist", name, template))
		}
	}
	for i := range selectors {
		if cel := selectors[i].CEL; cel != nil && Identifies(cel.Expression) {
			return unsupported(field, fmt.Sprintf("request %s of ResourceClaimTemplate %s selects a device by what identifies it",
				q.Name, template),
				"select by attributes that machines have in common, such as productName")
		}
	}
	return Refusal{}
}

// readExtended reads the requests of extended resources that a DeviceClass stands for. What is requested by the name that every
// class has is a claim.
func (p *Pod) readExtended(claims *Claims, classes *Classes) Refusal {
	for _, name := range p.Requests.Names() {
		implicit := strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
		if p.Requests[name] <= 0 || !nodegroups.Extended(name) || classes == nil && !implicit {
			continue
		}
		if classes == nil {
			return unsupported("a resource of spec.containers", fmt.Sprintf("%s stands for a DeviceClass", name),
				"request a resource that nodes advertise, or run these pods without a request")
		}
		class := classes.ClassOf(name)
		switch {
		case class == nil && implicit:
			return unready("resources of spec.containers", fmt.Sprintf("DeviceClass %s, which does not exist",
				strings.TrimPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)))
		case class == nil:
			continue
		}
		if !implicit {
			claims.Extended = append(claims.Extended, ExtendedRequest{name, class.Name, p.Requests[name]})
			continue
		}
		// No device plugin offers this: it is a claim wherever the pod runs.
		claims.Specs = append(claims.Specs,
			resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "extended-resource", Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: class.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: p.Requests[name],
				},
			}}}})
		delete(p.Requests, name)
	}
	return Refusal{}
}

// Charge counts the devices that a claim takes at least of those that are free and sound, by the names of AmountName. Requests for
// administrators take none, those that tolerate taints may take others, and of alternatives the least counts.
func (c *Classes) Charge(claim *resourcev1.DeviceClaim) nodegroups.Resources {
	out := nodegroups.Resources{}
	for i := range claim.Requests {
		q := &claim.Requests[i]
		if e := q.Exactly; e != nil && !ptr.Deref(e.AdminAccess, false) && len(e.Tolerations) == 0 {
			out.Add(c.chargeOf(e.DeviceClassName, e.AllocationMode, e.Count), 1)
		}
		var least nodegroups.Resources
		for k := range q.FirstAvailable {
			s := &q.FirstAvailable[k]
			charge := c.chargeOf(s.DeviceClassName, s.AllocationMode, s.Count)
			if len(s.Tolerations) > 0 {
				charge = nodegroups.Resources{}
			}
			if least == nil {
				least = charge
				continue
			}
			for name, n := range least {
				least[name] = min(n, charge[name])
			}
		}
		out.Add(least, 1)
	}
	for name, n := range out {
		if n == 0 {
			delete(out, name)
		}
	}
	return out
}

// chargeOf is the least that a request takes; one for all devices takes one at least.
func (c *Classes) chargeOf(name string, mode resourcev1.DeviceAllocationMode, count int64) nodegroups.Resources {
	class := c.Class(name)
	if class == nil {
		return nil
	}
	if mode == resourcev1.DeviceAllocationModeAll || count == 0 {
		count = 1
	}
	return nodegroups.Resources{c.AmountName(class): count}
}

// identities are attributes that tell one device from all others, or one machine: their values say nothing of another machine.
// They are those of the drivers that are known, by the names without a domain, in lower case.
var identities = []string{"uuid", "parentuuid", "pcibusid", "pcibusaddress", "pciaddress", "pcieroot", "serial", "serialnumber", "ifname",
	"mac", "ipv4", "ipv6", "rdmadevice"}

// IsIdentity reports whether an attribute tells one device, or one machine, from all others.
func IsIdentity(name resourcev1.QualifiedName) bool {
	s := string(name)
	return slices.Contains(identities, strings.ToLower(s[strings.LastIndexByte(s, '/')+1:]))
}

var word = regexp.MustCompile(`[A-Za-z0-9]+`)

// Identifies reports whether a CEL expression reads an attribute that tells one device from all others.
func Identifies(expression string) bool {
	return slices.ContainsFunc(word.FindAllString(expression, -1), func(w string) bool { return IsIdentity(resourcev1.QualifiedName(w)) })
}

func keyOf(claims Claims) string {
	text, err := json.Marshal(claims)
	if err != nil {
		panic(fmt.Sprintf("claims cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// AnyDevices are as many of each kind as are claimed, where it is not known what a node will have.
type AnyDevices struct{}

// Key is part of Devices, as all that follow.
func (AnyDevices) Key() string { return "any" }

// Amounts are not known.
func (AnyDevices) Amounts() nodegroups.Resources { return nil }

// Allocate allocates all.
func (d AnyDevices) Allocate(_ *Claims, n int) (pods int, left Devices) { return n, d }

// Obstacle is empty.
func (AnyDevices) Obstacle(*Claims) string { return "" }

// Unpublished is empty.
func (AnyDevices) Unpublished() string { return "" }

// Describe is nothing.
func (AnyDevices) Describe() []v1alpha1.DevicePool { return nil }
