package model

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
)

// pod is what counts of a pod.
type pod struct {
	version metav1.Object
	name    string
	node    string
	// requests is the room that it takes on its node.
	requests nodegroups.Resources
	running  *fit.Running
	finished bool
	// terminating pods have been deleted and are not gone yet.
	terminating bool
	// static pods come and go with their node.
	static bool
	// movable is the pod itself, if it may be moved for the sake of its machine.
	movable *corev1.Pod
	// succeeded pods have used up their part of a booking, also when deleted.
	succeeded, deleted bool
	// bound, rather than only nominated; and when, to the second.
	bound    bool
	boundAt  time.Time
	daemon   types.UID
	consumes consumerKey
	// madeAgain: a controller makes another one when it has ended.
	madeAgain bool
	// stranded: kube-scheduler has found no room for it.
	stranded bool
}

// consumeAnnotations name the request whose capacity a pod consumes; the second
// is the older spelling.
var consumeAnnotations = []string{
	provreq.ProvisioningRequestPodAnnotationKey,
	"cluster-autoscaler.kubernetes.io/consume-provisioning-request",
}

func readPod(p *corev1.Pod) *pod {
	out := &pod{
		version:   &metav1.ObjectMeta{ResourceVersion: p.ResourceVersion},
		name:      p.Name,
		node:      p.Spec.NodeName,
		bound:     p.Spec.NodeName != "",
		finished:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		succeeded: p.Status.Phase == corev1.PodSucceeded,

		terminating: p.DeletionTimestamp != nil,
		static:      p.Annotations[corev1.MirrorPodAnnotationKey] != "",
		madeAgain:   isMadeAgain(p),
	}
	if !out.bound {
		out.node = p.Status.NominatedNodeName
	}
	out.boundAt = p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type != corev1.PodScheduled:
		case c.Status == corev1.ConditionTrue:
			out.boundAt = c.LastTransitionTime.Time
		default:
			out.stranded = c.Reason == corev1.PodReasonUnschedulable && out.node == "" && !out.finished && !out.terminating
		}
	}
	if out.node != "" || out.stranded {
		out.requests = fit.PodRequests(p)
	}
	if out.node != "" {
		out.running = fit.ReadRunning(p)
	}
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "DaemonSet" {
		out.daemon = owner.UID
	}
	for _, key := range consumeAnnotations {
		if name, ok := p.Annotations[key]; ok {
			out.consumes = consumerKey{p.Namespace, name}
			break
		}
	}
	if out.bound && out.consumes.name == "" && state.Movable(p) {
		out.movable = p
	}
	return out
}

// endOf is when a pod that has finished did so, by its kubelet.
func endOf(p *corev1.Pod) (at time.Time) {
	at = p.CreationTimestamp.Time
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// isMadeAgain reports whether a controller makes another pod when this one has ended.
func isMadeAgain(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind != "DaemonSet"
}

// counts reports whether the pod has not finished and does not come and go with its node.
func (p *pod) counts() bool { return !p.finished && !p.static && p.daemon == "" }
