package oracle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
)

const (
	gpuDriver, nicDriver = "gpu.example.com", "nic.example.com"
	// onANode is the number of pods of a gang tried on each node.
	onANode = 6
)

// deviceWorld is a random cluster whose nodes publish devices, and a pod template with claims.
type deviceWorld struct {
	classes []*resourcev1.DeviceClass
	rules   []*resourcev1.DeviceTaintRule
	nodes   []*corev1.Node
	slices  []*resourcev1.ResourceSlice
	// claims of pods that run.
	claims    []*resourcev1.ResourceClaim
	templates []*resourcev1.ResourceClaimTemplate
	pod       *corev1.PodTemplateSpec
}

func text(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }

func newDeviceWorld(c choices) *deviceWorld {
	w := &deviceWorld{classes: deviceClasses(c)}
	for i := range 2 + c.pick(3) {
		w.newNode(c, i)
	}
	if rarely(c, 5) {
		w.rules = append(w.rules, &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"},
			Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(gpuDriver), Device: new(fmt.Sprintf("gpu-%d", c.pick(4)))},
				Taint: resourcev1.DeviceTaint{Key: "xid", Effect: oneOf(c, resourcev1.DeviceTaintEffectNoSchedule,
					resourcev1.DeviceTaintEffectNoExecute)},
			}})
	}
	w.pod = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	switch c.pick(4) {
	case 0:
		name := oneOf(c, "example.com/gpu", resourcev1.ResourceDeviceClassPrefix+"gpu", resourcev1.ResourceDeviceClassPrefix+"nic")
		list := corev1.ResourceList{corev1.ResourceName(name): *resource.NewQuantity(int64(1+c.pick(4)), resource.DecimalSI)}
		w.pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
		if rarely(c, 2) {
			w.claim(c, 0)
		}
	default:
		for i := range 1 + c.pick(2) {
			w.claim(c, i)
		}
	}
	return w
}

func deviceClasses(c choices) []*resourcev1.DeviceClass {
	class := func(name, expression string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}}}
	}
	gpu := class("gpu", `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].kind == "gpu"`)
	if !rarely(c, 4) {
		gpu.Spec.ExtendedResourceName = new("example.com/gpu")
	}
	return []*resourcev1.DeviceClass{gpu,
		class("part", `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].kind == "part"`),
		class("nic", `device.driver == "nic.example.com"`),
		class("large", `device.driver == "gpu.example.com" && device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0`),
	}
}

// newNode adds a node with GPUs of some models, which may be partitioned or shared, and NICs. Some are allocated, and some pools
// are incomplete.
func (w *deviceWorld) newNode(c choices, i int) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: uid(nodeName(i)), ResourceVersion: "1"}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods:   resource.MustParse("110")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Capacity = n.Status.Allocatable
	if rarely(c, 6) {
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse("4")
	}
	w.nodes = append(w.nodes, n)
	var devices []resourcev1.Device
	var counters []resourcev1.CounterSet
	for k := range 1 + c.pick(7) {
		d := resourcev1.Device{Name: fmt.Sprintf("gpu-%d", k), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"kind": text("gpu"), "model": text(oneOf(c, "A", "B")), "uuid": text(fmt.Sprintf("%d-%d", i, k)),
			"resource.kubernetes.io/pcieRoot": text(fmt.Sprintf("%d-%d", i, c.pick(2))),
		}, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(oneOf(c, "40Gi",
			"80Gi"))}}}
		switch {
		case rarely(c, 5):
			set := fmt.Sprintf("set-%d", k)
			counters = append(counters, resourcev1.CounterSet{Name: set,
				Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse("4")}}})
			takes := func(n string) []resourcev1.DeviceCounterConsumption {
				return []resourcev1.DeviceCounterConsumption{{CounterSet: set,
					Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse(n)}}}}
			}
			d.ConsumesCounters = takes("4")
			for p, size := range []string{"1", "1", "1", "1", "2", "2"} {
				devices = append(devices, resourcev1.Device{Name: fmt.Sprintf("part-%d-%d", k, p), ConsumesCounters: takes(size),
					Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"kind": text("part"), "model": text(size)}})
			}
		case rarely(c, 6):
			d.AllowMultipleAllocations = new(true)
		case rarely(c, 8):
			d.Taints = []resourcev1.DeviceTaint{{Key: "lost", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		devices = append(devices, d)
	}
	w.publish(c, i, gpuDriver, counters, devices)
	var nics []resourcev1.Device
	for k := range 1 + c.pick(3) {
		nics = append(nics, resourcev1.Device{Name: fmt.Sprintf("nic-%d", k),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"resource.kubernetes.io/pcieRoot": text(fmt.Sprintf("%d-%d", i, k)), "model": text("A")}})
	}
	w.publish(c, i, nicDriver, nil, nics)
}

func (w *deviceWorld) publish(c choices, i int, driver string, counters []resourcev1.CounterSet, devices []resourcev1.Device) {
	if len(devices) == 0 {
		return
	}
	first := len(w.slices)
	slice := func() *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: new(nodeName(i))}}
		s.Name, s.ResourceVersion = fmt.Sprintf("%s-%s-%d", nodeName(i), driver, len(w.slices)-first), "1"
		w.slices = append(w.slices, s)
		return s
	}
	if len(counters) > 0 {
		slice().Spec.SharedCounters = counters
	}
	half := c.pick(len(devices) + 1)
	for _, of := range [][]resourcev1.Device{devices[:half], devices[half:]} {
		if len(of) > 0 {
			slice().Spec.Devices = of
		}
	}
	count := int64(len(w.slices) - first)
	if rarely(c, 12) {
		count++ // one is still to come
	}
	for _, s := range w.slices[first:] {
		s.Spec.Pool = resourcev1.ResourcePool{Name: nodeName(i), Generation: 1, ResourceSliceCount: count}
	}
	for k := range devices {
		d := &devices[k]
		if !rarely(c, 4) || d.ConsumesCounters != nil || d.AllowMultipleAllocations != nil {
			continue
		}
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: fmt.Sprintf("claim-%d",
			len(w.claims)), ResourceVersion: "1"}}
		claim.UID = uid(claim.Name)
		result := resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: nodeName(i), Device: d.Name}
		if rarely(c, 4) {
			result.AdminAccess = new(true)
		}
		claim.Status.Allocation = &resourcev1.AllocationResult{}
		claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{result}
		w.claims = append(w.claims, claim)
	}
}

// claim adds a claim by a template to the pod.
func (w *deviceWorld) claim(c choices, i int) {
	name := fmt.Sprintf("template-%d", i)
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, ResourceVersion: "1"}}
	of := &t.Spec.Spec.Devices
	for k := range 1 + c.pick(2) {
		q := resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", k)}
		if rarely(c, 5) {
			for a := range 2 {
				q.FirstAvailable = append(q.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprintf("a%d", a),
					DeviceClassName: oneOf(c, "gpu", "part",
						"nic"), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(1 + c.pick(2)),
					Selectors: deviceSelectors(c)})
			}
		} else {
			e := &resourcev1.ExactDeviceRequest{DeviceClassName: oneOf(c, "gpu", "gpu", "part", "nic", "large"),
				AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(1 + c.pick(3)), Selectors: deviceSelectors(c)}
			switch {
			case rarely(c, 8):
				e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
			case rarely(c, 8):
				e.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
			case rarely(c, 8):
				e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
					"memory": resource.MustParse("20Gi")}}
			}
			q.Exactly = e
		}
		of.Requests = append(of.Requests, q)
	}
	if rarely(c, 4) {
		of.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: new(oneOf(c,
			resourcev1.FullyQualifiedName("resource.kubernetes.io/pcieRoot"),
			resourcev1.FullyQualifiedName("gpu.example.com/model")))}}
	} else if rarely(c, 6) {
		of.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: new(resourcev1.FullyQualifiedName("resource.kubernetes.io/pcieRoot"))}}
	}
	w.templates = append(w.templates, t)
	w.pod.Spec.ResourceClaims = append(w.pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &name})
}

func deviceSelectors(c choices) []resourcev1.DeviceSelector {
	if !rarely(c, 3) {
		return nil
	}
	expression := fmt.Sprintf("device.attributes[%q].?model.orValue(\"\") == %q", gpuDriver, oneOf(c, "A", "B", "1", "2"))
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

// pods returns the pods of the gang, with the claims that kube-controller-manager would create from the templates.
func (w *deviceWorld) pods() (pods []*corev1.Pod, claims []runtime.Object) {
	for n := range onANode {
		p, err := create(podName(0, n), w.pod)
		if err != nil {
			panic(err)
		}
		for i, t := range w.templates {
			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("%s-%d", p.Name, i)},
				Spec: t.Spec.Spec}
			claim.UID = uid(claim.Name)
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID,
				Controller: new(true)}}
			claims = append(claims, claim)
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: t.Name,
				ResourceClaimName: &claim.Name})
		}
		pods = append(pods, p)
	}
	return pods, claims
}

func (w *deviceWorld) objects() []runtime.Object {
	return slices.Concat(listOf(slices.Values(w.classes)), listOf(slices.Values(w.rules)), listOf(slices.Values(w.slices)),
		listOf(slices.Values(w.claims)))
}

// model returns Muster's model of the world.
func (w *deviceWorld) model() *model.Model {
	m := model.New(testingclock.NewFakePassiveClock(time.Unix(1e9, 0)), transaction.Instance{Classes: transaction.KnownClasses})
	for _, o := range slices.Concat(w.objects(), listOf(slices.Values(w.templates)), listOf(slices.Values(w.nodes))) {
		m.Set(o.(metav1.Object))
	}
	return m
}

// TestDevicesAreTheSchedulers compares how many pods the model and the scheduler place on each node of random worlds. The model
// must never count more; each reason for counting less has a name.
func TestDevicesAreTheSchedulers(t *testing.T) {
	const worlds = 1000
	counts, less, books, some := 0, 0, 0, 0
	for seed := range uint64(worlds) {
		w := newDeviceWorld(newSeeded(seed))
		pods, claims := w.pods()
		s := newScheduler(t, append(w.objects(), claims...)...)
		s.set(w.nodes, nil)
		s.hears(t, w, len(w.claims)+len(claims))
		view := w.model().Snapshot(time.Unix(1e9, 0))
		p, refusal := fit.NewPod("team", "set0", onANode, w.pod, view.Objects)
		if refusal.Refused() {
			t.Fatalf("seed %d: %v", seed, refusal)
		}
		for _, n := range w.nodes {
			want := s.count(t, pods, n.Name)
			node := view.Nodes.Find(n.Name)
			got, why := node.Free.Times(p.Requests, onANode), "counting"
			switch {
			case p.Claims == nil || got == 0:
			case node.Claimable != nil:
				got, _ = node.Claimable.Allocate(p.Claims, got)
				why = node.Claimable.Obstacle(p.Claims)
			case len(p.Claims.Specs) > 0:
				got = 0
			}
			counts++
			switch {
			case got > want:
				t.Fatalf("seed %d: %d pods on %s, the scheduler places %d\n%s", seed, got, n.Name, want, w.describe(n.Name))
			case got < want && strings.Contains(why, "by a device plugin, and publishes"):
				books++ // the scheduler would give the same devices away twice
			case got < want:
				less++
				t.Logf("seed %d: %d pods on %s, the scheduler places %d (%s)\n%s", seed, got, n.Name, want, why, w.describe(n.Name))
			case got > 0:
				some++
			}
		}
	}
	t.Logf("%d nodes, %d with room, %d with two books of the same devices, %d where the scheduler finds more", counts, some, books, less)
	if some < counts/8 {
		t.Errorf("%d of %d nodes had room only", some, counts)
	}
	if less > counts/200 {
		t.Errorf("on %d of %d nodes less was counted", less, counts)
	}
}

// hears waits until the scheduler's tracker has the devices, which it watches apart from its informers.
func (s *kubeScheduler) hears(t *testing.T, w *deviceWorld, claims int) {
	t.Helper()
	dra := s.profile.SharedDRAManager()
	if err := wait.PollUntilContextTimeout(s.ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		published, err := dra.ResourceSlices().ListWithDeviceTaintRules()
		if err != nil {
			return false, err
		}
		allocated, err := dra.ResourceClaims().ListAllAllocatedDevices()
		if err != nil {
			return false, nil //nolint:nilerr // its events are still pending
		}
		all, err := dra.ResourceClaims().List()
		if err != nil {
			return false, err
		}
		want := 0
		for _, c := range w.claims {
			if c.Status.Allocation.Devices.Results[0].AdminAccess == nil {
				want++
			}
		}
		for _, c := range w.classes {
			if dra.DeviceClassResolver().GetDeviceClass(fit.ImplicitName(c.Name)) == nil {
				return false, nil
			}
		}
		return len(published) == len(w.slices) && len(all) == claims && len(allocated) == want, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// count returns how many of the pods the scheduler places on a node, one after the other.
func (s *kubeScheduler) count(t *testing.T, pods []*corev1.Pod, node string) (n int) {
	t.Helper()
	for _, p := range pods {
		a := s.try(p)
		if yes, _ := a.verdict(node); !yes {
			break
		}
		undo, err := a.reserve(node)
		if err != nil {
			t.Fatal(err)
		}
		defer undo()
		info, err := s.snapshot.NodeInfos().Get(node)
		if err != nil {
			t.Fatal(err)
		}
		info.(*framework.NodeInfo).AddPod(p)
		n++
	}
	return n
}

func (w *deviceWorld) describe(node string) string {
	out := fmt.Sprintf("pod: %v %v\n", w.pod.Spec.Containers[0].Resources.Limits, w.pod.Spec.ResourceClaims)
	for _, t := range w.templates {
		out += fmt.Sprintf("template: %s\n", t.Spec.Spec.Devices.String())
	}
	for _, s := range w.slices {
		if *s.Spec.NodeName == node {
			out += fmt.Sprintf("slice %s: %s\n", s.Name, s.Spec.String())
		}
	}
	for _, c := range w.claims {
		out += fmt.Sprintf("allocated: %s\n", c.Status.Allocation.Devices.String())
	}
	return out + fmt.Sprintf("rules: %v\n", w.rules)
}
