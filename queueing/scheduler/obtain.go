package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// obtainable reports whether the machines of the chosen flavors can be obtained now. Without a capacity check or a
// capacity snapshot it returns true.
//
// An assignment with victims must be certain: it may use only existing machines, free ones or those of the victims. A
// launch may fail and would then have stopped the victims for nothing. So a launch comes before the preemption, and
// cannot use the machines of the victims.
func (a *assigner) obtainable(p *Assignment) bool {
	all := cache.ChecksFor(a.queue.Object, a.chosenFlavors())
	checks := a.s.cache.CapacityChecks(all)
	booking := slices.DeleteFunc(slices.Clone(all), func(n kueue.AdmissionCheckReference) bool { return !a.s.cache.Books(n) })
	if len(checks) > 0 && len(booking) > 1 {
		a.noteCombination(fmt.Sprintf("the podSets would need the checks %v together, but only one may book machines", booking),
			kueue.WorkloadQuotaReservedReasonNoMatchingFlavor)
		return false
	}
	if last := &a.w.Unobtained; len(checks) > 0 && last.Lasts(a.s.now) && slices.Equal(last.Flavors, a.chosenFlavors()) {
		a.until = workload.Earliest(a.until, last.Until)
		a.noteCombination(fmt.Sprintf("no machines: the last request failed a moment ago; next attempt at %s%s",
			last.Until.UTC().Format(time.RFC3339), runningVictimsMessage(p.victims)), workload.ReasonWaitingForCapacity)
		return false
	}
	if a.hasProvisionedFirst(all) {
		// The plan would count the machines of the request as used.
		p.provisionFirst = true
		return true
	}
	if a.s.capacity == nil || a.s.plan == nil {
		return true
	}
	// A booking lasts minutes; another check may wait days for approval.
	mayAsk := len(booking) == len(all)
	if len(checks) == 0 {
		if mayAsk {
			a.launchFirst(p, booking)
		}
		return true
	}
	a.s.assumeUpcoming()
	a.plans++
	gang, policy := a.s.checks.GangOf(a.w, a.admission()), a.s.checks.PolicyOf(a.w, checks[0])
	room := a.capacityWithout(p.victims)
	verdict := a.s.plan(room, gang, policy)
	if back := a.s.requestsToDelete(); verdict.Outcome != planner.Fits && len(back) > 0 {
		if later := a.s.plan(room.Without(back...), gang, policy); later.Outcome == planner.Fits {
			p.awaitsRelease, p.plan = true, &later
			return true
		}
	}
	if mayAsk && len(p.victims) > 0 && verdict.Outcome == planner.Launch {
		p.provisionFirst = true
		verdict = a.s.plan(a.s.capacity, gang, policy)
	}
	switch {
	case verdict.Outcome == planner.Fits, verdict.Outcome == planner.Launch && (p.provisionFirst || len(p.victims) == 0):
		p.plan = &verdict
		return true
	case verdict.Outcome == planner.Launch:
		a.noteCombination(needsLaunchMessage(p.victims, &verdict), workload.ReasonWaitingForCapacity)
	default:
		t := a.s.checks.TermsOf(a.w, checks[0])
		a.until = workload.Earliest(workload.Earliest(a.until, verdict.Until), t.Fallback)
		a.noteCombination("no machines: "+verdict.Message()+t.Hint()+runningVictimsMessage(p.victims), workload.ReasonWaitingForCapacity)
	}
	return false
}

// launchFirst provisions first if the checks of Kueue would preempt others for a launch. Otherwise quota alone decides,
// as in Kueue.
func (a *assigner) launchFirst(p *Assignment, checks []kueue.AdmissionCheckReference) {
	if len(p.victims) == 0 || len(checks) == 0 {
		return
	}
	policy, ok := a.s.checks.LaunchPolicy(a.w, checks[0])
	if !ok {
		return
	}
	a.plans++
	gang := a.s.checks.GangOf(a.w, a.admission())
	if a.s.plan(a.capacityWithout(p.victims), gang, policy).Outcome != planner.Launch {
		return
	}
	if verdict := a.s.plan(a.s.capacity, gang, policy); verdict.Outcome == planner.Launch || verdict.Outcome == planner.Fits {
		p.provisionFirst, p.plan = true, &verdict
	}
}

// capacityWithout returns the capacity snapshot without the machines of the victims.
func (a *assigner) capacityWithout(victims []victim) *planner.Snapshot {
	if len(victims) == 0 {
		return a.s.capacity
	}
	return a.s.capacity.Without(a.s.requestsOf(victims)...)
}

// needsLaunchMessage says why no Workload is preempted for machines that have to be launched.
func needsLaunchMessage(victims []victim, plan *planner.Verdict) string {
	var machines []string
	for _, l := range plan.Launches {
		machines = append(machines, fmt.Sprintf("%d of NodeGroup %s", l.Count, l.Group))
	}
	for _, l := range plan.Shares {
		machines = append(machines, fmt.Sprintf("a share of %d of NodeGroup %s", l.Count, l.Group))
	}
	return fmt.Sprintf("its quota would come from preempting %s, but it also needs a launch (%s), and workloads are preempted only for "+
		"existing machines; it starts when existing machines have room, or when quota is released",
		namesOf(nil, victims), strings.Join(machines, ", "))
}

// requestsOf returns the UIDs of the victims' ProvisioningRequests.
func (s *Cycle) requestsOf(victims []victim) []types.UID {
	var out []types.UID
	for _, v := range victims {
		for _, r := range slices.Concat(s.cache.Requests[v.Object.UID], s.cache.Slices.Inherited(v.Workload)) {
			out = append(out, r.UID)
		}
	}
	return out
}
