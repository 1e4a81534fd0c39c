package simulation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
)

// Annotations of the simulated pods: for how long they run, that they fail.
const (
	runForAnnotation = "simulation/run-for"
	failsAnnotation  = "simulation/fails"
	// budgetAnnotation stands for a PodDisruptionBudget that allows no disruption.
	budgetAnnotation = "simulation/budget"
)

// offerPod is what the scheduler, a kubelet and the collector of pods do to a pod.
func (w *world) offerPod(p *corev1.Pod, offer func(option)) {
	name := p.Namespace + "/" + p.Name
	node := find[*corev1.Node](w.store, "", p.Spec.NodeName)
	w.offerClaims(p, offer)
	switch {
	case p.Spec.NodeName == "" && p.DeletionTimestamp != nil:
		offer(option{key: "pod " + name + " goes", within: kubeletTime, do: func() { _ = w.store.delete(p) }})
	case p.Spec.NodeName == "":
		w.offerBinding(p, offer)
	case node == nil:
		offer(option{key: "the collector takes pod " + name, within: collectorTime, do: func() { _ = w.store.delete(p) }})
	case outlives(node):
		if p.DeletionTimestamp == nil && !finished(p) {
			since := node.Status.Conditions[0].LastTransitionTime
			offer(option{key: "pod " + name + " is evicted for its node", at: since.Add(evictTime), within: collectorTime,
				do: func() { change(w.store, p, markDeleted) }})
		}
	case p.DeletionTimestamp != nil:
		offer(option{key: "pod " + name + " goes", within: agentTime, do: func() { _ = w.store.delete(p) }})
	case finished(p) || !ready(node):
	case p.Status.Phase != corev1.PodRunning:
		offer(option{key: "pod " + name + " starts", within: kubeletTime, do: func() { w.startPod(p, node) }})
	case p.Annotations[runForAnnotation] != "":
		run, _ := time.ParseDuration(p.Annotations[runForAnnotation])
		offer(option{key: "pod " + name + " ends", at: p.Status.StartTime.Add(run), within: kubeletTime, do: func() {
			change(w.store, p, func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodSucceeded
				if p.Annotations[failsAnnotation] != "" {
					p.Status.Phase = corev1.PodFailed
				}
			})
		}})
	}
}

func (w *world) startPod(p *corev1.Pod, n *corev1.Node) {
	change(w.store, p, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		now := metav1.NewTime(moment(time.Now()))
		p.Status.StartTime = &now
	})
	if p.Labels[kwokv1alpha1.DevicePluginLabel] == "true" {
		change(w.store, n, func(n *corev1.Node) {
			n.Annotations[kwokv1alpha1.DevicePluginStartedAnnotation] = time.Now().UTC().Format(metav1.RFC3339Micro)
		})
	}
}

// offerBinding is the scheduler: it assumes a pod on a node where it may run, and
// binds it a moment later, whatever has happened to the node meanwhile.
func (w *world) offerBinding(p *corev1.Pod, offer func(option)) {
	name := p.Namespace + "/" + p.Name
	if chosen, ok := w.assumed[p.UID]; ok {
		if len(w.pending[p.UID]) > 0 {
			offer(option{key: "the claims of pod " + name + " are allocated on " + chosen, within: schedulerTime, do: func() { w.bindClaims(p) }})
			return
		}
		offer(option{key: "pod " + name + " is bound to " + chosen, within: schedulerTime, do: func() {
			delete(w.assumed, p.UID)
			if find[*corev1.Node](w.store, "", chosen) != nil {
				change(w.store, p, func(p *corev1.Pod) { bind(p, chosen) })
			} else {
				w.unbindClaims(p)
			}
		}})
		return
	}
	var fits []string
	for _, n := range all[*corev1.Node](w.store) {
		if w.fits(p, n) {
			fits = append(fits, n.Name)
		}
	}
	if len(fits) > 0 {
		offer(option{key: "pod " + name + " is scheduled", within: schedulerTime, do: func() {
			i := 0
			if !w.orderly {
				i = w.random.IntN(len(fits))
			}
			w.assumed[p.UID] = fits[i]
			if devices, _ := w.takesDevices(p, find[*corev1.Node](w.store, "", fits[i])); len(devices) > 0 {
				w.pending[p.UID], w.worsened[fits[i]] = devices, time.Now()
			}
		}})
	}
}

// fits says that the pod may run on the node beside the pods that are bound to it
// or assumed there.
func (w *world) fits(p *corev1.Pod, n *corev1.Node) bool {
	taints := without(n.Spec.Taints, unschedulable)
	if n.Spec.Unschedulable {
		taints = append(taints, corev1.Taint{Key: unschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if !ready(n) || !selects(p.Spec.NodeSelector, n.Labels) || !tolerates(p.Spec.Tolerations, taints) {
		return false
	}
	free := nodegroups.ResourcesFrom(n.Status.Allocatable)
	for _, o := range all[*corev1.Pod](w.store) {
		if (o.Spec.NodeName == n.Name || w.assumed[o.UID] == n.Name) && !finished(o) {
			free.Sub(roomOf(o), 1)
		}
	}
	room := roomOf(p)
	if w.claimed(n, gpu) {
		delete(room, gpu)
	}
	if _, _, short := free.Short(room); short {
		return false
	}
	if !w.withClaims {
		return true
	}
	_, ok := w.takesDevices(p, n)
	return ok
}

// roomOf is what a pod takes of its node, itself included.
func roomOf(p *corev1.Pod) nodegroups.Resources {
	r := nodegroups.ResourcesFrom(resource.PodRequests(p, resource.PodResourcesOptions{}))
	r[corev1.ResourcePods]++
	return r
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if v, ok := labels[key]; !ok || v != value {
			return false
		}
	}
	return true
}

func tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	for _, taint := range taints {
		if !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint.Key || t.Key == "" && t.Operator == corev1.TolerationOpExists) && (t.Effect == "" || t.Effect == taint.Effect) &&
				(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
		}) {
			return false
		}
	}
	return true
}

// moment is a time as objects keep it.
func moment(t time.Time) time.Time { return t.Truncate(time.Second) }

// finished says that a pod has ended.
func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
