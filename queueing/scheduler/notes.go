package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// notes collects, for each flavor in the order of the first look at it, why it
// was not taken. A message begins with the words that Kueue has for its cause, if it has
// any, since tools read them; what Muster adds comes after a colon.
type notes []note

type note struct {
	flavor  kueue.ResourceFlavorReference
	podSet  kueue.PodSetReference
	code    string
	message string
}

// hopefulFirst orders the reasons by how little has to happen for a flavor to be taken.
var hopefulFirst = []string{
	workload.ReasonWaitingForCapacity,
	kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed,
	kueue.WorkloadQuotaReservedReasonWaitingForQuota,
	kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
	kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
}

// add keeps what was said about a flavor first, unless something more hopeful
// is said later: with several podSets the same flavor is looked at often.
func (n *notes) add(now note) {
	for i := range *n {
		have := &(*n)[i]
		if have.flavor != now.flavor {
			continue
		}
		if slices.Index(hopefulFirst, now.code) < slices.Index(hopefulFirst, have.code) {
			*have = now
		}
		return
	}
	*n = append(*n, now)
}

// sort puts the notes in the order of the flavors.
func (n notes) sort(flavors []kueue.ResourceFlavorReference) {
	slices.SortStableFunc(n, func(a, b note) int {
		return cmp.Compare(slices.Index(flavors, a.flavor), slices.Index(flavors, b.flavor))
	})
}

// reason is that of the flavor that is nearest to being taken.
func (n notes) reason() string {
	if len(n) == 0 {
		return kueue.WorkloadQuotaReservedReasonNoMatchingFlavor
	}
	return slices.MinFunc(n, func(a, b note) int {
		return cmp.Compare(slices.Index(hopefulFirst, a.code), slices.Index(hopefulFirst, b.code))
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
