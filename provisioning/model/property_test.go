package model

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

var sequences = flag.Int("sequences", 150, "of random events that a model is fed with")

// TestIncrementalEqualsRebuilt feeds random events to a model. Its picture must be the same
// when all views are derived again, and that of a model which is given the same objects
// afresh, in another order. In between requests are decided as the controller decides
// them: no request that could proceed may be left out of Due.
//
// In every second sequence time passes. What a model knows then depends on when it has seen
// what, so its picture is compared with its own alone.
func TestIncrementalEqualsRebuilt(t *testing.T) {
	const events = 120
	sequences := *sequences
	steps := map[transaction.Action]int{}
	for seed := range uint64(sequences) {
		w := newEvents(seed)
		for i := range events {
			w.event()
			if w.one(3) {
				w.decide(steps)
				if asleep := w.asleep(); asleep != "" && !w.timed {
					t.Fatalf("seed %d, event %d: %s\nevents:\n%s", seed, i, asleep, w.history())
				}
			}
			if w.one(6) {
				incremental := picture(w.model)
				if !w.timed {
					if diff := cmp.Diff(picture(w.rebuilt()), incremental); diff != "" {
						t.Fatalf("seed %d, event %d: the picture differs from one rebuilt (-rebuilt +incremental):\n%s\nevents:\n%s", seed, i, diff,
							w.history())
					}
				}
				w.model.deriveAll()
				if diff := cmp.Diff(picture(w.model), incremental); diff != "" {
					t.Fatalf("seed %d, event %d: the picture differs from one derived again (-again +incremental):\n%s\nevents:\n%s", seed, i, diff,
						w.history())
				}
			}
		}
	}
	for _, a := range []transaction.Action{transaction.Rest, transaction.Report, transaction.Book, transaction.Provision,
		transaction.Begin, transaction.LaunchMachines,
		transaction.RollBack, transaction.Consume} {
		if steps[a] < sequences/50 {
			t.Errorf("only %d of %v steps are %s: the events say little about it", steps[a], steps, a)
		}
	}
}

// events are a cluster of few objects that change at random, and the model of it.
type events struct {
	model  *Model
	random *rand.Rand
	// timed: the clock goes on.
	timed bool
	version

	// objects by kind and name, and the machines.
	objects  map[string]metav1.Object
	machines map[machineKey]cloudprovider.Machine
	leaving  map[string]bool
	// under way are the steps that have been decided and not carried out.
	underway map[types.UID]underway
	// priced are the last versions of all groups: machines cost on after their group is gone.
	priced map[string]*v1alpha1.NodeGroup
	// serial numbers make the UIDs of objects.
	serial int
	log    []string
}

func newEvents(seed uint64) *events {
	m, _ := newModel()
	w := &events{
		model: m, random: rand.New(rand.NewPCG(seed, 16)), timed: seed%2 == 1, objects: map[string]metav1.Object{},
		machines: map[machineKey]cloudprovider.Machine{},
		leaving:  map[string]bool{}, priced: map[string]*v1alpha1.NodeGroup{}, underway: map[types.UID]underway{},
	}
	for range 10 {
		w.template()
		w.group()
		w.node()
	}
	return w
}

func (w *events) history() string { return strings.Join(w.log, "\n") }

func (w *events) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *events) one(of int) bool { return w.random.IntN(of) == 0 }

func pick[T any](w *events, from ...T) T { return from[w.random.IntN(len(from))] }

// set has an object change, or delivers the last version again.
func (w *events) set(o metav1.Object) {
	if w.one(20) {
		if old := w.objects[kindAndName(o)]; old != nil {
			w.model.Set(old)
		}
	}
	o.SetResourceVersion(w.next())
	w.objects[kindAndName(o)] = o
	w.model.Set(o)
	w.note("set %s", show(o))
}

func (w *events) remove(o metav1.Object) {
	delete(w.leaving, o.GetName())
	delete(w.objects, kindAndName(o))
	w.model.Delete(o)
	w.note("delete %s", kindAndName(o))
}

// setOrRemove mostly sets.
func (w *events) setOrRemove(o metav1.Object) {
	if old := w.objects[kindAndName(o)]; old != nil && w.one(5) {
		w.remove(old)
		return
	}
	w.set(o)
}

func kindAndName(o metav1.Object) string {
	return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
}

func show(o metav1.Object) string {
	switch o := o.(type) {
	case *corev1.Node:
		return fmt.Sprintf("%s labels %v annotations %v cordon %t", kindAndName(o), o.Labels, o.Annotations, o.Spec.Unschedulable)
	case *corev1.Pod:
		return fmt.Sprintf("%s on %q %s %v", kindAndName(o), o.Spec.NodeName, o.Status.Phase, o.Annotations)
	case *provreq.ProvisioningRequest:
		return fmt.Sprintf("%s %s uid %s %v %v", kindAndName(o), o.Spec.ProvisioningClassName, o.UID, o.Status.Conditions,
			o.Status.ProvisioningClassDetails)
	}
	return kindAndName(o)
}

// event changes one thing at random.
func (w *events) event() {
	if w.timed && w.one(4) {
		c := w.model.clock.(*testingclock.FakePassiveClock)
		c.SetTime(c.Now().Add(pick(w, time.Second, 10*time.Second, 2*time.Minute)))
	}
	switch w.random.IntN(22) {
	case 0, 1, 2:
		w.node()
	case 3, 4:
		w.pod()
	case 5, 6, 7:
		w.request()
	case 8:
		w.template()
	case 9:
		w.group()
	case 10, 11:
		w.machine()
	case 12:
		w.setOrRemove(w.policy())
	case 13:
		w.setOrRemove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pick(w, "a", "b"),
			Labels: map[string]string{"team": pick(w, "red", "blue")}}})
	case 14:
		w.come()
	case 15:
		switch w.random.IntN(6) {
		case 4, 5:
			w.devices()
		case 0:
			w.daemonSet()
		case 1:
			w.setOrRemove(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: int32(w.random.IntN(3))})
		case 2:
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pick(w, "a", "b"), Name: "data"}}
			c.Status.Phase = pick(w, corev1.ClaimBound, corev1.ClaimPending)
			w.setOrRemove(c)
		default:
			name := w.nodeName()
			if w.leaving[name] = !w.leaving[name] && w.objects["*v1.Node /"+name] != nil; !w.leaving[name] {
				delete(w.leaving, name)
			}
			w.model.SetLeaving(name, w.leaving[name])
			w.note("leaving %s %t", name, w.leaving[name])
		}
	default:
		w.settle()
	}
}

// devices changes what a driver publishes for a node, or what claims have allocated.
func (w *events) devices() {
	name := w.nodeName()
	pods := slices.DeleteFunc(slices.Sorted(maps.Keys(w.objects)), func(key string) bool { return !strings.HasPrefix(key, "*v1.Pod ") })
	switch w.random.IntN(6) {
	case 0:
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: pick(w, "gpu", "gpu", "other")}}
		c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: pick(w, "true",
			`device.driver == "d"`)}}}
		if w.one(2) {
			c.Spec.ExtendedResourceName = new(string(gpu))
		}
		w.setOrRemove(c)
	case 1:
		r := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
		r.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{Pool: new(name), Device: new("d-0")}
		r.Spec.Taint = resourcev1.DeviceTaint{Key: "lost", Effect: resourcev1.DeviceTaintEffectNoSchedule}
		w.setOrRemove(r)
	case 2:
		t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: pick(w, "a", "b"), Name: "claims"}}
		t.Spec.Spec = w.claimed()
		w.setOrRemove(t)
	case 3:
		var claims []*resourcev1.ResourceClaim
		for _, key := range slices.Sorted(maps.Keys(w.objects)) {
			if c, ok := w.objects[key].(*resourcev1.ResourceClaim); ok && !slices.ContainsFunc(pods, func(pod string) bool {
				return w.objects[pod].(*corev1.Pod).UID == c.OwnerReferences[0].UID // it goes after its pod
			}) {
				claims = append(claims, c)
			}
		}
		if len(claims) > 0 {
			w.remove(claims[w.random.IntN(len(claims))])
		}
	case 4:
		if len(pods) == 0 {
			return
		}
		p := w.objects[pods[w.random.IntN(len(pods))]].(*corev1.Pod)
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "of-" + string(p.UID)}}
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: p.UID, Controller: new(true)}}
		c.Spec = w.claimed()
		if old, ok := w.objects[kindAndName(c)].(*resourcev1.ResourceClaim); ok {
			c.Spec = old.Spec
		}
		if w.one(2) {
			c.Status.Allocation = &resourcev1.AllocationResult{}
			c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Driver: "d", Pool: name,
				Device: fmt.Sprintf("d-%d", w.random.IntN(4))}}
		}
		w.set(c)
	default:
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, w.random.IntN(2))}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: "d", NodeName: &name,
			Pool: resourcev1.ResourcePool{Name: name, Generation: 1 + w.random.Int64N(2), ResourceSliceCount: 1 + w.random.Int64N(2)}}
		for i := range w.random.IntN(5) {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("d-%d", i)})
		}
		w.setOrRemove(s)
	}
}

func (w *events) claimed() (out resourcev1.ResourceClaimSpec) {
	out.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: pick(w, "gpu", "gpu",
			"other"), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1 + w.random.Int64N(2)}}}
	return out
}

// nodeName is that of a node that is there, or may be.
func (w *events) nodeName() string {
	names := []string{"n0", "n1", "n2"}
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		if n, ok := w.objects[key].(*corev1.Node); ok {
			names = append(names, n.Name)
		}
	}
	return pick(w, names...)
}

// join has a machine that was launched register its node.
func (w *events) join() bool {
	for _, key := range slices.SortedFunc(maps.Keys(w.machines), func(a, b machineKey) int { return strings.Compare(a.name, b.name) }) {
		c := w.machines[key]
		if c.Launch == "" || w.hasNode(c) || c.State != cloudprovider.Running {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Name, UID: types.UID(c.Name),
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
			Labels:            map[string]string{v1alpha1.NodeGroupLabel: c.Group, corev1.LabelTopologyZone: "z"},
			Annotations:       map[string]string{v1alpha1.LaunchAnnotation: c.Launch, v1alpha1.CordonedAnnotation: v1alpha1.CordonJoining}}}
		n.Spec.ProviderID, n.Spec.Unschedulable = c.ProviderID, true
		n.Status.Capacity, n.Status.Allocatable = capacity(4), capacity(4)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.set(n)
		return true
	}
	return false
}

func capacity(gpus int64) corev1.ResourceList {
	return corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI), "pods": resource.MustParse("10"),
		"cpu": resource.MustParse("8")}
}

// node has a node change in one respect, or come or go.
func (w *events) node() {
	name := w.nodeName()
	old, _ := w.objects["*v1.Node /"+name].(*corev1.Node)
	if old == nil {
		if w.one(2) && w.join() {
			return
		}
		w.serial++
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(name, w.serial)),
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
			Labels:            map[string]string{v1alpha1.NodeGroupLabel: pick(w, "spot", "steady"), corev1.LabelTopologyZone: "z"}}}
		n.Status.Capacity, n.Status.Allocatable = capacity(4), capacity(4)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if w.one(2) {
			n.Spec.ProviderID = "kwok://m-" + name
		}
		w.set(n)
		return
	}
	if w.one(6) {
		w.remove(old)
		return
	}
	n := old.DeepCopy()
	switch w.random.IntN(6) {
	case 0:
		n.Status.Conditions[0].Status = pick(w, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse)
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-time.Hour))
	case 1:
		n.Status.Allocatable = capacity(pick[int64](w, 2, 4, 4))
	case 2:
		n.Spec.ProviderID = pick(w, "", "kwok://m-"+name)
	case 3:
		n.Spec.Unschedulable = !n.Spec.Unschedulable
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		delete(n.Annotations, v1alpha1.CordonedAnnotation)
		if w.one(2) {
			n.Annotations[v1alpha1.CordonedAnnotation] = pick(w, v1alpha1.CordonJoining, v1alpha1.CordonBooked, v1alpha1.CordonScalingDown)
		}
	case 4:
		if r := w.anyRequest(); r != nil {
			w.book(n, r, 1+w.random.Int64N(4), w.one(2))
		}
	case 5:
		for label := range n.Annotations {
			if strings.HasPrefix(label, v1alpha1.BookedLabelPrefix) && w.one(2) {
				delete(n.Annotations, label)
				delete(n.Labels, label)
			}
		}
	}
	w.set(n)
}

func (w *events) book(n *corev1.Node, r *provreq.ProvisioningRequest, gpus int64, open bool) {
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	label := state.BookingLabel(r.Name)
	n.Annotations[label] = state.Booking{UID: r.UID, Since: noon.Add(-time.Hour),
		Booked: nodegroups.Resources{gpu: gpus, "pods": gpus}}.Encode()
	if open {
		n.Labels[label] = r.Namespace
	}
}

func (w *events) pod() {
	ns := pick(w, "a", "b")
	name := fmt.Sprintf("p%d", w.random.IntN(6))
	old, _ := w.objects["*v1.Pod "+ns+"/"+name].(*corev1.Pod)
	if old == nil {
		w.serial++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(fmt.Sprint(name, w.serial)),
			CreationTimestamp: metav1.NewTime(noon)}}
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{gpu: *resource.NewQuantity(w.random.Int64N(3), resource.DecimalSI)}}}}
		switch w.random.IntN(4) {
		case 0:
			if w.timed && w.one(2) {
				// Room is kept for those that come in its place.
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", UID: "job", Controller: new(true)}}
				p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: fmt.Sprintf("r%d", w.random.IntN(4))}
				break
			}
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "rs", Controller: new(true)}}
		case 1:
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", UID: "agents", Controller: new(true)}}
		default:
			p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: fmt.Sprintf("r%d", w.random.IntN(4))}
		}
		w.bind(p)
		w.set(p)
		return
	}
	p := old.DeepCopy()
	switch {
	case old.Status.Phase != corev1.PodSucceeded && w.one(3):
		w.remove(old) // of a pod that had succeeded the model remembers what it had of its booking
		return
	case p.Spec.NodeName == "":
		w.bind(p)
	case w.one(3):
		p.DeletionTimestamp = new(metav1.NewTime(noon))
	default:
		p.Status.Phase = pick(w, corev1.PodSucceeded, corev1.PodFailed, corev1.PodRunning)
		if old.Status.Phase == corev1.PodSucceeded || old.Status.Phase == corev1.PodFailed {
			p.Status.Phase = old.Status.Phase
		}
	}
	w.set(p)
}

// come has the pods of a gang bound to the nodes that its request has booked.
func (w *events) come() {
	r := w.anyRequest()
	if r == nil || transaction.StatusOf(r) != transaction.Provisioned {
		return
	}
	pods := 0
	for _, ps := range r.Spec.PodSets {
		pods += int(ps.Count)
	}
	label := state.BookingLabel(r.Name)
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		n, ok := w.objects[key].(*corev1.Node)
		if !ok || n.Labels[label] != r.Namespace {
			continue
		}
		for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
			for i := int64(0); b.UID == r.UID && i < b.Booked[gpu] && pods > 0; i++ {
				pods--
				w.serial++
				name := fmt.Sprintf("g%d", w.serial)
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, UID: types.UID(name),
					CreationTimestamp: metav1.NewTime(noon),
					Annotations:       map[string]string{provreq.ProvisioningRequestPodAnnotationKey: r.Name}}}
				p.Spec.NodeName = n.Name
				p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{gpu: resource.MustParse("1")}}}}
				w.set(p)
			}
		}
	}
}

func (w *events) bind(p *corev1.Pod) {
	p.Status.Conditions, p.Status.NominatedNodeName = nil, ""
	switch w.random.IntN(4) {
	case 0:
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable}}
	case 1:
		p.Status.NominatedNodeName = w.nodeName()
	default:
		p.Spec.NodeName = w.nodeName()
	}
	p.Status.ContainerStatuses = nil
	if w.random.IntN(4) == 0 {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: pick(w, "ErrImagePull", "ContainerCreating")}}}}
	}
}

func (w *events) anyRequest() *provreq.ProvisioningRequest {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		if _, ok := w.objects[key].(*provreq.ProvisioningRequest); ok {
			all = append(all, key)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return w.objects[pick(w, all...)].(*provreq.ProvisioningRequest)
}

// request has one come or go; most of their course is decided, see settle.
func (w *events) request() {
	ns, name := pick(w, "a", "b"), fmt.Sprintf("r%d", w.random.IntN(4))
	old, _ := w.objects["*v1.ProvisioningRequest "+ns+"/"+name].(*provreq.ProvisioningRequest)
	if old == nil {
		w.serial++
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(fmt.Sprint(name, w.serial)),
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute))}}
		r.Spec.ProvisioningClassName = pick(w, transaction.ClassCheckCapacity, transaction.ClassAtomicScaleUp, transaction.ClassAtomicScaleUp)
		for _, t := range []string{"t0", "t1"}[:1+w.random.IntN(2)] {
			r.Spec.PodSets = append(r.Spec.PodSets, provreq.PodSet{PodTemplateRef: provreq.Reference{Name: t}, Count: int32(1 + w.random.IntN(3))})
		}
		if w.one(3) {
			r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamPolicy: "p0"}
		}
		if w.one(2) {
			r.Labels = map[string]string{state.QueueLabel: pick(w, "q0", "q1")}
		}
		if w.one(2) {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload", UID: "w", Controller: new(true)}}
		}
		w.set(r)
		return
	}
	r := old.DeepCopy()
	if w.one(6) {
		w.dropMachinesOf(r.UID)
		w.remove(old)
		return
	}
	condition := func(kind, reason string) {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason})
	}
	switch w.random.IntN(4) {
	case 0:
		r.Labels = map[string]string{state.QueueLabel: pick(w, "q0", "q1")}
	case 1:
		r.DeletionTimestamp = new(metav1.NewTime(noon))
		w.dropMachinesOf(r.UID)
		w.set(r)
		if transaction.LetsGo(r) {
			delete(w.objects, kindAndName(r))
		}
		return
	case 2:
		if w.one(2) {
			condition(pick(w, provreq.BookingExpired, provreq.Failed), "Expired")
		} else {
			condition(provreq.CapacityRevoked, "Revoked")
		}
	}
	w.set(r)
}

// dropMachinesOf a request that goes: what namespace they count for then depends on what
// was known before.
func (w *events) dropMachinesOf(uid types.UID) {
	for key, c := range w.machines {
		if state.TokenUID(c.Launch) == uid {
			for _, o := range w.objects {
				if n, ok := o.(*corev1.Node); ok && n.Spec.ProviderID == c.ProviderID {
					w.remove(n)
				}
			}
			delete(w.machines, key)
			c.State = cloudprovider.Gone
			w.model.SetMachine(c)
			w.note("gone %v", key)
		}
	}
}

func (w *events) template() {
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: pick(w, "a", "b"), Name: pick(w, "t0", "t1")}}
	t.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu: *resource.NewQuantity(1+w.random.Int64N(4), resource.DecimalSI)}}}}
	switch w.random.IntN(6) {
	case 0:
		t.Template.Spec.PriorityClassName = "urgent"
	case 1:
		t.Template.Spec.NodeSelector = map[string]string{v1alpha1.NodeGroupLabel: "spot"}
	case 2:
		t.Template.Spec.ActiveDeadlineSeconds = new(int64(3600))
	case 3:
		t.Template.Spec.NodeSelector = map[string]string{"disk": "fast"}
	}
	if w.one(6) {
		t.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		t.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: new("claims")}}
	}
	if w.one(8) {
		t.Template.Spec.Volumes = []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	if w.one(5) {
		w.setOrRemove(t)
	} else {
		w.set(t)
	}
}

func (w *events) group() {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: pick(w, "spot", "steady")}}
	g.Spec.CapacityType = v1alpha1.OnDemand
	if g.Name == "spot" {
		g.Spec.CapacityType = v1alpha1.Spot
	}
	g.Spec.Zone, g.Spec.MaxNodes = "z", int32(w.random.IntN(5))
	g.Spec.Template.Capacity = capacity(4)
	g.Spec.PricePerHour = new(resource.MustParse(pick(w, "10", "20")))
	w.setOrRemove(g)
	if now, ok := w.objects[kindAndName(g)].(*v1alpha1.NodeGroup); ok {
		w.priced[g.Name] = now
	}
	w.model.Snapshot(noon)
}

// machine has a machine of a node, or of an attempt, come or go on its way.
func (w *events) machine() {
	name := w.nodeName()
	c := cloudprovider.Machine{Name: "m-" + name, Group: pick(w, "spot", "steady"), ProviderID: "kwok://m-" + name}
	for key, known := range w.machines {
		if key.name == c.Name {
			c = known
		}
	}
	old, known := w.machines[machineKey{c.Group, c.Name}]
	switch {
	case !known && w.one(2):
		for _, key := range slices.Sorted(maps.Keys(w.objects)) {
			if r, ok := w.objects[key].(*provreq.ProvisioningRequest); ok && w.one(2) {
				if a := transaction.AttemptOf(r); a.Number > 0 {
					c.Launch = state.Token(r.UID, a.Number)
				}
			}
		}
		c.State = cloudprovider.Running
	case !known:
		c.State = cloudprovider.Running
	default:
		c.State = max(old.State, pick(w, old.State, cloudprovider.Terminated, cloudprovider.Gone))
		if c.State == cloudprovider.Gone && w.hasNode(c) {
			c.State = cloudprovider.Terminated // of what is gone only a model that has seen it knows that it is over
		}
	}
	w.putMachine(c)
}

func (w *events) hasNode(c cloudprovider.Machine) bool {
	for _, o := range w.objects {
		if n, ok := o.(*corev1.Node); ok && n.Spec.ProviderID == c.ProviderID {
			return true
		}
	}
	return false
}

func (w *events) putMachine(c cloudprovider.Machine) {
	key := machineKey{c.Group, c.Name}
	if w.machines[key] = c; c.State == cloudprovider.Gone {
		delete(w.machines, key)
	}
	w.model.SetMachine(c)
	w.note("machine %+v", c)
}

func (w *events) policy() *v1alpha1.CapacityPolicy {
	p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: pick(w, "p0", v1alpha1.DefaultPolicy)}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	if w.one(2) {
		p.Spec.NamespaceSelector = selector
	}
	if w.one(2) {
		p.Spec.Limits = &v1alpha1.CapacityLimits{Machines: new(int32(w.random.IntN(5))), NamespaceSelector: pick(w, nil, selector)}
	}
	if w.one(2) {
		p.Spec.Budgets = []v1alpha1.CapacityBudget{{Name: "b", USD: resource.MustParse(pick(w, "100", "1000")), Period: v1alpha1.BudgetDay,
			NamespaceSelector: pick(w, nil, selector)}}
		if w.one(2) {
			p.Spec.Budgets[0].Queues = []string{"q0"}
		}
	}
	if w.one(4) {
		p.Spec.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.OnDemand}
	}
	return p
}

func (w *events) daemonSet() {
	w.serial++
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "agents", UID: "agents", Generation: int64(w.serial),
		CreationTimestamp: metav1.NewTime(noon)}}
	amount := *resource.NewQuantity(w.random.Int64N(2), resource.DecimalSI)
	name := corev1.ResourceCPU
	if w.serial%4 == 0 { // it takes no room where machines are held
		name = gpu
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{name: amount}}}}
	w.setOrRemove(d)
}

// underway is a step that has been decided.
type underway struct {
	Entry
	transaction.Step
}

func (u *underway) assumption() Assumption {
	return Assumption{Bookings: u.Book, Attempt: u.Attempt}
}

// decide has the model's due requests decided, as the controller does, until only those
// are due that have a step under way.
func (w *events) decide(steps map[transaction.Action]int) {
	for again := true; again; {
		again = false
		for _, e := range w.model.Due(nil) {
			if _, busy := w.underway[e.UID]; busy {
				continue // its end has it decided again
			}
			step := next(w.model, e)
			if steps[step.Do]++; !acts(e, step) && (step.Do != transaction.Report || step.Condition.Message == e.Provisioned.Message) {
				continue
			}
			again = true
			u := underway{e, step}
			w.underway[e.UID] = u
			w.model.Assume(e.UID, u.assumption())
			w.note("decide %s %s book %v unbook %v %+v", e, step.Do, step.Book, step.Unbook, step.Attempt)
		}
	}
}

// acts reports whether the step does more than to wait, or to say why.
func acts(e Entry, s transaction.Step) bool {
	return s.Do != transaction.Rest && (s.Do != transaction.Report || len(s.Unbook) > 0 || s.Attempt.Phase != e.Attempt.Phase)
}

func next(m *Model, e Entry) transaction.Step {
	return transaction.Next(e.Request, m.View(m.Snapshot(m.clock.Now()), e.Request))
}

// asleep names a request that is not due and could proceed.
func (w *events) asleep() string {
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		r, ok := w.objects[key].(*provreq.ProvisioningRequest)
		if !ok {
			continue
		}
		e, ok := w.model.Request(r.UID)
		if _, busy := w.underway[r.UID]; !ok || busy {
			continue
		}
		if step := next(w.model, e); acts(e, step) {
			return fmt.Sprintf("request %s is not due and could %s: %s", e, step.Do, step.Condition.Message)
		}
	}
	return ""
}

// settle carries out a step, or has it fail.
func (w *events) settle() {
	uids := slices.Sorted(maps.Keys(w.underway))
	if len(uids) == 0 {
		return
	}
	uid := pick(w, uids...)
	u := w.underway[uid]
	delete(w.underway, uid)
	if w.one(8) {
		w.note("step %s of %s fails", u.Do, u.Entry)
	} else {
		w.carryOut(&u)
	}
	w.model.Settle(uid)
	w.note("settled %s", u.Entry)
}

func (w *events) carryOut(u *underway) {
	r, _ := w.objects[kindAndName(u.Object)].(*provreq.ProvisioningRequest)
	if r == nil || r.UID != u.UID {
		return
	}
	for _, p := range u.Book {
		if n, ok := w.objects["*v1.Node /"+p.Node].(*corev1.Node); ok {
			n = n.DeepCopy()
			w.book(n, r, p.Requests[gpu], u.Open)
			if p.Whole && !n.Spec.Unschedulable {
				n.Spec.Unschedulable, n.Annotations[v1alpha1.CordonedAnnotation] = true, v1alpha1.CordonBooked
			}
			w.set(n)
		}
	}
	for _, name := range u.Unbook {
		if n, ok := w.objects["*v1.Node /"+name].(*corev1.Node); ok {
			n = n.DeepCopy()
			if n.Annotations[v1alpha1.CordonedAnnotation] == v1alpha1.CordonBooked {
				n.Spec.Unschedulable = false
				delete(n.Annotations, v1alpha1.CordonedAnnotation)
			}
			if !u.KeepLabels {
				delete(n.Annotations, state.BookingLabel(r.Name))
				delete(n.Labels, state.BookingLabel(r.Name))
			}
			w.set(n)
		}
	}
	for _, c := range u.Launch {
		for range c.Count {
			w.serial++
			name := fmt.Sprintf("x%d", w.serial)
			w.putMachine(cloudprovider.Machine{Name: name, Group: c.Group, ProviderID: "kwok://" + name, Launch: c.Token,
				State: cloudprovider.Running})
		}
	}
	for _, c := range u.Terminate {
		c.State = cloudprovider.Terminated
		if _, known := w.machines[machineKey{c.Group, c.Name}]; known {
			w.putMachine(c)
		}
	}
	w.model.LossReported(u.UID, u.Lost, false)
	if u.Do == transaction.Book || u.Do == transaction.LaunchMachines || u.Do == transaction.Terminate {
		return
	}
	if u.Do == transaction.LookUp {
		u.Step = transaction.NoTemplates(u.Request, u.Missing)
	}
	r = r.DeepCopy()
	for _, c := range u.Conditions() {
		c.LastTransitionTime = metav1.NewTime(noon)
		meta.SetStatusCondition(&r.Status.Conditions, c)
	}
	if u.Attempt.Number > 0 {
		a := u.Attempt
		if a.Failure != nil {
			a.Failure = &transaction.AttemptFailure{Message: a.Failure.Message} // what it teaches would be known to a rebuilt model alone
		}
		if r.Status.ProvisioningClassDetails == nil {
			r.Status.ProvisioningClassDetails = map[string]provreq.Detail{}
		}
		r.Status.ProvisioningClassDetails[transaction.AttemptDetail] = provreq.Detail(a.Encode())
		if u.Purchases != nil {
			r.Status.ProvisioningClassDetails[purchases.Detail] = provreq.Detail(u.Purchases.Encode())
		}
	}
	w.set(r)
}

// deriveAll has all views derived again.
func (m *Model) deriveAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark := func(k kind, group, name string) {
		m.dirty.mark(ref{k, group, name}, span{m.clock.Now(), m.clock.Now()})
	}
	for uid := range m.requests.byUID {
		mark(requestView, "", string(uid))
		mark(specView, "", string(uid))
		m.requests.byUID[uid].read = nil
	}
	for name := range m.groups.objects {
		mark(groupView, "", name)
		mark(priceView, "", name)
	}
	for name := range m.nodes.byName {
		mark(nodeView, "", name)
	}
	for key := range m.machines.byKey {
		mark(machineView, key.group, key.name)
	}
	for k := groupsView; k < dueView; k++ {
		mark(k, "", "")
	}
}

// rebuilt is a model that gets the objects as they are, in any order.
func (w *events) rebuilt() *Model {
	m, _ := newModel()
	for name, g := range w.priced {
		if m.Set(g); w.objects[kindAndName(g)] == nil {
			m.Snapshot(noon)
			m.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	m.machines.wentEarly = maps.Clone(w.model.machines.wentEarly) // no object tells of it
	m.requests.carried = maps.Clone(w.model.requests.carried)
	var tells []func()
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		tells = append(tells, func() { m.Set(w.objects[key]) })
	}
	for _, c := range w.machines {
		tells = append(tells, func() { m.SetMachine(c) })
	}
	r := rand.New(rand.NewPCG(1, uint64(len(w.log))))
	r.Shuffle(len(tells), func(i, k int) { tells[i], tells[k] = tells[k], tells[i] })
	for _, tell := range tells {
		tell()
	}
	m.machines.bought = maps.Clone(w.model.machines.bought) // no object tells of those that have gone
	for uid, u := range w.underway {
		m.Assume(uid, u.assumption())
	}
	for name, n := range w.model.nodes.byName {
		if n.object != nil {
			m.nodes.byName[name].lifted = n.lifted // no object tells of it
		}
	}
	for name := range w.leaving {
		m.SetLeaving(name, true)
	}
	return m
}

// picture is all that the model says that does not depend on what happened before.
func picture(m *Model) map[string]string {
	out := map[string]string{}
	now := m.clock.Now()
	s := m.Snapshot(now)
	for n := range s.Nodes.All() {
		out["node "+n.Name] = showNode(n)
	}
	for i := range s.Groups {
		out["group "+s.Groups[i].Name] = fmt.Sprintf("%+v", s.Groups[i])
	}
	for _, d := range s.DaemonSets {
		out["daemonSet "+d.Name] = fmt.Sprint(d.UID, d.Requests)
	}
	for _, b := range s.Budgets {
		covers := ""
		for _, ns := range []string{"a", "b"} {
			covers += fmt.Sprint(b.Covers(state.Tenant{Namespace: ns}), b.Covers(state.Tenant{Namespace: ns, Queue: "q1"}))
		}
		b.Covers, b.Spent, b.Vain.Meter = nil, b.Spent.Until(now), b.Vain.Until(now)
		b.Vain.MicroUSDPerHour = 0 // only a model that has seen the launch knows that it was in vain
		out["budget "+b.Policy+"/"+b.Name] = fmt.Sprintf("%+v %s", b, covers)
	}
	out["charges"] = fmt.Sprintf("%+v", s.Charges)
	f := m.Fleet(now)
	out["requests"] = fmt.Sprint(slices.Sorted(maps.Keys(f.Requests)))
	out["in flight"] = fmt.Sprint(slices.Sorted(maps.Keys(f.InFlight)))
	out["unregistered"] = fmt.Sprintf("%+v", f.Unregistered)
	out["launching"] = fmt.Sprint(m.Launching())
	out["census"] = fmt.Sprint(m.Census(noon))
	for uid := range f.Requests {
		e, _ := m.Request(uid)
		v := m.View(s, e.Request)
		v.Lost, v.Spared = nil, nil // only a model that has seen the loss knows of it
		r := *e.Request
		r.Gang.PodSets = nil
		out["request "+e.String()] = fmt.Sprintf("%+v machines %+v active %d key %s has %+v limits %d stranded %+v blocked %+v step %s", r,
			v.Machines, v.Active, v.KeyTaken, v.Has, len(v.Limits), v.Stranded, v.Blocked, stepOf(transaction.Next(e.Request, v)))
		active, ended := f.Consumers(e.Namespace, e.Gang.Key)
		out["consumers "+e.String()] = fmt.Sprint(active, ended)
	}
	for _, p := range m.Policies() {
		out["budgets of "+p.Name] = fmt.Sprintf("%+v", m.Reports(p, now))
	}
	for _, g := range []string{"spot", "steady"} {
		out["learned of "+g] = fmt.Sprintf("%+v", m.Learned(g))
	}
	return out
}

func stepOf(s transaction.Step) string {
	return fmt.Sprintf("%s %s book %v unbook %v launch %v", s.Do, s.Condition.Message, s.Book, s.Unbook, s.Launch)
}

func showNode(n *state.Node) string {
	o := *n
	machine, running := cloudprovider.Machine{}, []string{}
	if n.Machine != nil {
		machine = *n.Machine
	}
	for _, r := range n.Running {
		running = append(running, fmt.Sprintf("%+v", *r))
	}
	var strays []string
	for i := range n.Strays {
		strays = append(strays, n.Strays[i].String())
	}
	o.Machine, o.Running, o.Strays = nil, nil, nil
	slices.Sort(running)
	return fmt.Sprintf("%+v machine %+v running %v strays %v", o, machine, running, strays)
}
