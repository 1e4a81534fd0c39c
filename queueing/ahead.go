package queueing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/quota"
)

// Who needs both the quota of others and machines that have to be launched asks for
// the machines first. Its request is made ahead of its quota, and nobody leaves for
// it before the machines are booked:
//
//	waits ─create─▶ claims, victims stay ─Provisioned─▶ claims, victims leave ─▶ reserves; the request is its own
//	  ▲                     │ Failed, stocked out, expired                │ expired
//	  └─ next option ◀──────┴─────────────────────────────────────────────┘
//
// All of it follows from the objects: the request has the name of the attempt that
// is to come and says in AheadAnnotation for which assignment it was made. If the
// Workload would get another one by now, or none, the request goes.

// AheadAnnotation on a ProvisioningRequest says that it was made before its Workload
// had quota, and for which pods and flavors.
const AheadAnnotation = "muster.dev/ahead-of-quota"

// assignmentOf is the value of AheadAnnotation: the podSetAssignments of an admission in
// JSON, without what their pods use.
func assignmentOf(a *kueue.Admission) string {
	out := make([]kueue.PodSetAssignment, 0, len(a.PodSetAssignments))
	for _, ps := range a.PodSetAssignments {
		out = append(out, kueue.PodSetAssignment{Name: ps.Name, Flavors: ps.Flavors, Count: ps.Count})
	}
	// Names, flavors and counts can always be encoded.
	text, _ := json.Marshal(out)
	return string(text)
}

// isFor reports whether a request may serve an assignment. One that was made with the
// quota follows from it.
func isFor(r *autoscaling.ProvisioningRequest, a *kueue.Admission) bool {
	made := r.Annotations[AheadAnnotation]
	if made == "" {
		return true
	}
	var have []kueue.PodSetAssignment
	return json.Unmarshal([]byte(made), &have) == nil && slices.EqualFunc(have, a.PodSetAssignments, func(x, y kueue.PodSetAssignment) bool {
		return x.Name == y.Name && countOf(&x) == countOf(&y) && maps.Equal(x.Flavors, y.Flavors)
	})
}

// ahead are the requests that a Workload has made ahead of its quota.
func (s *Cache) ahead(w *Workload) []*autoscaling.ProvisioningRequest {
	return slices.DeleteFunc(slices.Clone(s.requests[w.Object.UID]), func(r *autoscaling.ProvisioningRequest) bool {
		return r.Annotations[AheadAnnotation] == ""
	})
}

// asked says that the Workload has asked ahead of its quota for the machines of just
// what was chosen, in the attempt that is to come.
func (a *assigner) asked(checks []kueue.AdmissionCheckReference) bool {
	made := living(a.s.ahead(a.w))
	if len(made) == 0 {
		return false
	}
	admission, states := a.admission(), a.s.fresh(a.w, checks)
	return slices.ContainsFunc(made, func(r *autoscaling.ProvisioningRequest) bool {
		return isFor(r, admission) && slices.ContainsFunc(states, func(c kueue.AdmissionCheckState) bool {
			return r.Name == RequestName(a.w.Object.Name, c.Name, retries(&c)+1)
		})
	})
}

// ask finds out what is next about the machines of a Workload that has no quota yet:
// what would be if its quota were reserved. Booked says that they are there. The
// verdict makes or deletes requests, or waits, or ends the attempt.
func (s *Cycle) ask(q *queue, w *Workload, p *proposal) (next *Verdict, booked bool) {
	view := w.as(w.Object.DeepCopy())
	e := edit(w.Object, s.now)
	e.reserve(p.admission, s.fresh(w, checksFor(q.object, assignedFlavors(p.admission))))
	view.Object.Status = *e.status

	next = &Verdict{Workload: w, Action: Wait}
	v, again := s.advanceChecks(view)
	s.wake(w, again)
	switch {
	case v == nil:
		return next, false
	case v.Action == Admit:
		return next, true
	case v.Action == Evict:
		return unreserved(w, v), false
	case v.Status != nil:
		// A check of Kueue's may want another attempt, or none.
		view.Object.Status = *v.Status
		if over := s.answered(view); over != nil {
			view.Object.Status = *over.Status
			over.Status = s.release(view, kueue.WorkloadQuotaReservedReasonPendingEvaluation, over.Message).Status
			over.Delete = living(s.requests[w.Object.UID])
			return unreserved(w, over), false
		}
	}
	if v.Create != nil {
		metav1.SetMetaDataAnnotation(&v.Create.Object.ObjectMeta, AheadAnnotation, assignmentOf(p.admission))
		w.trial = view.Object
	}
	next.Create, next.Delete = v.Create, v.Delete
	return next, false
}

// unreserved is the end of an attempt that never had its quota: nobody is stopped.
func unreserved(w *Workload, v *Verdict) *Verdict {
	v.Workload, v.Action = w, Release
	w.reason, w.message = "", ""
	return v
}

// awaited tells what a claim waits for whose victims stay.
func awaited(p *proposal) string {
	out := fmt.Sprintf("Waiting for the machines of %d pods on flavors %v, which are asked for before its quota is free",
		podsIn(p.admission), assignedFlavors(p.admission))
	stay := slices.DeleteFunc(slices.Clone(p.victims), func(v victim) bool { return IsEvicted(v.Object) })
	if len(stay) > 0 {
		out += fmt.Sprintf("; once they are ready and booked, %s are preempted for it", heldBy(stay))
	}
	return out
}

// spared tells that nobody is preempted, where others would have to be.
func spared(victims []victim) string {
	if len(victims) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s, whose quota it would have, keep running until its machines are certain", heldBy(victims))
}

// heldBy tells whose quota is meant, and how much that is.
func heldBy(victims []victim) string {
	sum := quota.Amounts{}
	for _, v := range victims {
		sum.Add(v.Usage)
	}
	amounts := make([]string, 0, len(sum))
	for _, fr := range sum.Keys() {
		amounts = append(amounts, fmt.Sprintf("%s %s in flavor %s", nodegroups.Quantity(fr.Resource, sum[fr]), fr.Resource, fr.Flavor))
	}
	return fmt.Sprintf("%s (%s)", strings.Join(namesOf(victims), ", "), strings.Join(amounts, ", "))
}

// launchPolicy is the policy that a request of a check of Kueue's own will have; ok is
// false where nobody would launch machines for it.
func (s Evaluator) launchPolicy(w *Workload, check kueue.AdmissionCheckReference) (out provisioning.Policy, ok bool) {
	config := s.configOf(check)
	if config == nil || !slices.Contains(launching, config.ProvisioningClassName) {
		return out, false
	}
	parameters := configured(w, config)
	policy := s.policies[cmp.Or(string(parameters[PolicyParameter]), v1alpha1.DefaultPolicy)]
	if policy == nil {
		policy = &v1alpha1.CapacityPolicy{}
	}
	spec, _ := policy.Overridden(func(name string) string { return string(parameters[name]) })
	return provisioning.PolicyFrom(provisioning.AtomicScaleUp, spec), true
}

// launching are the provisioning classes whose requests launch machines.
var launching = []string{CapacityClass, autoscaling.ProvisioningClassBestEffortAtomicScaleUp}
