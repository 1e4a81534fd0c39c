package queueing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// obtainable asks the planner whether the machines for the chosen flavors can
// be had now. Without a capacity check, or without advice, nothing speaks
// against it.
//
// Where others have to leave first it has to be certain: on machines that exist,
// theirs or free ones. A launch may fail, and would have stopped them for nothing, so
// it comes before they leave. It has to do without their machines.
func (a *assigner) obtainable(p *proposal) bool {
	all := checksFor(a.queue.object, a.distinct())
	checks := a.s.capacityChecks(all)
	booking := slices.DeleteFunc(slices.Clone(all), func(n kueue.AdmissionCheckReference) bool { return !a.s.books(n) })
	if len(checks) > 0 && len(booking) > 1 {
		a.note(fmt.Sprintf("the podSets would need the checks %v together, but only one may book machines", booking),
			kueue.WorkloadQuotaReservedReasonNoMatchingFlavor)
		return false
	}
	if last := &a.w.unobtained; len(checks) > 0 && last.lasts(a.s.now) && slices.Equal(last.flavors, a.distinct()) {
		a.until = earliest(a.until, last.until)
		a.note(fmt.Sprintf("no machines: the last request was refused a moment ago; tried again at %s%s",
			last.until.UTC().Format(time.RFC3339), spared(p.victims)), ReasonWaitingForCapacity)
		return false
	}
	if a.asked(all) {
		// The request knows better than any plan, which would count its machines as taken.
		p.ahead = true
		return true
	}
	if a.s.capacity == nil || a.s.plan == nil {
		return true
	}
	// A person may take days to answer another check, a booking lasts minutes.
	mayAsk := len(booking) == len(all)
	if len(checks) == 0 {
		if mayAsk {
			a.launchFirst(p, booking)
		}
		return true
	}
	a.s.foresee()
	a.plans++
	gang, policy := a.s.gangOf(a.w, a.admission()), a.s.policyOf(a.w, checks[0])
	room := a.vacated(p.victims)
	verdict := a.s.plan(room, gang, policy)
	if back := a.s.returning(); verdict.Outcome != provisioning.Fits && len(back) > 0 {
		if later := a.s.plan(room.Without(back...), gang, policy); later.Outcome == provisioning.Fits {
			p.awaits, p.plan = true, &later
			return true
		}
	}
	if mayAsk && len(p.victims) > 0 && verdict.Outcome == provisioning.Launch {
		p.ahead = true
		verdict = a.s.plan(a.s.capacity, gang, policy)
	}
	switch {
	case verdict.Outcome == provisioning.Fits, verdict.Outcome == provisioning.Launch && (p.ahead || len(p.victims) == 0):
		p.plan = &verdict
		return true
	case verdict.Outcome == provisioning.Launch:
		a.note(uncertain(p.victims, &verdict), ReasonWaitingForCapacity)
	default:
		t := a.s.termsOf(a.w, checks[0])
		a.until = earliest(earliest(a.until, verdict.Until), t.fallback)
		a.note("no machines: "+verdict.Message()+t.hint()+spared(p.victims), ReasonWaitingForCapacity)
	}
	return false
}

// launchFirst has machines asked for ahead of quota where Kueue's own checks would
// have others leave for a launch. Else they go by quota alone, as in Kueue.
func (a *assigner) launchFirst(p *proposal, checks []kueue.AdmissionCheckReference) {
	if len(p.victims) == 0 || len(checks) == 0 {
		return
	}
	policy, ok := a.s.launchPolicy(a.w, checks[0])
	if !ok {
		return
	}
	a.plans++
	gang := a.s.gangOf(a.w, a.admission())
	if a.s.plan(a.vacated(p.victims), gang, policy).Outcome != provisioning.Launch {
		return
	}
	if verdict := a.s.plan(a.s.capacity, gang, policy); verdict.Outcome == provisioning.Launch || verdict.Outcome == provisioning.Fits {
		p.ahead, p.plan = true, &verdict
	}
}

// vacated is the advice as if the victims had left.
func (a *assigner) vacated(victims []victim) *provisioning.Snapshot {
	if len(victims) == 0 {
		return a.s.capacity
	}
	return a.s.capacity.Without(a.s.requestsOf(victims)...)
}

// returning are the requests of those who have no quota any more. They are about to
// be deleted, and their machines are free once they are: whoever comes next may count
// on these, and has to, or another one would have the quota meanwhile.
func (s *Cycle) returning() []types.UID {
	if s.returned != nil {
		return s.returned
	}
	s.returned = []types.UID{}
	for uid, requests := range s.requests {
		w := s.workloads[uid]
		if w == nil || HasQuota(w.Object) && !IsFinished(w.Object) {
			continue
		}
		for _, r := range requests {
			if r.Annotations[AheadAnnotation] == "" {
				s.returned = append(s.returned, r.UID)
			}
		}
	}
	slices.Sort(s.returned)
	return s.returned
}

// uncertain tells why others are not preempted for machines that are to be launched.
func uncertain(victims []victim, plan *provisioning.Verdict) string {
	var machines []string
	for _, l := range plan.Launches {
		machines = append(machines, fmt.Sprintf("%d of group %s", l.Count, l.Group))
	}
	for _, l := range plan.Shares {
		machines = append(machines, fmt.Sprintf("what others leave of %d of group %s", l.Count, l.Group))
	}
	return fmt.Sprintf("its quota would be that of %s, who are preempted only for machines that are there, and it would take a launch (%s); "+
		"it starts when machines that exist have room, or when their quota is given back",
		strings.Join(namesOf(victims), ", "), strings.Join(machines, ", "))
}

// requestsOf are those by which victims have their machines.
func (s *Cache) requestsOf(victims []victim) []types.UID {
	var out []types.UID
	for _, v := range victims {
		for _, r := range s.requests[v.Object.UID] {
			out = append(out, r.UID)
		}
	}
	return out
}

// note tells something about the combination that was tried. It is put down at
// each of its flavors, so that none is left unexplained; pods that ask for nothing
// have none.
func (a *assigner) note(message, code string) {
	flavors := a.distinct()
	if len(flavors) == 0 {
		a.refuse(0, "", code, "%s", message)
	}
	for _, flavor := range flavors {
		a.refuse(0, flavor, code, "flavor %s: %s", flavor, message)
	}
}

func (a *assigner) distinct() []kueue.ResourceFlavorReference {
	var out []kueue.ResourceFlavorReference
	for _, o := range a.chosen {
		out = append(out, o.flavor)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// blindly is how many flavors an attempt passes over that has no advice: as many
// as attempts have failed before it. So even then a stockout leads to the next
// flavor and not to the same one again.
func (s *Cycle) blindly(q *queue, w *Workload) int {
	state := w.Object.Status.RequeueState
	if s.capacity != nil || state == nil || state.Count == nil || len(s.capacityChecks(checksFor(q.object, flavorsOf(q.object)))) == 0 {
		return 0
	}
	return int(*state.Count)
}

// gangOf is the Workload's pods as they would be on the flavors of an admission.
func (s Evaluator) gangOf(w *Workload, admission *kueue.Admission) provisioning.Gang {
	t := w.tenant()
	gang := provisioning.Gang{Namespace: t.Namespace, Queue: t.Queue, Name: w.Object.Namespace + "/" + w.Object.Name}
	for i := range admission.PodSetAssignments {
		assignment := &admission.PodSetAssignments[i]
		gang.PodSets = append(gang.PodSets, provisioning.PodSet{
			Name: string(assignment.Name), Count: int(countOf(assignment)), Template: s.templateOf(w, assignment),
		})
	}
	return gang
}

// tenant is who pays for the Workload's machines.
func (w *Workload) tenant() provisioning.Tenant {
	return provisioning.Tenant{Namespace: w.Object.Namespace, Queue: string(w.Object.Spec.QueueName)}
}

// templateOf is the template of a podSet as it will be on its flavors.
func (s Evaluator) templateOf(w *Workload, assignment *kueue.PodSetAssignment) *corev1.PodTemplateSpec {
	var flavors []*kueue.ResourceFlavor
	for _, name := range assignedFlavors(&kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{*assignment}}) {
		if flavor := s.flavors[name]; flavor != nil {
			flavors = append(flavors, flavor)
		}
	}
	template := TemplateOn(&findPodSet(w.Object, assignment.Name).Template, flavors)
	template.Spec = *s.complete(w.Object.Namespace, &template.Spec)
	// Its pods end with the Workload's time, which budgets want to know.
	if most, own := w.Object.Spec.MaximumExecutionTimeSeconds, template.Spec.ActiveDeadlineSeconds; most != nil && (own == nil || *own > int64(*most)) {
		template.Spec.ActiveDeadlineSeconds = new(int64(*most))
	}
	return template
}

func countOf(assignment *kueue.PodSetAssignment) int32 {
	if assignment.Count == nil {
		return 0
	}
	return *assignment.Count
}

// foresee marks in the advice, once a cycle, what Workloads will use that have quota and whose
// request the provisioner has not seen yet.
func (s *Cycle) foresee() {
	if s.foreseen || s.capacity == nil || s.plan == nil {
		return
	}
	s.foreseen = true
	for _, w := range sorted(s.unadmitted) {
		if IsEvicted(w.Object) || s.seen(w) {
			continue
		}
		admission := w.Object.Status.Admission
		q := s.queues[admission.ClusterQueue]
		if q == nil || !q.standing.Active {
			continue
		}
		checks := s.capacityChecks(checksFor(q.object, assignedFlavors(admission)))
		if len(checks) != 1 || unready(w.Object.Status.AdmissionChecks, checks[0]) != "" {
			// It asks for no machines yet.
			continue
		}
		plan := s.plan(s.capacity, s.gangOf(w, admission), s.policyOf(w, checks[0]))
		s.take(w, &plan)
	}
}

// seen says that the provisioner has begun to work on a request of the Workload,
// so that its picture has what the request will use.
func (s *Cycle) seen(w *Workload) bool {
	return slices.ContainsFunc(s.requests[w.Object.UID], func(r *autoscaling.ProvisioningRequest) bool {
		return len(r.Status.Conditions) > 0
	})
}

// take marks what a plan uses in a copy of the advice, so that the next
// Workload of the cycle is not promised the same machines.
func (s *Cycle) take(w *Workload, plan *provisioning.Verdict) {
	s.capacity = s.capacity.Taking(w.Object.UID, w.tenant(), plan)
}
