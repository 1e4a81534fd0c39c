package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
)

// ReasonQuotaReused is the reason of Evicted where pods of a Workload run again and the quota that their end had released is in use. In
// Kueue released quota never comes back to a Workload, so it has no word for it.
const ReasonQuotaReused = "QuotaReused"

// tookBack stops a Workload whose pods run again if the quota that they took back was not free.
func (s Rules) tookBack(w *cache.Workload) *Verdict {
	if !w.TookBack || w.Queue == nil {
		return nil
	}
	for _, fr := range w.Usage.Keys() {
		if over := -w.Queue.Node.Available(fr); over > 0 {
			message := fmt.Sprintf("Pods that had ended run again, and the quota that was released for them is in use: %s of %s too much in flavor "+
				"%s of ClusterQueue %s", nodegroups.Quantity(fr.Resource, over), fr.Resource, fr.Flavor, w.Queue.Object.Name)
			return s.Evict(w, ReasonQuotaReused, message, kueue.WorkloadQuotaReservedReasonPendingEvaluation, time.Time{})
		}
	}
	w.TookBack = false
	return nil
}
