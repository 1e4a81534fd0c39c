package writes

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

// logVerdict writes the line of a verdict that was carried out; a Workload that waits has its reason in a condition alone.
func logVerdict(ctx context.Context, v *lifecycle.Verdict, object *kueue.Workload) {
	message := ""
	switch v.Action {
	case lifecycle.Reserve:
		if message = "Quota is reserved"; v.Status != nil && len(v.Status.AdmissionChecks) == 0 {
			message = "A workload is admitted"
		}
	case lifecycle.Admit:
		message = "A workload is admitted"
	case lifecycle.Evict:
		if message = "A workload is evicted"; v.Reason == kueue.WorkloadEvictedByPreemption {
			message = "A workload is preempted"
		}
	case lifecycle.Deactivate:
		message = "A workload is deactivated"
	default:
		return
	}
	name, queue := client.ObjectKeyFromObject(object).String(), ""
	if v.Status != nil && v.Status.Admission != nil {
		queue = string(v.Status.Admission.ClusterQueue)
	}
	journal.Write(ctx, message, name, journal.Workload, name, "clusterQueue", queue, journal.Reason, v.Reason, journal.Cause, v.Message)
}
