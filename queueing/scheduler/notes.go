package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// notes collects, for each flavor in the order in which it was tried, why it was not chosen. A message begins with
// Kueue's words for the cause, if it has any, because tools parse them; details of Muster follow a colon.
type notes []note

type note struct {
	flavor  kueue.ResourceFlavorReference
	podSet  kueue.PodSetReference
	code    string
	message string
}

// reasonOrder orders the reasons by how little has to change for the flavor to be chosen.
var reasonOrder = []string{
	workload.ReasonWaitingForCapacity,
	kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed,
	kueue.WorkloadQuotaReservedReasonWaitingForQuota,
	kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
	kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
}

// add keeps the first note on a flavor, unless a later one needs less change: with several podSets a flavor is tried
// repeatedly.
func (n *notes) add(now note) {
	for i := range *n {
		have := &(*n)[i]
		if have.flavor != now.flavor {
			continue
		}
		if slices.Index(reasonOrder, now.code) < slices.Index(reasonOrder, have.code) {
			*have = now
		}
		return
	}
	*n = append(*n, now)
}

// sort sorts the notes by the order of the flavors.
func (n notes) sort(flavors []kueue.ResourceFlavorReference) {
	slices.SortStableFunc(n, func(a, b note) int {
		return cmp.Compare(slices.Index(flavors, a.flavor), slices.Index(flavors, b.flavor))
	})
}

// reason returns the reason of the flavor for which the least has to change.
func (n notes) reason() string {
	if len(n) == 0 {
		return kueue.WorkloadQuotaReservedReasonNoMatchingFlavor
	}
	return slices.MinFunc(n, func(a, b note) int {
		return cmp.Compare(slices.Index(reasonOrder, a.code), slices.Index(reasonOrder, b.code))
	}).code
}

func (n notes) Message() string {
	if len(n) == 0 {
		return "The ClusterQueue has no flavor for this workload"
	}
	parts := make([]string, len(n))
	for i, x := range n {
		parts[i] = x.message
	}
	out := strings.Join(parts, "; ")
	if n.reason() == workload.ReasonWaitingForCapacity {
		return out
	}
	return fmt.Sprintf("couldn't assign flavors to pod set %s: %s", n[0].podSet, out)
}
