package state

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/text"
)

// Pod has what counts of a Pod.
type Pod struct {
	Version metav1.Object
	Name    string
	Node    string
	// Requests is what it requests of its node.
	Requests nodegroups.Resources
	// claimed is the part of the requests that the pod's claims take.
	claimed  nodegroups.Resources
	Running  *fit.Running
	Finished bool
	// Terminating pods have been deleted and are not gone yet.
	Terminating bool
	// Static pods come and go with their node.
	Static bool
	// Movable is the pod itself, if it may be evicted for scale-down.
	Movable *corev1.Pod
	// Succeeded pods have used up their part of a booking, also when Deleted.
	Succeeded, Deleted bool
	// Bound, rather than only nominated; and when, to the second.
	Bound    bool
	BoundAt  time.Time
	Daemon   types.UID
	Consumes ConsumerKey
	// MadeAgain: a controller makes another one when it has ended.
	MadeAgain bool
	// Stranded: kube-scheduler has found no room for it.
	Stranded bool
	// Blocked is what keeps the pod from starting on its node, such as an image that cannot be pulled; empty for nothing.
	Blocked string
}

// consumeAnnotations name the request whose capacity a pod consumes; the second
// is the older spelling.
var consumeAnnotations = []string{
	provreq.ProvisioningRequestPodAnnotationKey,
	"cluster-autoscaler.kubernetes.io/consume-provisioning-request",
}

// ReadPod reads what counts of a pod.
func ReadPod(p *corev1.Pod) *Pod {
	out := &Pod{
		Version:   &metav1.ObjectMeta{ResourceVersion: p.ResourceVersion},
		Name:      p.Name,
		Node:      p.Spec.NodeName,
		Bound:     p.Spec.NodeName != "",
		Finished:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Succeeded: p.Status.Phase == corev1.PodSucceeded,

		Terminating: p.DeletionTimestamp != nil,
		Static:      p.Annotations[corev1.MirrorPodAnnotationKey] != "",
		MadeAgain:   isMadeAgain(p),
	}
	if !out.Bound {
		out.Node = p.Status.NominatedNodeName
	}
	out.BoundAt = p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type != corev1.PodScheduled:
		case c.Status == corev1.ConditionTrue:
			out.BoundAt = c.LastTransitionTime.Time
		default:
			out.Stranded = c.Reason == corev1.PodReasonUnschedulable && out.Node == "" && !out.Finished && !out.Terminating
		}
	}
	if out.Node != "" || out.Stranded {
		out.Requests = fit.PodRequests(p)
	}
	if out.Node != "" {
		out.Running = fit.ReadRunning(p)
	}
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "DaemonSet" {
		out.Daemon = owner.UID
	}
	for _, key := range consumeAnnotations {
		if name, ok := p.Annotations[key]; ok {
			out.Consumes = ConsumerKey{p.Namespace, name}
			break
		}
	}
	if out.Bound && out.Consumes.Name == "" && Movable(p) {
		out.Movable = p
	}
	if out.Bound && !out.Terminating && (p.Status.Phase == corev1.PodPending || p.Status.Phase == "") {
		out.Blocked = blockedBy(p)
	}
	return out
}

// Claim replaces the devices of the pod's claims in its requests.
func (p *Pod) Claim(devices nodegroups.Resources) {
	p.Requests = p.Requests.Clone()
	if p.Requests == nil {
		p.Requests = nodegroups.Resources{}
	}
	p.Requests.Sub(p.claimed, 1)
	p.Requests.Add(devices, 1)
	p.claimed = devices
}

// mostBlocked limits the text on why a pod does not start, in bytes.
const mostBlocked = 256

// blockedBy returns what keeps a pod from starting that its kubelet has tried to start.
func blockedBy(p *corev1.Pod) string {
	for i := range p.Status.InitContainerStatuses {
		if why := waitsFor(&p.Status.InitContainerStatuses[i]); why != "" {
			return why
		}
	}
	for i := range p.Status.ContainerStatuses {
		if why := waitsFor(&p.Status.ContainerStatuses[i]); why != "" {
			return why
		}
	}
	return ""
}

// waitsFor returns the error that a container waits for. Images that are being pulled and volumes that are being mounted are no error.
func waitsFor(c *corev1.ContainerStatus) string {
	w := c.State.Waiting
	if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
		return ""
	}
	return text.Clip(strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, w.Message), ": "), mostBlocked)
}

// EndOf returns when a pod has finished, according to its kubelet.
func EndOf(p *corev1.Pod) (at time.Time) {
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

// Counts reports whether the pod has not finished and does not come and go with its node.
func (p *Pod) Counts() bool { return !p.Finished && !p.Static && p.Daemon == "" }

// MayBeUnbooked reports whether the pod runs, and is neither static nor of a DaemonSet that prepares machines: only with a booking does it
// belong on a machine that is held.
func (p *Pod) MayBeUnbooked() bool {
	return p.Bound && !p.Finished && !p.Terminating && !p.Static && (p.Daemon == "" || takesDevices(p.Requests))
}

// ConsumerKey is a request as pods name it, or its booking key.
type ConsumerKey struct{ Namespace, Name string }

// Booking is the booking key of a request.
func (k ConsumerKey) Booking() ConsumerKey { return ConsumerKey{k.Namespace, BookingKey(k.Name)} }
