package scheduler

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// hasProvisionedFirst reports whether the Workload already has a ProvisioningRequest for the chosen assignment and its
// next attempt, created before it reserved quota.
func (a *assigner) hasProvisionedFirst(names []kueue.AdmissionCheckReference) bool {
	made := cache.Existing(a.s.cache.Requests.ProvisionFirst(a.w))
	if len(made) == 0 {
		return false
	}
	admission, states := a.admission(), a.s.rules.NewCheckStates(a.w, names)
	return slices.ContainsFunc(made, func(r *autoscaling.ProvisioningRequest) bool {
		return checks.IsFor(r, admission) && slices.ContainsFunc(states, func(c kueue.AdmissionCheckState) bool {
			return r.Name == checks.RequestName(a.w.Object.Name, c.Name, workload.Retries(&c)+1)
		})
	})
}

// provisionFirst returns the next step of a Workload whose machines are provisioned before it reserves quota: the step
// that would follow if its quota were reserved. The verdict creates or deletes requests, waits, or ends the attempt.
// Booked reports whether the machines are booked.
func (s *Cycle) provisionFirst(q *cache.ClusterQueue, w *cache.Workload, p *Assignment) (next *lifecycle.Verdict, booked bool) {
	view := w.WithObject(w.Object.DeepCopy())
	e := workload.Edit(w.Object, s.now)
	e.Reserve(p.admission, s.rules.NewCheckStates(w, cache.ChecksFor(q.Object, workload.AssignedFlavors(p.admission))))
	view.Object.Status = *e.Status

	next = &lifecycle.Verdict{Workload: w, Action: lifecycle.Wait}
	v, again := s.rules.AdvanceChecks(view)
	s.cache.Wake(w, again)
	switch {
	case v == nil:
		return next, false
	case v.Action == lifecycle.Admit:
		return next, true
	case v.Action == lifecycle.Evict:
		return lifecycle.WithoutQuota(w, v), false
	case v.Status != nil:
		// A check that Kueue also serves may retry or reject.
		view.Object.Status = *v.Status
		if over := s.rules.AnsweredChecks(view); over != nil {
			view.Object.Status = *over.Status
			over.Status = s.rules.Release(view, kueue.WorkloadQuotaReservedReasonPendingEvaluation, over.Message).Status
			over.Delete = cache.Existing(s.cache.Requests[w.Object.UID])
			return lifecycle.WithoutQuota(w, over), false
		}
	}
	if v.Create != nil {
		metav1.SetMetaDataAnnotation(&v.Create.Object.ObjectMeta, workload.ProvisionFirstAnnotation, checks.AssignmentOf(p.admission))
		w.ProvisionFirst = view.Object
	}
	next.Create, next.Delete = v.Create, v.Delete
	return next, false
}

// waitingForCapacityMessage says what a Workload waits for while its victims keep running.
func waitingForCapacityMessage(w *cache.Workload, p *Assignment) string {
	out := fmt.Sprintf("Waiting for the machines of %d pods on flavors %v, which are requested before its quota is free",
		workload.PodsIn(p.admission), workload.AssignedFlavors(p.admission))
	stay := slices.DeleteFunc(slices.Clone(p.victims), func(v victim) bool { return workload.IsEvicted(v.Object) })
	if len(stay) > 0 {
		out += fmt.Sprintf("; once they are ready and booked, %s are preempted for it", describeVictims(w, stay))
	}
	return out
}

// runningVictimsMessage says that the victims keep running until the machines are booked.
func runningVictimsMessage(victims []victim) string {
	if len(victims) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s, to be preempted for it, keep running until its machines are booked", describeVictims(nil, victims))
}

// describeVictims returns the names of the victims and their usage.
func describeVictims(reader *cache.Workload, victims []victim) string {
	sum := quota.Amounts{}
	for _, v := range victims {
		sum.Add(v.Usage)
	}
	amounts := make([]string, 0, len(sum))
	for _, fr := range sum.Keys() {
		amounts = append(amounts, fmt.Sprintf("%s %s in flavor %s", nodegroups.Quantity(fr.Resource, sum[fr]), fr.Resource, fr.Flavor))
	}
	return fmt.Sprintf("%s (%s)", namesOf(reader, victims), strings.Join(amounts, ", "))
}
