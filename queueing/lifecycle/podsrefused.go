package lifecycle

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// podsRefused ends the attempt of an admitted Workload whose pods the API server rejects, so that others can use its
// quota and machines. The cause may change without an event that is watched, so the Workload tries again with an
// exponential backoff.
func (s Rules) podsRefused(w *cache.Workload) *Verdict {
	c := apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadPodsReady)
	if !workload.IsAdmitted(w.Object) || c == nil || c.Status != metav1.ConditionFalse || c.Reason != workload.ReasonPodsRefused ||
		c.LastTransitionTime.Time.Before(workload.AdmittedSince(w.Object)) {
		return nil
	}
	message := fmt.Sprintf("The API server rejects the pods: %s", c.Message)
	// This is only a hint; no decision depends on it.
	if strings.Contains(c.Message, "exceeded quota") && !s.cache.Config.NamespaceQuota {
		message += " (with namespaceQuota in Muster's configuration a job waits for the ResourceQuota before it starts)"
	}
	return s.retryLater(w, workload.ReasonPodsRefused, "", message, "the API server rejects its pods: "+c.Message)
}
