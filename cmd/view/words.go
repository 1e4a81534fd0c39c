package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// words say for people what a reason of QuotaReserved=False means.
var words = map[string]string{
	queueing.ReasonWaitingForCapacity:                             "waits for machines",
	queueing.ReasonWaitingForNamespaceQuota:                       "waits for the ResourceQuota of its namespace",
	queueing.ReasonStartByPassed:                                  "does not start any more: the time by which it was to start has passed",
	kueue.WorkloadQuotaReservedReasonWaitingForQuota:              "waits for quota",
	kueue.WorkloadQuotaReservedReasonExceedsMaxQuota:              "can never start as it is: it asks for more than the whole quota",
	kueue.WorkloadQuotaReservedReasonNoMatchingFlavor:             "can never start as it is: no flavor of its queue suits it",
	kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads: "waits for others to stop, which make room for it",
	kueue.WorkloadQuotaReservedReasonWaitingForPodsReady:          "waits for the pods of others to be ready",
	kueue.WorkloadQuotaReservedReasonSuspended:                    "is held back: its queue is stopped or inactive",
	kueue.WorkloadQuotaReservedReasonMisconfigured:                "cannot be queued as it is",
	kueue.WorkloadQuotaReservedReasonPendingEvaluation:            "is about to be judged",
	kueue.WorkloadAdmissionGated:                                  "is held back by a gate",
	kueue.WorkloadDeactivated:                                     "is deactivated: somebody has to set spec.active of its Workload to true, or suspend to false in the job",
}

func inWords(reason string) string {
	if said, ok := words[reason]; ok {
		return said
	}
	return fmt.Sprintf("waits (%s)", reason)
}

// ago is how long ago something was.
func ago(now, then time.Time) string { return duration.HumanDuration(max(0, now.Sub(then))) }

// in is when something will be, as a time and from now.
func in(now, then time.Time) string {
	if !now.Before(then) {
		return "now"
	}
	return fmt.Sprintf("at %s (in %s)", then.UTC().Format(time.RFC3339), duration.HumanDuration(then.Sub(now)))
}
