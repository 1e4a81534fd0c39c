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

// Devices is what DRA drivers publish for a node, or for a machine that may be launched, minus what is allocated. A value is
// immutable.
type Devices interface {
	// Key is equal for devices that allow the same allocations.
	Key() string
	// Amounts counts the free devices of each DeviceClass under the name returned by AmountName. The count is an upper bound: only
	// Allocate decides whether a claim can have a combination of them.
	Amounts() nodegroups.Resources
	// Allocate allocates the claims of up to n pods, one pod after the other. It returns the number of pods served and the
	// remaining devices.
	Allocate(c *Claims, n int) (pods int, left Devices)
	// Less returns the devices after pods with unknown claims have taken these amounts. Claims can be allocated only if it does not
	// matter which devices those are.
	Less(taken nodegroups.Resources) Devices
	// ForOthers returns what Allocate has left as pods of other gangs may count on it. If it matters which devices were taken, none of
	// their claims can be allocated: which pods come first is not known.
	ForOthers() Devices
	// Obstacle explains why Allocate cannot serve a pod; empty if it can.
	Obstacle(c *Claims) string
	// Unpublished lists the pools that are incomplete; empty for none.
	Unpublished() string
	// Tainted lists the devices with a taint that keeps claims without tolerations off them, each with the taint; empty for none.
	Tainted() []string
	// Classes counts the devices of each DeviceClass. A device that several claims may have at once counts once.
	Classes() map[string]ClassCount
	// Describe returns the devices in the format of a NodeGroup; nil if a pool is incomplete or the description is too large.
	Describe() []v1alpha1.DevicePool
}

// ClassCount counts the devices of a DeviceClass: each is in one of the fields.
type ClassCount struct {
	// Tainted devices have a taint that keeps claims without tolerations off them, whether or not they are allocated.
	Free, Allocated, Tainted int
}

// Claims are the devices that each pod of a podSet claims.
type Claims struct {
	// Key is equal for equal claims.
	Key string
	// Specs contains the specs of the pod's ResourceClaims.
	Specs []resourcev1.ResourceClaimSpec
	// Extended contains the requests for extended resources that DeviceClasses name. On a node whose device plugin offers the
	// resource they are plain amounts, on any other node a claim.
	Extended []ExtendedRequest
}

// ExtendedRequest is a request for an extended resource that a DeviceClass names.
type ExtendedRequest struct {
	Resource corev1.ResourceName
	Class    string
	Count    int64
}

// Classes indexes DeviceClasses by name and by extended resource.
type Classes struct {
	byName map[string]*resourcev1.DeviceClass
	of     map[corev1.ResourceName]*resourcev1.DeviceClass
}

// NewClasses indexes the classes, which must not be modified later.
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

// standsBefore reports whether a is preferred to b for an extended resource that both name. Like kube-scheduler, it prefers the
// newer class, then the first by name.
func standsBefore(a, b *resourcev1.DeviceClass) bool {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// Class returns the DeviceClass with that name, or nil.
func (c *Classes) Class(name string) *resourcev1.DeviceClass { return c.byName[name] }

// ClassOf returns the DeviceClass that provides an extended resource, or nil.
func (c *Classes) ClassOf(resource corev1.ResourceName) *resourcev1.DeviceClass {
	return c.of[resource]
}

// Names returns the names of the classes in order.
func (c *Classes) Names() []string { return slices.Sorted(maps.Keys(c.byName)) }

// AmountName returns the resource that counts devices of a class: its extended resource if ClassOf resolves that to this class,
// otherwise its implicit name.
func (c *Classes) AmountName(class *resourcev1.DeviceClass) corev1.ResourceName {
	if name := class.Spec.ExtendedResourceName; name != nil {
		if of := c.ClassOf(corev1.ResourceName(*name)); of != nil && of.Name == class.Name {
			return corev1.ResourceName(*name)
		}
	}
	return ImplicitName(class.Name)
}

// ImplicitName returns the extended resource that every DeviceClass provides without declaring it.
func ImplicitName(class string) corev1.ResourceName {
	return corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class)
}

// MayClaim reports whether pods of the spec claim devices, or request an extended resource that a DeviceClass may provide.
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

// readDevices reads the pod's claims and adds their devices to its requests.
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

// readDeviceRequest refuses a request with a missing DeviceClass, and a request that Muster cannot evaluate.
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

// readExtended reads the requests for extended resources that a DeviceClass provides. A request by the implicit name of a class is
// always a claim.
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
		// A device plugin never offers an implicit name, so this is a claim on every node.
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

// Charge returns the minimum number of free, untainted devices that a claim takes, under the names returned by AmountName. Requests
// with adminAccess take none, requests with tolerations may take tainted devices instead, and among alternatives the smallest
// counts.
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

// chargeOf returns the minimum that a request takes; a request for all devices takes at least one.
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

// SharesOfDevice is the amount of a device that several claims may have at once, as an upper bound. It exceeds the pods of any node.
const SharesOfDevice = 1024

// DevicesIn returns the number of devices in an amount: a device that several claims may have at once is one.
func DevicesIn(amount int64) int64 { return amount/SharesOfDevice + amount%SharesOfDevice }

// NewestOf returns the slices of the newest generation of a pool.
func NewestOf(pool []*resourcev1.ResourceSlice) (out []*resourcev1.ResourceSlice) {
	newest := int64(0)
	for _, s := range pool {
		newest = max(newest, s.Spec.Pool.Generation)
	}
	for _, s := range pool {
		if s.Spec.Pool.Generation == newest {
			out = append(out, s)
		}
	}
	return out
}

// KeepsOff reports whether a taint keeps claims without tolerations off a device.
func KeepsOff(t resourcev1.DeviceTaint) bool {
	return t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
}

// identities lists the attributes that differ between devices or machines, so their values cannot be compared across machines. It
// covers the attributes of known drivers, without the domain and in lower case.
var identities = []string{"uuid", "parentuuid", "pcibusid", "pcibusaddress", "pciaddress", "pcieroot", "serial", "serialnumber", "ifname",
	"mac", "ipv4", "ipv6", "rdmadevice"}

// IsIdentity reports whether an attribute identifies a device or a machine.
func IsIdentity(name resourcev1.QualifiedName) bool {
	s := string(name)
	return slices.Contains(identities, strings.ToLower(s[strings.LastIndexByte(s, '/')+1:]))
}

var word = regexp.MustCompile(`[A-Za-z0-9]+`)

// Identifies reports whether a CEL expression reads an attribute that identifies a device or a machine.
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

// AnyDevices allocates every claim. It is used when the devices of a node are unknown.
type AnyDevices struct{}

// Key implements Devices, as do all methods below.
func (AnyDevices) Key() string { return "any" }

// Amounts returns nil: the amounts are unknown.
func (AnyDevices) Amounts() nodegroups.Resources { return nil }

// Allocate serves all pods.
func (d AnyDevices) Allocate(_ *Claims, n int) (pods int, left Devices) { return n, d }

// Less returns the same devices.
func (d AnyDevices) Less(nodegroups.Resources) Devices { return d }

// ForOthers returns the same devices.
func (d AnyDevices) ForOthers() Devices { return d }

// Obstacle returns no obstacle.
func (AnyDevices) Obstacle(*Claims) string { return "" }

// Unpublished returns no pools.
func (AnyDevices) Unpublished() string { return "" }

// Tainted returns no devices.
func (AnyDevices) Tainted() []string { return nil }

// Classes returns no counts.
func (AnyDevices) Classes() map[string]ClassCount { return nil }

// Describe returns no description.
func (AnyDevices) Describe() []v1alpha1.DevicePool { return nil }
