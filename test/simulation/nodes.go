package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// offerMachine is what KWOK's stages do to a machine.
func (w *world) offerMachine(m *kwokv1alpha1.Machine, offer func(option)) {
	launched := m.Spec.LaunchedAt.Time
	set := func(phase kwokv1alpha1.MachinePhase, reason string) func() {
		return func() {
			change(w.store, m, func(m *kwokv1alpha1.Machine) {
				m.Status.Phase, m.Status.Reason = phase, reason
				now := metav1.NewTime(moment(time.Now()))
				if phase == kwokv1alpha1.MachineRunning {
					m.Status.RegisteredAt = &now
				} else {
					m.Status.TerminatedAt = &now
				}
			})
		}
	}
	switch {
	case m.Status.Phase == kwokv1alpha1.MachineTerminated:
		offer(option{key: "the cloud forgets machine " + m.Name, at: m.Status.TerminatedAt.Add(time.Hour), within: kubeletTime,
			do: func() { _ = w.store.delete(m) }})
	case m.Status.Phase == kwokv1alpha1.MachineRunning:
		if d := m.Spec.ReclaimAfter; d != nil {
			offer(option{key: "the cloud reclaims machine " + m.Name, at: m.Status.RegisteredAt.Add(d.Duration), within: kubeletTime,
				do: set(kwokv1alpha1.MachineTerminated, kwokv1alpha1.ReasonSpotReclaimed)})
		}
	case m.Spec.DieAfter != nil:
		offer(option{key: "machine " + m.Name + " dies", at: launched.Add(m.Spec.DieAfter.Duration), within: kubeletTime,
			do: set(kwokv1alpha1.MachineTerminated, kwokv1alpha1.ReasonBootFailed)})
	case find[*corev1.Node](w.store, "", m.Name) == nil:
		offer(option{key: "machine " + m.Name + " registers", at: launched.Add(m.Spec.BootDelay.Duration), within: kubeletTime,
			do: func() { w.register(m) }})
	default:
		offer(option{key: "machine " + m.Name + " runs", within: kubeletTime, do: set(kwokv1alpha1.MachineRunning, "")})
	}
}

// register registers the machine's node, with properties that its NodeGroup does not declare.
func (w *world) register(m *kwokv1alpha1.Machine) {
	n := nodeOf(m)
	if _, tainted := w.undeclared[m.Spec.Group]; tainted {
		n.Spec.Taints = append(n.Spec.Taints, undeclaredTaint)
		w.feature("node with an undeclared taint")
	}
	w.drawDriverFault(n)
	w.create(n)
}

// nodeOf is what the machine registers.
func nodeOf(m *kwokv1alpha1.Machine) *corev1.Node {
	spec := m.Spec.Node.DeepCopy()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Labels: spec.Labels, Annotations: spec.Annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: kwokv1alpha1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}},
	}}
	if len(spec.Devices) > 0 {
		devices, _ := json.Marshal(spec.Devices) // plain values
		n.Annotations[kwokv1alpha1.DevicesAnnotation] = string(devices)
		n.Annotations[kwokv1alpha1.DeviceDelayAnnotation] = spec.DeviceDelay.Duration.String()
		if gap := spec.DevicesVanish; gap != nil {
			n.Annotations[kwokv1alpha1.VanishAfterAnnotation] = gap.After.Duration.String()
			n.Annotations[kwokv1alpha1.VanishForAnnotation] = gap.For.Duration.String()
		}
	}
	if d := m.Spec.ReclaimAfter; d != nil {
		n.Annotations[kwokv1alpha1.ReclaimAtAnnotation] = time.Now().Add(d.Duration).UTC().Format(metav1.RFC3339Micro)
	}
	n.Spec.ProviderID = fmt.Sprintf("kwok://%s/%s", m.Spec.Group, m.Name)
	n.Spec.Taints = spec.Taints
	n.Spec.Unschedulable = spec.Unschedulable
	if spec.Unschedulable {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: unschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	n.Status.Capacity, n.Status.Allocatable = spec.Capacity, spec.Allocatable
	setReady(n, corev1.ConditionTrue)
	return n
}

func setReady(n *corev1.Node, status corev1.ConditionStatus) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status,
		LastTransitionTime: metav1.NewTime(moment(time.Now()))}}
}

func ready(n *corev1.Node) bool {
	return len(n.Status.Conditions) > 0 && n.Status.Conditions[0].Status == corev1.ConditionTrue
}

// offerNode is what happens on a node, and to one.
func (w *world) offerNode(n *corev1.Node, offer func(option)) {
	end, what := func() { _ = w.store.delete(n) }, "the collector takes node "+n.Name
	if w.outlive[n.Labels[v1alpha1.NodeGroupLabel]] {
		end, what = func() { w.abandon(n) }, "the kubelet of node "+n.Name+" falls silent"
	}
	for _, owner := range n.OwnerReferences {
		if find[*kwokv1alpha1.Machine](w.store, "", owner.Name) == nil {
			offer(option{key: what, within: collectorTime, do: end})
			return
		}
	}
	if at, err := time.Parse(time.RFC3339, n.Annotations[kwokv1alpha1.ReclaimAtAnnotation]); err == nil && !outlives(n) {
		offer(option{key: "node " + n.Name + " is reclaimed", at: at, within: kubeletTime, do: end})
	}
	if pause := w.undeclared[n.Labels[v1alpha1.NodeGroupLabel]]; pause > 0 && slices.Contains(n.Spec.Taints, undeclaredTaint) {
		offer(option{key: "node " + n.Name + " loses its undeclared taint", at: n.CreationTimestamp.Add(pause), within: agentTime, do: func() {
			change(w.store, n, func(n *corev1.Node) { n.Spec.Taints = without(n.Spec.Taints, undeclaredTaint.Key) })
		}})
	}
	cordoned := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == unschedulable })
	if cordoned != n.Spec.Unschedulable {
		offer(option{key: "the taint of node " + n.Name + " follows its cordon", within: kubeletTime, do: func() {
			change(w.store, n, func(n *corev1.Node) { taintCordon(n) })
		}})
	}
	if i := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == startupTaint.Key }); i >= 0 {
		offer(option{key: "the network of node " + n.Name + " is up", within: agentTime, do: func() {
			change(w.store, n, func(n *corev1.Node) { n.Spec.Taints = without(n.Spec.Taints, startupTaint.Key) })
		}})
	}
	if outlives(n) {
		return
	}
	w.offerDriver(n, offer)
	for _, d := range all[*appsv1.DaemonSet](w.store) {
		w.offerDaemon(n, d, offer)
	}
	w.offerDevices(n, offer)
	w.offerLabels(n, offer)
}

// abandon leaves a node behind that has outlived its machine: nothing but Muster deletes it.
func (w *world) abandon(n *corev1.Node) {
	w.feature("node outlives its machine")
	change(w.store, n, func(n *corev1.Node) {
		n.OwnerReferences = nil
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, kwokv1alpha1.MachineGoneAnnotation, "true")
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
		setReady(n, corev1.ConditionUnknown)
	})
}

// outlives reports whether the node has outlived its machine.
func outlives(n *corev1.Node) bool { return n.Annotations[kwokv1alpha1.MachineGoneAnnotation] != "" }

// judgeCordon: Muster neither lifts a human's cordon nor marks it as its own.
func (w *world) judgeCordon(o client.Object, deleted bool) {
	n, ok := o.(*corev1.Node)
	if !ok || !w.cordoned[n.Name] {
		return
	}
	if deleted {
		delete(w.cordoned, n.Name)
	} else if _, marked := n.Annotations[v1alpha1.CordonedAnnotation]; marked || !n.Spec.Unschedulable {
		w.failure = fmt.Errorf("node %s was cordoned by a human, and now it is cordoned %t, with Muster's mark %t", n.Name,
			n.Spec.Unschedulable, marked)
	}
}

func taintCordon(n *corev1.Node) {
	n.Spec.Taints = without(n.Spec.Taints, unschedulable)
	if n.Spec.Unschedulable {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: unschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
}

func without(taints []corev1.Taint, key string) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == key })
}

// offerDevices has the devices of a node appear once their plugin has started.
func (w *world) offerDevices(n *corev1.Node, offer func(option)) {
	started, err := time.Parse(time.RFC3339, n.Annotations[kwokv1alpha1.DevicePluginStartedAnnotation])
	if err != nil {
		return
	}
	var devices corev1.ResourceList
	if json.Unmarshal([]byte(n.Annotations[kwokv1alpha1.DevicesAnnotation]), &devices) != nil {
		return
	}
	delay, _ := time.ParseDuration(n.Annotations[kwokv1alpha1.DeviceDelayAnnotation])
	for name := range devices {
		if _, there := n.Status.Allocatable[name]; there {
			w.offerVanishing(n, devices, started.Add(delay), offer)
			return
		}
	}
	offer(option{key: "node " + n.Name + " gets its devices", at: started.Add(delay), within: kubeletTime, do: func() {
		change(w.store, n, func(n *corev1.Node) {
			for name, amount := range devices {
				n.Status.Capacity[name], n.Status.Allocatable[name] = amount, amount
			}
		})
	}})
}

// offerVanishing has the devices of a node, which came at a time, vanish for a while.
func (w *world) offerVanishing(n *corev1.Node, devices corev1.ResourceList, came time.Time, offer func(option)) {
	after, err := time.ParseDuration(n.Annotations[kwokv1alpha1.VanishAfterAnnotation])
	if err != nil {
		return
	}
	set := func(vanished string, amount func(resource.Quantity) resource.Quantity) func() {
		return func() {
			change(w.store, n, func(n *corev1.Node) {
				n.Annotations[kwokv1alpha1.VanishedAnnotation] = vanished
				for name, all := range devices {
					n.Status.Capacity[name], n.Status.Allocatable[name] = amount(all), amount(all)
				}
			})
		}
	}
	switch n.Annotations[kwokv1alpha1.VanishedAnnotation] {
	case "":
		offer(option{key: "the devices of node " + n.Name + " vanish", at: came.Add(after), within: kubeletTime,
			do: set("true", func(resource.Quantity) resource.Quantity { return resource.Quantity{} })})
	case "true":
		pause, _ := time.ParseDuration(n.Annotations[kwokv1alpha1.VanishForAnnotation])
		offer(option{key: "node " + n.Name + " has its devices back", at: came.Add(after + pause), within: kubeletTime,
			do: set("over", func(all resource.Quantity) resource.Quantity { return all })})
	}
}

// offerDaemon has a DaemonSet's pod appear on the node, bound.
func (w *world) offerDaemon(n *corev1.Node, d *appsv1.DaemonSet, offer func(option)) {
	spec := d.Spec.Template.Spec
	name := d.Name + "-" + n.Name
	if !selects(spec.NodeSelector, n.Labels) || find[*corev1.Pod](w.store, d.Namespace, name) != nil {
		return
	}
	tolerations := append(slices.Clone(spec.Tolerations), corev1.Toleration{Key: unschedulable, Operator: corev1.TolerationOpExists})
	if !tolerates(tolerations, n.Spec.Taints) || !ready(n) {
		return
	}
	offer(option{key: "daemon pod " + name + " is bound", within: agentTime, do: func() {
		yes := true
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: name, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: d.Name, UID: d.UID, Controller: &yes}},
		}, Spec: *spec.DeepCopy()}
		p.Spec.Tolerations = tolerations
		bind(p, n.Name)
		w.create(p)
	}})
}

func bind(p *corev1.Pod, node string) {
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(moment(time.Now())),
	})
}
