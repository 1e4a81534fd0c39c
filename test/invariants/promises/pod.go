package promises

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// Those of package queueing/jobs, which is no pure package.
const (
	queueLabel           = "kueue.x-k8s.io/queue-name"
	breakGlassAnnotation = "muster.dev/break-glass"
)

// olderConsumeAnnotation is the older spelling of the annotation that names the
// request whose capacity a pod consumes.
const olderConsumeAnnotation = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"

// pod is what counts of a pod.
type pod struct {
	uid             types.UID
	namespace, name string
	node            string
	// bound and boundAt are of the first version that names a node; in a Listed
	// one it may have been earlier.
	bound    uint64
	boundAt  time.Time
	requests nodegroups.Resources
	finished bool
	// leaving pods are being deleted.
	leaving bool
	// succeeded pods have used up their part of a booking.
	succeeded bool
	// daemon pods come and go with their node: those of DaemonSets, and static ones.
	daemon bool
	// consumes is the request that the pod names; the name is empty without.
	consumes types.NamespacedName
	// class is the provisioning class that the pod names, if any.
	class string
	// job controls the pod, if any does.
	job    types.UID
	member member
	// crew that must be in one domain with the pod.
	crew crew
	// madeAgain reports whether a controller replaces the pod if it fails.
	madeAgain bool
}

func readPod(e Event, o *corev1.Pod) *pod {
	p := &pod{
		uid: o.UID, namespace: o.Namespace, name: o.Name, node: o.Spec.NodeName,
		requests:  fit.PodRequests(o),
		finished:  o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		succeeded: o.Status.Phase == corev1.PodSucceeded,
		leaving:   o.DeletionTimestamp != nil,
		class:     o.Annotations[provreq.ProvisioningClassPodAnnotationKey],
		crew:      crewOf(o),
		member:    memberOf(o),
	}
	if p.node != "" {
		p.bound, p.boundAt = e.Revision, e.Time
	}
	for _, key := range []string{provreq.ProvisioningRequestPodAnnotationKey, olderConsumeAnnotation} {
		if name := o.Annotations[key]; name != "" {
			p.consumes = types.NamespacedName{Namespace: o.Namespace, Name: name}
			break
		}
	}
	if owner := metav1.GetControllerOf(o); owner != nil {
		p.daemon = owner.Kind == "DaemonSet" || o.Annotations[corev1.MirrorPodAnnotationKey] != ""
		p.madeAgain = !p.daemon
		if owner.Kind == string(Jobs) {
			p.job = owner.UID
		}
	}
	return p
}

// longestBackOff is how long a Job waits at most until it makes a pod again that failed,
// and somewhat more.
const longestBackOff = 11 * time.Minute

func (c *Checker) applyPod(e Event, o *corev1.Pod) {
	old := c.pods[o.UID]
	if old != nil && old.node != "" {
		n := c.node(old.node)
		c.noteBusy(n)
		delete(n.pods, old.uid)
		failed := e.Deleted || o.Status.Phase == corev1.PodFailed
		if !old.finished && failed && old.madeAgain && old.consumes.Name != "" {
			n.awaits = c.now.Add(longestBackOff)
		}
	}
	if e.Deleted {
		c.recount(old, nil)
		delete(c.pods, o.UID)
		c.podGone(old)
		return
	}
	p := readPod(e, o)
	c.recount(old, p)
	if old != nil && old.node != "" {
		p.bound, p.boundAt = old.bound, old.boundAt
	}
	c.pods[p.uid] = p
	if p.node != "" {
		n := c.node(p.node)
		n.pods[p.uid] = p
		c.noteBusy(n)
	}
	if e.Listed {
		return
	}
	// A pod behind a scheduling gate cannot run; it is judged when it is bound.
	if old == nil && len(o.Spec.SchedulingGates) == 0 {
		c.judgeCreated(e, p)
	}
	if p.node != "" && (old == nil || old.node == "") {
		c.judgeBound(e, p)
		c.judgeDomain(e, p)
		c.judgeConsumer(e, p)
	}
}

// runs reports whether there is a pod that takes a part of the quota of a Job.
func (p *pod) runs() bool {
	return p != nil && p.job != "" && p.node != "" && !p.finished && !p.leaving
}

// recount counts what runs of a Job once a pod has changed; either version may be nil.
func (c *Checker) recount(before, after *pod) {
	c.recountMembers(before, after)
	if after.runs() {
		c.running[after.job]++
	}
	if !before.runs() {
		return
	}
	if c.running[before.job]--; c.running[before.job] > 0 {
		return
	}
	delete(c.running, before.job)
	if j := c.jobs[before.job]; j != nil {
		j.overruns = time.Time{}
	}
}

func (c *Checker) podGone(p *pod) {
	if p == nil || p.node == "" {
		return
	}
	n := c.node(p.node)
	if p.succeeded && p.consumes.Name != "" && len(n.bookings) > 0 {
		n.spent = append(n.spent, p)
	}
	if n.uid == "" && len(n.pods) == 0 {
		delete(c.nodes, n.name)
	}
}

func (p *pod) String() string { return "Pod " + p.namespace + "/" + p.name }

// job is what counts of a Job.
type job struct {
	namespace, name string
	// controller is what made it; nil for none.
	controller *metav1.OwnerReference
	// queue is the LocalQueue that its label names; empty without.
	queue string
	// free: an admin lets it run outside its queue, or it ran before the Checker
	// came.
	free bool
	gone bool
	// held: it is suspended, and has neither ended nor to go. over: it has ended.
	held, over bool
	// prebuilt: it waits for a Workload that its user makes.
	prebuilt bool
	// waits is for its Workload, or for the Job that it is part of.
	waits waiting
	// overruns is since when more of its pods run than it has quota for; zero if no more do. judged: that has been reported.
	overruns time.Time
	judged   bool
}

func (c *Checker) applyJob(e Event, o *batchv1.Job) {
	j := c.jobs[o.UID]
	if j == nil {
		running := o.Spec.Suspend == nil || !*o.Spec.Suspend
		// Whether Muster was there before such a Job cannot be seen.
		j = &job{namespace: o.Namespace, name: o.Name, free: e.Listed && running}
		c.jobs[o.UID] = j
	}
	j.queue = o.Labels[queueLabel]
	j.free = j.free || o.Annotations[breakGlassAnnotation] != ""
	j.prebuilt = o.Labels[workloads.PrebuiltLabel] != ""
	j.gone = e.Deleted
	j.controller = metav1.GetControllerOf(o)
	j.over = slices.ContainsFunc(o.Status.Conditions, func(cond batchv1.JobCondition) bool {
		return (cond.Type == batchv1.JobComplete || cond.Type == batchv1.JobFailed) && cond.Status == corev1.ConditionTrue
	})
	j.held = o.Spec.Suspend != nil && *o.Spec.Suspend && !j.over && !e.Deleted && o.DeletionTimestamp == nil
}
