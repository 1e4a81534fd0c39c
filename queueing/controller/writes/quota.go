package writes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// ExpireQuotas ends temporary quotas of a ClusterQueue, and records Events of it.
func (w *Writer) ExpireQuotas(ctx context.Context, cq *kueue.ClusterQueue, e *quota.Expiry) (*kueue.ClusterQueue, error) {
	out := cq.DeepCopy()
	if err := w.Client.Patch(ctx, out, client.RawPatch(types.JSONPatchType, e.Patch)); err != nil {
		if !IsStale(err) {
			w.Event(cq, corev1.EventTypeWarning, "QuotaNotRestored",
				fmt.Sprintf("%s names temporary quotas that have ended, and they cannot be restored: %s; correct the ClusterQueue, or remove the "+
					"annotation", quota.TemporaryAnnotation, err))
		}
		return nil, err
	}
	for _, t := range e.Restored {
		w.Event(cq, corev1.EventTypeNormal, "QuotaRestored", fmt.Sprintf("nominalQuota of %s in flavor %s is %s again: it was %s until %s",
			t.Resource, t.Flavor, t.Former.String(), t.Set.String(), t.Until.Format(time.RFC3339)))
	}
	for _, t := range e.Edited {
		w.Event(cq, corev1.EventTypeNormal, "QuotaEdited", fmt.Sprintf("nominalQuota of %s in flavor %s is not %s any more, as was set until "+
			"%s: the edit stays, and %s is not restored then", t.Resource, t.Flavor, t.Set.String(),
			t.Until.Format(time.RFC3339), t.Former.String()))
	}
	for _, entry := range e.Unreadable {
		w.Event(cq, corev1.EventTypeWarning, "QuotaNotRestored", fmt.Sprintf("%s had %q, which is not FLAVOR RESOURCE FORMER SET UNTIL: it is "+
			"removed, and no quota is restored; use kubectl muster set-quota", quota.TemporaryAnnotation, entry))
	}
	return out, nil
}
