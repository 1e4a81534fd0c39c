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

// obtainable asks the planner whether the machines for the chosen flavors can
// be had now. Without a capacity check, or without advice, nothing speaks
// against it.
//
// Where others have to leave first it has to be certain: on machines that exist,
// theirs or free ones. A launch may fail, and would have stopped them for nothing, so
// it comes before they leave. It has to do without their machines.
func (a *assigner) obtainable(p *Proposal) bool {
	all := cache.ChecksFor(a.queue.Object, a.distinct())
	checks := a.s.cache.CapacityChecks(all)
	booking := slices.DeleteFunc(slices.Clone(all), func(n kueue.AdmissionCheckReference) bool { return !a.s.cache.Books(n) })
	if len(checks) > 0 && len(booking) > 1 {
		a.note(fmt.Sprintf("the podSets would need the checks %v together, but only one may book machines", booking),
			kueue.WorkloadQuotaReservedReasonNoMatchingFlavor)
		return false
	}
	if last := &a.w.Unobtained; len(checks) > 0 && last.Lasts(a.s.now) && slices.Equal(last.Flavors, a.distinct()) {
		a.until = workload.Earliest(a.until, last.Until)
		a.note(fmt.Sprintf("no machines: the last request failed a moment ago; next attempt at %s%s",
			last.Until.UTC().Format(time.RFC3339), runningVictims(p.victims)), workload.ReasonWaitingForCapacity)
		return false
	}
	if a.hasAskedAhead(all) {
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
	a.s.assumeUpcoming()
	a.plans++
	gang, policy := a.s.checks.GangOf(a.w, a.admission()), a.s.checks.PolicyOf(a.w, checks[0])
	room := a.capacityWithout(p.victims)
	verdict := a.s.plan(room, gang, policy)
	if back := a.s.releasing(); verdict.Outcome != planner.Fits && len(back) > 0 {
		if later := a.s.plan(room.Without(back...), gang, policy); later.Outcome == planner.Fits {
			p.awaits, p.plan = true, &later
			return true
		}
	}
	if mayAsk && len(p.victims) > 0 && verdict.Outcome == planner.Launch {
		p.ahead = true
		verdict = a.s.plan(a.s.capacity, gang, policy)
	}
	switch {
	case verdict.Outcome == planner.Fits, verdict.Outcome == planner.Launch && (p.ahead || len(p.victims) == 0):
		p.plan = &verdict
		return true
	case verdict.Outcome == planner.Launch:
		a.note(needsLaunch(p.victims, &verdict), workload.ReasonWaitingForCapacity)
	default:
		t := a.s.checks.TermsOf(a.w, checks[0])
		a.until = workload.Earliest(workload.Earliest(a.until, verdict.Until), t.Fallback)
		a.note("no machines: "+verdict.Message()+t.Hint()+runningVictims(p.victims), workload.ReasonWaitingForCapacity)
	}
	return false
}

// launchFirst has machines asked for ahead of quota where Kueue's own checks would
// have others leave for a launch. Else they go by quota alone, as in Kueue.
func (a *assigner) launchFirst(p *Proposal, checks []kueue.AdmissionCheckReference) {
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
		p.ahead, p.plan = true, &verdict
	}
}

// capacityWithout is the advice as if the victims had left.
func (a *assigner) capacityWithout(victims []victim) *planner.Snapshot {
	if len(victims) == 0 {
		return a.s.capacity
	}
	return a.s.capacity.Without(a.s.requestsOf(victims)...)
}

// needsLaunch tells why others are not preempted for machines that are to be launched.
func needsLaunch(victims []victim, plan *planner.Verdict) string {
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

// requestsOf are those by which victims have their machines.
func (s *Cycle) requestsOf(victims []victim) []types.UID {
	var out []types.UID
	for _, v := range victims {
		for _, r := range slices.Concat(s.cache.Requests[v.Object.UID], s.cache.Slices.Inherited(v.Workload)) {
			out = append(out, r.UID)
		}
	}
	return out
}
