package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
)

// ReasonQuotaReused is the reason of Evicted if pods of a Workload run again and other Workloads already use the quota
// that was released when they ended. In Kueue, released quota never returns to a Workload, so Kueue has no reason for
// it.
const ReasonQuotaReused = "QuotaReused"

// quotaRestored evicts a Workload whose pods run again if their quota is no longer free.
func (s Rules) quotaRestored(w *cache.Workload) *Verdict {
	if !w.QuotaRestored || w.Queue == nil {
		return nil
	}
	for _, fr := range w.Usage.Keys() {
		if over := -w.Queue.Node.Available(fr); over > 0 {
			message := fmt.Sprintf("Pods that had ended run again, and the quota that was released for them is in use: %s of %s too much in flavor "+
				"%s of ClusterQueue %s", nodegroups.Quantity(fr.Resource, over), fr.Resource, fr.Flavor, w.Queue.Object.Name)
			return s.Evict(w, ReasonQuotaReused, message, kueue.WorkloadQuotaReservedReasonPendingEvaluation, time.Time{})
		}
	}
	w.QuotaRestored = false
	return nil
}
