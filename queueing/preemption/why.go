package preemption

import (
	"fmt"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// beyond returns why the preemptor would not fit even if the whole tree were unused, or
// nothing if it would.
func (t *simulation) beyond() string {
	for _, fr := range t.short {
		if most := t.Queue.Potential(fr); t.Needs[fr] > most {
			return t.explain("the ClusterQueue may use at most %s", t.of(fr, most))
		}
	}
	return ""
}

// lacking returns why the preemptor would not fit even without all candidates, or
// nothing if it would.
func (t *simulation) lacking() string {
	if len(t.candidates) == 0 {
		return t.explain("no Workload that may be preempted uses %s", name(t.short[0]))
	}
	for _, fr := range t.short {
		had := max(0, t.Queue.Available(fr))
		for i := 0; i < len(t.candidates) && had < t.Needs[fr]; i++ {
			had = nodegroups.Plus(had, t.candidates[i].Usage[fr])
		}
		if had < t.Needs[fr] {
			return t.explain("only %s are free or used by Workloads that may be preempted", t.of(fr, had))
		}
	}
	return ""
}

// protected returns why candidates that use enough may not be preempted.
func (t *simulation) protected() string {
	fr := t.short[0]
	if t.Topology != nil {
		return t.explain("the Workloads that may be preempted do not free enough room in one place")
	}
	if t.FairSharing != nil {
		return t.explain("the ClusterQueues that use %s have no larger share, or would be below their nominal quota", name(fr))
	}
	for _, c := range t.candidates {
		if c.forbidsBorrowing {
			return t.explain("the ClusterQueue would have to borrow, and borrowWithinCohort does not let it preempt the Workloads that use %s",
				name(fr))
		}
	}
	return t.explain("the ClusterQueues that use %s would be below their nominal quota", name(fr))
}

// explain adds the fields that decide which Workloads are candidates.
func (t *simulation) explain(format string, args ...any) string {
	fields := []string{fmt.Sprintf("withinClusterQueue is %s", PolicyOf(t.Policy.WithinClusterQueue))}
	if len(t.path) > 1 {
		fields = append(fields, fmt.Sprintf("reclaimWithinCohort is %s", PolicyOf(t.Policy.ReclaimWithinCohort)))
	}
	if PolicyOf(t.Policy.WithinClusterQueue) != kueue.PreemptionPolicyNever ||
		len(t.path) > 1 && PolicyOf(t.Policy.ReclaimWithinCohort) != kueue.PreemptionPolicyNever {
		fields = append(fields, fmt.Sprintf("the priority is %d", t.Priority))
	}
	return fmt.Sprintf("preemption cannot help: %s (%s)", fmt.Sprintf(format, args...), strings.Join(fields, ", "))
}

// of formats an amount beside the amount that is needed.
func (t *simulation) of(fr quota.FlavorResource, v int64) string {
	return fmt.Sprintf("%s of %s %s", nodegroups.Quantity(fr.Resource, v), nodegroups.Quantity(fr.Resource, t.Needs[fr]), name(fr))
}

func name(fr quota.FlavorResource) string {
	return fmt.Sprintf("%s in flavor %s", fr.Resource, fr.Flavor)
}
