package view

import (
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/orphans"
	"github.com/muster-dev/muster/queueing/workload"
)

// explainOrphan explains a Workload whose job was deleted without its pods.
func (p *Picture) explainOrphan(out *Explanation, w *kueue.Workload) {
	var names []string
	for _, match := range orphans.PodLabels(w) {
		selector := labels.SelectorFromSet(labels.Set(match))
		of := p.runningPods(w.Namespace, selector)
		if names = append(names, of...); len(of) > 0 || !p.Decides() {
			out.Unblock = append(out.Unblock, fmt.Sprintf("the pods end, or are deleted: kubectl -n %s delete pods -l %s", w.Namespace, selector))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case len(names) > 0:
		out.Summary = fmt.Sprintf("keeps its quota on %s: its job was deleted, and %s of the job still run", flavorsOf(w.Status.Admission),
			text.Pods(len(names)))
		out.Causes = []string{"the quota is released when these pods have ended: " + strings.Join(names, ", ")}
	case p.Decides():
		out.Summary = "is about to be finished: its job was deleted, and no pod of the job runs"
	default:
		out.Summary = fmt.Sprintf("keeps its quota on %s: its job was deleted, and pods of the job may still run", flavorsOf(w.Status.Admission))
		out.Causes = []string{"the quota is released when all pods of the job have ended"}
	}
}

// runningPods returns the names of the pods in a namespace that match and have not ended.
func (p *Picture) runningPods(namespace string, selector labels.Selector) (names []string) {
	for _, pod := range p.Pods {
		if pod.Namespace == namespace && selector.Matches(labels.Set(pod.Labels)) && !jobs.IsOver(pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}

// explainBlocked adds why some pods of a Workload that was admitted cannot start.
func (p *Picture) explainBlocked(out *Explanation, w *kueue.Workload) {
	for _, r := range p.requestsOf(w) {
		why := blockedBy(r)
		if why == "" {
			continue
		}
		out.Summary += ", but some of its pods cannot start"
		out.Causes = append(out.Causes, why)
		out.Unblock = append(out.Unblock, "correct what keeps the pods from starting; where that is in the pod template of a job, which cannot "+
			"change while the job runs, delete the job and create it again. Until then it keeps its quota, and its machines cost money")
	}
}

// awaitsPlaces reports whether all checks of a Workload are Ready, and its pods have yet to be placed in the topology.
func awaitsPlaces(w *kueue.Workload) bool {
	return workload.HasQuota(w) && !workload.IsAdmitted(w) && workload.AllReady(w.Status.AdmissionChecks) &&
		workload.AwaitsTopology(w.Status.Admission)
}

// explainPlaces explains a Workload whose machines are there and whose pods have no places on them.
func (p *Picture) explainPlaces(out *Explanation, w *kueue.Workload) {
	out.Summary = fmt.Sprintf("has quota reserved on %s and waits for places for its pods in the topology", flavorsOf(w.Status.Admission))
	out.Causes = []string{p.whyNoPlaces(w)}
	out.Unblock = p.unblockPlaces(w)
}

// whyNoPlaces returns why the pods of a Workload have no places yet.
func (p *Picture) whyNoPlaces(w *kueue.Workload) string {
	const awaits = kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests
	if v, decided := p.verdicts[w.UID]; decided && v.Reason == awaits {
		return v.Message
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted); c != nil && c.Reason == awaits {
		return c.Message
	}
	return "its checks are Ready, and Muster has not placed its pods yet"
}

// unblockPlaces returns what gives the pods of a Workload places: labels of the levels, or room, on the nodes that are booked.
func (p *Picture) unblockPlaces(w *kueue.Workload) []string {
	nodes := "the nodes"
	for _, r := range p.requestsOf(w) {
		if p.served.Serves(r) {
			nodes = fmt.Sprintf("the nodes that are booked for it (kubectl get nodes -l %s=%s --show-labels)", state.BookingLabel(r.Name),
				r.Namespace)
		}
	}
	return []string{nodes + " get the labels of all levels of the Topology, or room for its pods; Muster tries again whenever they change"}
}
