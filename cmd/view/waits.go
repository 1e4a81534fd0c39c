package view

import (
	"cmp"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/scheduler"
)

// CannotStart begins the words for a Workload that only another specification lets start.
const CannotStart = "cannot start as specified"

// waits is why a Workload waits. All views take their words from it, so that they agree.
type waits struct {
	reason, words, message string
	// never means that nothing which others do lets it start: it, its queue or the node groups have to change.
	never bool
}

// neverStarts are the reasons of Workloads that wait in vain.
var neverStarts = []string{
	kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
	kueue.WorkloadQuotaReservedReasonMisconfigured, checks.ReasonStartByPassed,
}

// whyWaits returns why a Workload waits: the reason decided here, or the one that Muster recorded.
func (p *Picture) whyWaits(w *kueue.Workload) waits {
	reason, message, _ := p.Queues.WaitingReason(w.UID)
	reason = cmp.Or(reason, kueue.WorkloadQuotaReservedReasonPendingEvaluation)
	out := waits{reason: reason, words: p.wordsFor(w, reason), message: plainly(message), never: slices.Contains(neverStarts, reason)}
	if !out.never {
		if h := p.hopeless(w); h.why != "" {
			out.withoutMachines(h.why)
			out.message = h.message
		}
	}
	return out
}

// withoutMachines marks that no NodeGroup can provide the machines, unless why is empty.
func (w *waits) withoutMachines(why string) {
	if why != "" {
		w.words, w.never = CannotStart+": "+why, true
	}
}

// queuedClass is an equivalence class of a ClusterQueue.
type queuedClass struct {
	queue kueue.ClusterQueueReference
	class cache.EquivalenceClass
}

// hopelessness is why Workloads can never get machines, in a phrase and by flavor; empty if they may.
type hopelessness struct{ why, message string }

// hopeless returns why a Workload can never get machines. It is computed once for each equivalence class.
func (p *Picture) hopeless(w *kueue.Workload) (out hopelessness) {
	queue, class, ok := p.Queues.EquivalenceClass(w.UID, p.Now)
	if !ok || !p.Decides() {
		return out
	}
	key := queuedClass{queue, class}
	out, known := p.hopelessOf[key]
	if !known {
		account, _ := p.Queues.Explain(w.UID, p.Now)
		out = hopelessness{hopeless(account.Flavors), strings.Join(shortages(account.Flavors), "; ")}
		p.hopelessOf[key] = out
	}
	return out
}

// hopeless returns why no flavor can ever get machines. It is empty if one may, or if something else is short.
func hopeless(options []scheduler.FlavorExplanation) (why string) {
	for i := range options {
		switch o := &options[i]; {
		case o.Reason == kueue.WorkloadQuotaReservedReasonNoMatchingFlavor || o.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota:
		case o.Plan == nil || o.Plan.Outcome != planner.Never:
			return ""
		case slices.ContainsFunc(o.Plan.Reasons, func(r planner.Reason) bool { return r.Code == planner.CodePrice }):
			why = "its machines cost more than its CapacityPolicy allows"
		default:
			why = cmp.Or(why, "no NodeGroup can provide its machines")
		}
	}
	return why
}
