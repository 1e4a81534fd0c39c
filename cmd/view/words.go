package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
)

// words maps a reason of QuotaReserved=False to a phrase that follows the object's name.
var words = map[string]string{
	workload.ReasonWaitingForCapacity:                             "waits for machines",
	scheduler.ReasonWaitingForNamespaceQuota:                      "waits for the ResourceQuota of its namespace",
	checks.ReasonStartByPassed:                                    CannotStart + ": the time by which it was to start has passed",
	kueue.WorkloadQuotaReservedReasonWaitingForQuota:              "waits for quota",
	kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed:      "waits for room in one place",
	kueue.WorkloadQuotaReservedReasonExceedsMaxQuota:              CannotStart + ": it requests more than the maximum quota",
	kueue.WorkloadQuotaReservedReasonNoMatchingFlavor:             CannotStart + ": no flavor of its ClusterQueue matches it",
	kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads: "waits for preempted workloads to stop",
	kueue.WorkloadQuotaReservedReasonWaitingForPodsReady:          "waits for the pods of other workloads to be ready",
	kueue.WorkloadQuotaReservedReasonSuspended:                    "is held: its queue is stopped or inactive",
	kueue.WorkloadQuotaReservedReasonMisconfigured:                CannotStart + ": Muster cannot queue it",
	kueue.WorkloadQuotaReservedReasonPendingEvaluation:            "is about to be evaluated",
	kueue.WorkloadAdmissionGated:                                  "is held by an admission gate",
	kueue.WorkloadDeactivated: "is held: to queue it again, use `kubectl muster release`, or set spec.active of its " +
		"Workload to true, or suspend to false in the job",
}

func inWords(reason string) string {
	if said, ok := words[reason]; ok {
		return said
	}
	return fmt.Sprintf("waits (%s)", reason)
}

// wordsFor returns the phrase for a Workload that waits for that reason. After an attempt that failed it pauses, and has no other reason.
func (p *Picture) wordsFor(w *kueue.Workload, reason string) string {
	state := w.Status.RequeueState
	if reason == kueue.WorkloadQuotaReservedReasonPendingEvaluation && state != nil && state.RequeueAt != nil &&
		p.Now.Before(state.RequeueAt.Time) {
		return "pauses after an attempt that failed: the next is " + in(p.Now, state.RequeueAt.Time)
	}
	return inWords(reason)
}

// ago returns the age of a past time.
func ago(now, then time.Time) string { return duration.HumanDuration(max(0, now.Sub(then))) }

// in formats a future time, absolute and from now.
func in(now, then time.Time) string {
	if !now.Before(then) {
		return "now"
	}
	return fmt.Sprintf("at %s (in %s)", then.UTC().Format(time.RFC3339), duration.HumanDuration(then.Sub(now)))
}
