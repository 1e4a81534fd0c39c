package view

import (
	"fmt"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/scheduler"
)

// causes splits the message for the Workload into a line per flavor.
func causes(a *scheduler.Explanation) []string {
	var lines, told []string
	for i := range a.Flavors {
		if o := &a.Flavors[i]; o.Message != "" {
			lines, told = append(lines, o.Message), append(told, shortagesOf(o)...)
		}
	}
	_, rest, same := strings.Cut(a.Message, strings.Join(lines, "; "))
	switch rest = strings.TrimPrefix(rest, "; "); {
	case !same:
		return append([]string{a.Message}, told...)
	case rest != "":
		return append(told, rest)
	}
	return told
}

// neverHasMachines reports whether no quota helps on a flavor.
func neverHasMachines(o *scheduler.FlavorExplanation) bool {
	return o.Plan != nil && o.Plan.Outcome == planner.Never
}

// shortagesOf says why a flavor is not taken. The message of the option begins with Kueue's words, which tools
// read in the condition.
func shortagesOf(o *scheduler.FlavorExplanation) (out []string) {
	if neverHasMachines(o) {
		return []string{fmt.Sprintf("flavor %s: no machines can be had: %s", o.Flavor, o.Plan.Message())}
	}
	if o.Reason != kueue.WorkloadQuotaReservedReasonWaitingForQuota && o.Reason != kueue.WorkloadQuotaReservedReasonExceedsMaxQuota {
		return []string{o.Message}
	}
	for _, a := range o.Quota {
		show := func(v int64) string { return nodegroups.Quantity(a.Resource, v) }
		borrowed := ""
		if a.Borrowable > 0 {
			borrowed = fmt.Sprintf(", %s of it by borrowing", show(a.Borrowable))
		}
		switch {
		case a.Requested > a.Maximum:
			out = append(out, fmt.Sprintf("flavor %s: it requests %s %s, and the queue can have %s at most%s", o.Flavor, show(a.Requested), a.Resource,
				show(a.Maximum), borrowed))
		case a.Short() > 0:
			out = append(out, fmt.Sprintf("flavor %s: %s more %s needed, %s of %s are free%s", o.Flavor, show(a.Short()), a.Resource, show(a.Free),
				show(a.Maximum), borrowed))
		}
	}
	if len(out) == 0 {
		return []string{o.Message}
	}
	return out
}

// unblockQuota tells what would make up for missing quota.
func unblockQuota(a *scheduler.Explanation, o *scheduler.FlavorExplanation, amount scheduler.Amount) []string {
	show := func(v int64) string {
		return fmt.Sprintf("%s %s", nodegroups.Quantity(amount.Resource, v), amount.Resource)
	}
	switch {
	case o.Reason == kueue.WorkloadQuotaReservedReasonNoMatchingFlavor || amount.Short() == 0 || neverHasMachines(o):
		return nil
	case amount.Requested > amount.Maximum:
		return []string{fmt.Sprintf("flavor %s: request %s less, or ask an administrator to raise nominalQuota of ClusterQueue %s by that amount",
			o.Flavor, show(amount.Requested-amount.Maximum), a.Queue)}
	}
	return []string{fmt.Sprintf("flavor %s: the workloads listed below release %s, or an administrator raises nominalQuota of ClusterQueue "+
		"%s by that amount", o.Flavor, show(amount.Short()), a.Queue)}
}
