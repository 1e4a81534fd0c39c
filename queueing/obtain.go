package queueing

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// obtainable asks the planner whether the machines for the chosen flavors can
// be had now. Without a capacity check, or without advice, nothing speaks
// against it.
func (a *assigner) obtainable() bool {
	checks := a.ix.capacityChecks(checksFor(a.queue.object, a.distinct()))
	if len(checks) == 0 {
		return true
	}
	if len(checks) > 1 {
		a.note(fmt.Sprintf("the podSets would need the capacity checks %v together, but only one may book machines", checks),
			kueue.WorkloadQuotaReservedReasonNoMatchingFlavor)
		return false
	}
	if until := a.ix.refusedUntil(a.w, a.distinct()); !until.IsZero() {
		a.until = earliest(a.until, until)
		a.note(fmt.Sprintf("no machines: the last request was refused a moment ago; tried again at %s", until.UTC().Format(time.RFC3339)), ReasonWaitingForCapacity)
		return false
	}
	if a.ix.Capacity == nil || a.ix.Plan == nil {
		return true
	}
	a.plans++
	verdict := a.ix.Plan(a.ix.Capacity, a.ix.gangOf(a.w, a.admission()), a.ix.policyOf(a.w, checks[0]))
	if verdict.Outcome == provisioning.Fits || verdict.Outcome == provisioning.Launch {
		a.plan = &verdict
		return true
	}
	a.until = earliest(a.until, verdict.Until)
	a.note("no machines: "+verdict.Message(), ReasonWaitingForCapacity)
	return false
}

// note tells something about the combination that was tried. It is put down at
// each of its flavors, so that none is left unexplained.
func (a *assigner) note(message, code string) {
	for _, flavor := range a.distinct() {
		a.notes.add(flavor, code, message)
	}
}

func (a *assigner) distinct() []kueue.ResourceFlavorReference {
	out := slices.Clone(a.chosen)
	slices.Sort(out)
	return slices.Compact(out)
}

// blindly is how many flavors an attempt passes over that has no advice: as many
// as attempts have failed before it. So even then a stockout leads to the next
// flavor and not to the same one again.
func (ix *index) blindly(q *queue, w *Workload) int {
	state := w.Object.Status.RequeueState
	if ix.Capacity != nil || state == nil || state.Count == nil || len(ix.capacityChecks(checksFor(q.object, flavorsOf(q.object)))) == 0 {
		return 0
	}
	return int(*state.Count)
}

// gangOf is the Workload's pods as they would be on the flavors of an admission.
func (ix *index) gangOf(w *Workload, admission *kueue.Admission) provisioning.Gang {
	gang := provisioning.Gang{Namespace: w.Object.Namespace, Name: w.Object.Namespace + "/" + w.Object.Name}
	for i := range admission.PodSetAssignments {
		assignment := &admission.PodSetAssignments[i]
		gang.PodSets = append(gang.PodSets, provisioning.PodSet{
			Name: string(assignment.Name), Count: int(countOf(assignment)), Template: ix.templateOf(w, assignment),
		})
	}
	return gang
}

// templateOf is the template of a podSet as it will be on its flavors.
func (ix *index) templateOf(w *Workload, assignment *kueue.PodSetAssignment) *corev1.PodTemplateSpec {
	var flavors []*kueue.ResourceFlavor
	for _, name := range assignedFlavors(&kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{*assignment}}) {
		if flavor := ix.flavors[name]; flavor != nil {
			flavors = append(flavors, flavor)
		}
	}
	template := TemplateOn(&findPodSet(w.Object, assignment.Name).Template, flavors)
	return template
}

func countOf(assignment *kueue.PodSetAssignment) int32 {
	if assignment.Count == nil {
		return 0
	}
	return *assignment.Count
}

// policyOf is the policy that the Workload's request will have.
func (ix *index) policyOf(w *Workload, check kueue.AdmissionCheckReference) provisioning.Policy {
	name := string(ix.parameters(w, check)[PolicyParameter])
	if policy := ix.policies[name]; policy != nil {
		return provisioning.PolicyFrom(provisioning.AtomicScaleUp, policy.Spec)
	}
	return provisioning.DefaultPolicy(provisioning.AtomicScaleUp)
}

// foresee marks in the advice what Workloads will use that have quota and whose
// request the provisioner has not seen yet.
func (ix *index) foresee() {
	if ix.Capacity == nil || ix.Plan == nil {
		return
	}
	for _, w := range ix.sorted() {
		if !HasQuota(w.Object) || IsAdmitted(w.Object) || IsEvicted(w.Object) || ix.seen(w) {
			continue
		}
		admission := w.Object.Status.Admission
		q := ix.queues[admission.ClusterQueue]
		if q == nil || !q.standing.Active {
			continue
		}
		checks := ix.capacityChecks(checksFor(q.object, assignedFlavors(admission)))
		if len(checks) != 1 || unready(w.Object.Status.AdmissionChecks, checks[0]) != "" {
			// It asks for no machines yet.
			continue
		}
		plan := ix.Plan(ix.Capacity, ix.gangOf(w, admission), ix.policyOf(w, checks[0]))
		ix.take(w, &plan)
	}
}

// seen says that the provisioner has begun to work on a request of the Workload,
// so that its picture has what the request will use.
func (ix *index) seen(w *Workload) bool {
	return slices.ContainsFunc(ix.Requests[w.Object.UID], func(r *autoscaling.ProvisioningRequest) bool {
		return len(r.Status.Conditions) > 0
	})
}

// take marks what a plan uses in a copy of the advice, so that the next
// Workload of the cycle is not promised the same machines.
func (ix *index) take(w *Workload, plan *provisioning.Verdict) {
	ix.Capacity = ix.Capacity.Taking(w.Object.UID, w.Object.Namespace, plan)
}
