package queueing

import (
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ReasonPodsRefused is the reason of PodsReady=False where the API server lets no pods
// of a started job be created, and then of Evicted. Kueue has no word for it: there
// such a job keeps its quota until the timeout of waitForPodsReady.
const ReasonPodsRefused = "PodsRefused"

// PodsRefused is the status of an admitted Workload whose pods the API server refuses,
// with its words. The Workload is evicted for it.
func PodsRefused(w *kueue.Workload, words string, now time.Time) *kueue.WorkloadStatus {
	e := edit(w, now)
	// Its time is that of the refusal, even if the pods were not ready before.
	apimeta.RemoveStatusCondition(&e.status.Conditions, kueue.WorkloadPodsReady)
	e.set(kueue.WorkloadPodsReady, metav1.ConditionFalse, ReasonPodsRefused, words)
	return e.status
}

// turnedAway ends the attempt of an admitted Workload whose pods the API server
// refuses: quota and machines are for those that can use them. What refuses them may
// change without an event that is watched, so the Workload tries again after a pause
// that doubles.
func (s Rules) turnedAway(w *Workload) *Verdict {
	c := apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadPodsReady)
	if !IsAdmitted(w.Object) || c == nil || c.Status != metav1.ConditionFalse || c.Reason != ReasonPodsRefused ||
		c.LastTransitionTime.Time.Before(admittedSince(w.Object)) {
		return nil
	}
	message := fmt.Sprintf("The API server refuses the pods: %s", c.Message)
	// A hint, by which nothing is decided.
	if strings.Contains(c.Message, "exceeded quota") && !s.config.NamespaceQuota {
		message += " (with namespaceQuota in Muster's configuration a job waits for the ResourceQuota before it starts)"
	}
	return s.tryAgain(w, ReasonPodsRefused, "", message, "the API server refuses its pods: "+c.Message)
}
