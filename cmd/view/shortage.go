package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/scheduler"
)

// causes splits the message for the Workload into a line per flavor.
func causes(a *scheduler.Explanation) []string {
	perFlavor := shortages(a.Flavors)
	if hopeless(a.Flavors) != "" {
		return perFlavor
	}
	var lines []string
	for i := range a.Flavors {
		if o := &a.Flavors[i]; o.Message != "" {
			lines = append(lines, o.Message)
		}
	}
	_, rest, same := strings.Cut(a.Message, strings.Join(lines, "; "))
	switch rest = strings.TrimPrefix(rest, "; "); {
	case !same:
		return append([]string{plainly(a.Message)}, perFlavor...)
	case rest != "":
		return append(perFlavor, rest)
	}
	return perFlavor
}

// neverHasMachines reports whether no quota helps on a flavor.
func neverHasMachines(o *scheduler.FlavorExplanation) bool {
	return o.Plan != nil && o.Plan.Outcome == planner.Never
}

// noMachineSuits reports whether more machines of the NodeGroups, or dearer ones, would not help either.
func noMachineSuits(o *scheduler.FlavorExplanation) bool {
	return neverHasMachines(o) && !slices.ContainsFunc(o.Plan.Reasons, func(r planner.Reason) bool {
		return r.Code == planner.CodeMaxNodes || r.Code == planner.CodePrice
	})
}

// shortages returns why each flavor cannot be used.
func shortages(options []scheduler.FlavorExplanation) (out []string) {
	for i := range options {
		if o := &options[i]; o.Message != "" {
			out = append(out, shortageOf(o))
		}
	}
	return out
}

// shortageOf returns why a flavor cannot be used.
func shortageOf(o *scheduler.FlavorExplanation) string {
	if neverHasMachines(o) {
		return fmt.Sprintf("flavor %s: no machines can be had: %s", o.Flavor, o.Plan.Message())
	}
	return plainly(o.Message)
}

// compatible are the words for missing quota that tools know from Kueue and read in conditions, with what they are replaced by for people.
var compatible = []struct {
	words       *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`couldn't assign flavors to pod set \S+: `), ""},
	{regexp.MustCompile(`insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed: `), "flavor $2: $3 more $1 needed, "},
	{regexp.MustCompile(`insufficient quota for (\S+) in flavor (\S+), previously considered podsets requests \(0\) \+ current podset request ` +
		`\((\S+)\) > maximum capacity \((\S+)\)`), "flavor $2: $3 $1 requested, $4 at most"},
}

// plainly returns a message of a condition in words for people.
func plainly(message string) string {
	for _, c := range compatible {
		message = c.words.ReplaceAllString(message, c.replacement)
	}
	return message
}

// unblockQuota returns what would free or add the missing quota.
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
