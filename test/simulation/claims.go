package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// allocations are the devices that a pod gets, by its claims in their order. The last one is for its extended resources, if they are
// claimed.
type allocations []resourcev1.AllocationResult

// claimsDevices has a group publish devices in place of those of a device plugin.
func (a *generator) claimsDevices(g *v1alpha1.NodeGroup) {
	if _, ok := g.Spec.Template.Capacity[gpu]; !ok {
		return
	}
	a.publishes(g)
	for a.oneIn(2) {
		a.drivers[g.Name] = append(a.drivers[g.Name], oneOf(a, emptyPool, shortPool, taintedDevice, newGeneration, twoBooks))
	}
}

// publishes has drivers publish the devices of a group's machines.
func (a *generator) publishes(g *v1alpha1.NodeGroup) {
	g.Spec.Template.Capacity = cpuMachine
	g.Spec.Template.Devices = deviceInventories[oneOf(a, inventoryNames...)]
}

// publishOn has drivers publish the devices of a node that no group has.
func (a *generator) publishOn(n *corev1.Node) {
	if _, ok := n.Status.Capacity[gpu]; !ok || a.oneIn(4) {
		return
	}
	delete(n.Status.Capacity, gpu)
	delete(n.Status.Allocatable, gpu)
	n.Annotations = map[string]string{kwokv1alpha1.ClaimableAnnotation: kwokv1alpha1.Claimable{
		Pools: deviceInventories[oneOf(a, inventoryNames...)], Delay: seconds(a.random.Int64N(20)),
	}.Annotation()}
}

// taintByRule has an admin taint a device of all nodes for a while.
func (a *generator) taintByRule() {
	r := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
	r.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{Driver: new(gpuDriver), Device: new(oneOf(a, "gpu-a0", "gpu-b1", "gpu-0-small-2"))}
	r.Spec.Taint = resourcev1.DeviceTaint{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	at := a.start.Add(a.within(scenarioTime))
	a.plan(at, "an admin taints a device", func() {
		a.feature("rule taints devices")
		a.create(r)
	})
	a.plan(at.Add(a.within(scenarioTime)), "an admin removes the taint", func() { _ = a.store.delete(r) })
}

// claimKinds are the devices that pods of a gang claim: the requests, and an attribute that must be equal.
var claimKinds = map[string]func(*resourcev1.DeviceClaim){
	"one GPU":   exactly("gpu", 1, ""),
	"two GPUs":  exactly("gpu", 2, ""),
	"four GPUs": exactly("gpu", 4, ""),
	"all GPUs": func(c *resourcev1.DeviceClaim) {
		exactly("gpu", 0, "")(c)
		c.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	},
	"two GPUs on one root": func(c *resourcev1.DeviceClaim) {
		exactly("gpu", 2, "")(c)
		c.Constraints = []resourcev1.DeviceConstraint{{
			MatchAttribute: new(resourcev1.FullyQualifiedName("resource.kubernetes.io/pcieRoot"))}}
	},
	"one GPU of model A":  exactly("gpu", 1, "A"),
	"two GPUs of model B": exactly("gpu", 2, "B"),
	"a small partition":   exactly("part", 1, "1"),
	"a large partition":   exactly("part", 1, "2"),
	"a large partition or two small ones": func(c *resourcev1.DeviceClaim) {
		sub := func(name string, count int64, model string) resourcev1.DeviceSubRequest {
			return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: "part", Count: count, Selectors: ofModel(model),
				AllocationMode: resourcev1.DeviceAllocationModeExactCount}
		}
		c.Requests = []resourcev1.DeviceRequest{{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{sub("a", 1, "2"), sub("b", 2, "1")}}}
	},
}

func exactly(class string, count int64, model string) func(*resourcev1.DeviceClaim) {
	return func(c *resourcev1.DeviceClaim) {
		c.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: count,
			AllocationMode: resourcev1.DeviceAllocationModeExactCount, Selectors: ofModel(model)}}}
	}
}

func ofModel(model string) []resourcev1.DeviceSelector {
	if model == "" {
		return nil
	}
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.attributes[%q].model == %q", gpuDriver, model)}}}
}

// claimNames are the keys of claimKinds in order.
var claimNames = slices.Sorted(maps.Keys(claimKinds))

// deviceObjects creates the DeviceClasses, and the ResourceClaimTemplates of all kinds of claims in each namespace.
func (w *world) deviceObjects() {
	for _, kind := range []string{"gpu", "part"} {
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kind}}
		c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(
			"device.driver == %q && device.attributes[%q].kind == %q", gpuDriver, gpuDriver, kind)}}}
		if kind == "gpu" {
			c.Spec.ExtendedResourceName = new(string(gpu))
		}
		w.create(c)
	}
	for _, namespace := range []string{"team", "team-a", "team-b", unbookedNamespace} {
		for _, name := range claimNames {
			t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: templateOf(name)}}
			claimKinds[name](&t.Spec.Spec.Devices)
			w.create(t)
		}
	}
}

func templateOf(kind string) string { return strings.ToLower(strings.ReplaceAll(kind, " ", "-")) }

// claiming returns a pod that claims devices of some kind in place of its GPUs. Some pods keep their request for an extended resource,
// which the scheduler claims for them.
func (a *generator) claiming(spec corev1.PodSpec) corev1.PodSpec {
	c := &spec.Containers[0]
	if _, ok := c.Resources.Requests[gpu]; !ok || a.oneIn(4) {
		c.Resources.Limits = c.Resources.Requests
		return spec
	}
	return claims(spec, oneOf(a, claimNames...))
}

// claims returns the pod with a claim of that kind in place of its GPUs.
func claims(spec corev1.PodSpec, kind string) corev1.PodSpec {
	c := &spec.Containers[0]
	delete(c.Resources.Requests, gpu)
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new(templateOf(kind))}}
	c.Resources.Claims = []corev1.ResourceClaim{{Name: "devices"}}
	return spec
}

// offerClaims is what the controller of claims does for a pod.
func (w *world) offerClaims(p *corev1.Pod, offer func(option)) {
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		t := find[*resourcev1.ResourceClaimTemplate](w.store, p.Namespace, *c.ResourceClaimTemplateName)
		name := p.Name + "-" + c.Name
		if t == nil || finished(p) || p.DeletionTimestamp != nil || len(p.Status.ResourceClaimStatuses) > i ||
			find[*resourcev1.ResourceClaim](w.store, p.Namespace, name) != nil {
			continue
		}
		offer(option{key: "claim " + p.Namespace + "/" + name + " is made", within: schedulerTime, do: func() {
			w.create(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name,
				OwnerReferences: ownedBy(p)}, Spec: *t.Spec.Spec.DeepCopy()})
			change(w.store, p, func(p *corev1.Pod) {
				p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses,
					corev1.PodResourceClaimStatus{Name: c.Name, ResourceClaimName: &name})
			})
		}})
	}
}

func ownedBy(p *corev1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: new(true)}}
}

// offerClaim deletes a claim whose pod has ended.
func (w *world) offerClaim(c *resourcev1.ResourceClaim, offer func(option)) {
	p := find[*corev1.Pod](w.store, c.Namespace, c.OwnerReferences[0].Name)
	if p == nil || p.UID != c.OwnerReferences[0].UID || finished(p) {
		offer(option{key: "the collector takes claim " + c.Namespace + "/" + c.Name, within: collectorTime, do: func() { _ = w.store.delete(c) }})
	}
}

// specsOf returns the claims of a pod: those of its templates, and one for an extended resource that no device plugin offers on the node.
// ok is false if a template does not exist.
func (w *world) specsOf(namespace string, spec *corev1.PodSpec, n *corev1.Node) (out []resourcev1.ResourceClaimSpec, ok bool) {
	for i := range spec.ResourceClaims {
		t := find[*resourcev1.ResourceClaimTemplate](w.store, namespace, *spec.ResourceClaims[i].ResourceClaimTemplateName)
		if t == nil {
			return nil, false
		}
		out = append(out, t.Spec.Spec)
	}
	if count, ok := spec.Containers[0].Resources.Requests[gpu]; ok && w.claimed(n, gpu) {
		var c resourcev1.ResourceClaimSpec
		exactly("gpu", count.Value(), "")(&c.Devices)
		out = append(out, c)
	}
	return out, true
}

// claimed reports whether the scheduler claims the devices of an extended resource on the node.
func (w *world) claimed(n *corev1.Node, name corev1.ResourceName) bool {
	offered := n.Status.Allocatable[name]
	return w.withClaims && name == gpu && offered.IsZero()
}

// allocated returns what pods have on the node, or will have soon.
func (w *world) allocated(node string) (out []resourcev1.DeviceRequestAllocationResult) {
	add := func(a *resourcev1.AllocationResult) {
		for _, r := range a.Devices.Results {
			if r.Pool == node {
				out = append(out, r)
			}
		}
	}
	for _, c := range all[*resourcev1.ResourceClaim](w.store) {
		if c.Status.Allocation != nil {
			add(c.Status.Allocation)
		}
	}
	for _, p := range all[*corev1.Pod](w.store) {
		if pending := w.pending[p.UID]; w.assumed[p.UID] == node {
			for i := range pending {
				add(&pending[i])
			}
		}
	}
	return out
}

// allocate allocates claims on a node beside what is taken there, as the scheduler does. It returns nil if they do not fit.
func (w *world) allocate(n *corev1.Node, specs []resourcev1.ResourceClaimSpec,
	taken []resourcev1.DeviceRequestAllocationResult,
) allocations {
	published := w.tainted(n.Name)
	key := fmt.Sprint(n.Name, " ", len(specs))
	for i := range specs {
		key += " " + specs[i].Devices.String()
	}
	for _, s := range published {
		key += " " + s.ResourceVersion
	}
	for _, r := range all[*resourcev1.DeviceTaintRule](w.store) {
		key += " " + r.ResourceVersion
	}
	for i := range taken {
		key += " " + taken[i].Device
	}
	if known, ok := w.answers[key]; ok {
		return known
	}
	var out allocations
	claims := make([]*resourcev1.ResourceClaim, len(specs))
	for i := range specs {
		name := fmt.Sprint(i)
		claims[i] = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "claims", Name: name, UID: types.UID(name)},
			Spec: specs[i]}
	}
	already := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	for _, r := range taken {
		already.AllocatedDevices.Insert(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
	}
	allocator, err := structured.NewAllocator(context.Background(), structured.Features{AdminAccess: true, PrioritizedList: true,
		PartitionableDevices: true, DeviceTaints: true, DeviceBindingAndStatus: true, ConsumableCapacity: true}, already,
		classLister{w.store}, published, w.expressions)
	if err == nil {
		out, err = allocator.Allocate(context.Background(), n, claims)
	}
	if err != nil {
		out = nil // such as a claim for all devices of a pool that is incomplete
	}
	w.answers[key] = out
	return out
}

// tainted returns the slices of a node with the taints of DeviceTaintRules.
func (w *world) tainted(node string) []*resourcev1.ResourceSlice {
	out := w.slicesOn(node)
	for _, r := range all[*resourcev1.DeviceTaintRule](w.store) {
		for i, s := range out {
			s = s.DeepCopy()
			for k := range s.Spec.Devices {
				if d := &s.Spec.Devices[k]; d.Name == *r.Spec.DeviceSelector.Device {
					d.Taints = append(d.Taints, r.Spec.Taint)
				}
			}
			out[i] = s
		}
	}
	return out
}

// newExpressions returns a cache for the expressions that the scheduler compiles.
func newExpressions() *dracel.Cache {
	return dracel.NewCache(64, dracel.Features{EnableConsumableCapacity: true})
}

// classLister lists DeviceClasses for the allocator.
type classLister struct{ *store }

func (l classLister) List() ([]*resourcev1.DeviceClass, error) {
	return all[*resourcev1.DeviceClass](l.store), nil
}

func (l classLister) Get(name string) (*resourcev1.DeviceClass, error) {
	if c := find[*resourcev1.DeviceClass](l.store, "", name); c != nil {
		return c, nil
	}
	return nil, notFound("DeviceClass", name)
}

// takesDevices returns the devices that a pod would get on a node; ok is false if it would get none that it claims.
func (w *world) takesDevices(p *corev1.Pod, n *corev1.Node) (out allocations, ok bool) {
	specs, ok := w.specsOf(p.Namespace, &p.Spec, n)
	if !ok || len(p.Status.ResourceClaimStatuses) < len(p.Spec.ResourceClaims) {
		return nil, false
	}
	if len(specs) == 0 {
		return nil, true
	}
	out = w.allocate(n, specs, w.allocated(n.Name))
	return out, out != nil
}

// bindClaims writes what a pod that the scheduler has assumed on a node gets.
func (w *world) bindClaims(p *corev1.Pod) {
	pending := w.pending[p.UID]
	reserved := []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
	for i := range p.Spec.ResourceClaims {
		if c := find[*resourcev1.ResourceClaim](w.store, p.Namespace, *p.Status.ResourceClaimStatuses[i].ResourceClaimName); c != nil {
			change(w.store, c, func(c *resourcev1.ResourceClaim) {
				c.Status.Allocation, c.Status.ReservedFor = &pending[i], reserved
			})
		}
	}
	if extended := len(p.Spec.ResourceClaims); extended < len(pending) {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-extended",
			OwnerReferences: ownedBy(p), Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}}}
		exactly("gpu", int64(len(pending[extended].Devices.Results)), "")(&c.Spec.Devices)
		c.Status.Allocation, c.Status.ReservedFor = &pending[extended], reserved
		w.create(c)
	}
	delete(w.pending, p.UID)
}

// unbindClaims takes the devices from a pod whose node is gone before it was bound.
func (w *world) unbindClaims(p *corev1.Pod) {
	for _, c := range all[*resourcev1.ResourceClaim](w.store) {
		switch {
		case c.OwnerReferences[0].UID != p.UID:
		case c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "":
			_ = w.store.delete(c)
		default:
			change(w.store, c, func(c *resourcev1.ResourceClaim) { c.Status.Allocation, c.Status.ReservedFor = nil, nil })
		}
	}
}

// judgeDevices checks that a request that becomes Provisioned has devices on its nodes for all of its pods, beside those of other bookings
// there and whatever is allocated. It does not judge what may have changed since Muster decided.
func (w *world) judgeDevices(o client.Object, deleted bool) {
	r, ok := o.(*provreq.ProvisioningRequest)
	if !ok || deleted || !w.withClaims || !isTrue(r, provreq.Provisioned) || w.judged[r.UID] {
		return
	}
	w.judged[r.UID] = true
	for _, n := range all[*corev1.Node](w.store) {
		if n.Annotations[v1alpha1.BookedLabelPrefix+state.BookingKey(r.Name)] == "" {
			continue
		}
		if changed := w.worsened[n.Name]; !changed.IsZero() && time.Since(changed) <= devicesGrace+w.staleness+2*callTime {
			continue
		}
		w.judgeDevicesOn(n)
	}
}

// devicesGrace is how long Muster counts devices that have vanished.
const devicesGrace = 2 * time.Minute

// judgeDevicesOn allocates the claims of all pods that are booked on the node and have not come.
func (w *world) judgeDevicesOn(n *corev1.Node) {
	taken := w.allocated(n.Name)
	for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
		i := slices.IndexFunc(w.gangs, func(g *gang) bool {
			q := find[*provreq.ProvisioningRequest](w.store, g.namespace, g.request)
			return q != nil && q.UID == b.UID && isTrue(q, provreq.Provisioned) && !over(q)
		})
		if i < 0 || len(w.gangs[i].podSets) != 1 || w.hasPods(w.gangs[i], n) {
			continue // where the pods of several podSets are is not known
		}
		spec := &w.gangs[i].podSets[0].spec
		specs, ok := w.specsOf(w.gangs[i].namespace, spec, n)
		if !ok || len(specs) == 0 {
			continue
		}
		cpu := nodegroups.ResourcesFrom(spec.Containers[0].Resources.Requests)[corev1.ResourceCPU]
		w.feature("devices of a booking judged")
		for k := range b.Booked[corev1.ResourceCPU] / cpu {
			got := w.allocate(n, specs, taken)
			if got == nil {
				w.failure = fmt.Errorf("node %s has no devices for pod %d of %d that is booked there for %s", n.Name, k+1,
					b.Booked[corev1.ResourceCPU]/cpu, w.gangs[i])
				return
			}
			for _, a := range got {
				taken = append(taken, a.Devices.Results...)
			}
		}
	}
}

// hasPods reports whether pods of the gang are on the node.
func (w *world) hasPods(g *gang, n *corev1.Node) bool {
	return slices.ContainsFunc(all[*corev1.Pod](w.store), func(p *corev1.Pod) bool {
		return p.Namespace == g.namespace && p.Annotations[provreq.ProvisioningRequestPodAnnotationKey] == g.request &&
			(p.Spec.NodeName == n.Name || w.assumed[p.UID] == n.Name)
	})
}
