package lifecycle

import (
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/workload"
)

// evictOnLostBooking ends an attempt whose booking expired or was revoked after the Workload was admitted, because pods
// that are not created yet would wait for machines that are gone. It also ends it if machines with running pods were
// lost, unless the CapacityPolicy says otherwise. No other condition of a request affects a running job, especially not
// that all of its pods have been bound.
func (s Rules) evictOnLostBooking(w *cache.Workload) *Verdict {
	for _, r := range s.cache.Slices.Inherited(w) {
		if c := apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.CapacityRevoked); c != nil && c.Status == metav1.ConditionTrue {
			return s.evictOnRevoked(w, c)
		}
	}
	for i := range w.Object.Status.AdmissionChecks {
		state := &w.Object.Status.AdmissionChecks[i]
		if !s.cache.IsCapacity(state.Name) {
			continue
		}
		name := checks.RequestName(w.Object.Name, state.Name, workload.Retries(state)+1)
		for _, r := range s.cache.Requests[w.Object.UID] {
			if r.Name != name {
				continue
			}
			if c := apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.CapacityRevoked); c != nil && c.Status == metav1.ConditionTrue {
				return s.evictOnRevoked(w, c)
			}
			c := apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.BookingExpired)
			if c != nil && c.Status == metav1.ConditionTrue && c.Reason == transaction.ReasonReservationExpired {
				return s.attemptFailed(w, autoscaling.BookingExpired, c.Message, time.Time{})
			}
		}
	}
	return nil
}

// evictOnRevoked evicts a Workload whose capacity is revoked. Lost machines are no failure of the attempt, so the next
// one starts at once. Pods that could not start are likely to fail again, so they back off.
func (s Rules) evictOnRevoked(w *cache.Workload, revoked *metav1.Condition) *Verdict {
	var v *Verdict
	if revoked.Reason == transaction.ReasonPodsNotStarted {
		v = s.retryLater(w, kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadWaitForStart, revoked.Message, revoked.Message)
	} else {
		message := fmt.Sprintf("%s: %s", outcome(workload.AssignedFlavors(w.Object.Status.Admission), "machines with its pods were lost"),
			revoked.Message)
		v = s.Evict(w, kueue.WorkloadEvictedByAdmissionCheck, message, workload.ReasonWaitingForCapacity, time.Time{})
	}
	v.Delete = cache.Existing(s.cache.Requests[w.Object.UID])
	return v
}

// WithoutQuota turns the end of an attempt into one without quota: no pods are stopped.
func WithoutQuota(w *cache.Workload, v *Verdict) *Verdict {
	v.Workload, v.Action = w, Release
	w.Reason, w.Message = "", ""
	return v
}

// attemptFailed ends an attempt. The next one starts after a backoff, not before notBefore.
func (s Rules) attemptFailed(w *cache.Workload, condition, why string, notBefore time.Time) *Verdict {
	var count int32
	if s := w.Object.Status.RequeueState; s != nil && s.Count != nil && !workload.IsAdmitted(w.Object) {
		count = *s.Count
	}
	count++
	var pause time.Duration
	what := checks.NotObtained
	switch condition {
	case checks.NotCreated:
		what = "the request for capacity could not be created"
		pause = workload.Backoff(checks.FailurePause, count-1, checks.MaxFailurePause)
	case autoscaling.Failed:
		what = "the request for capacity failed"
		pause = workload.Backoff(checks.FailurePause, count-1, checks.MaxFailurePause)
	case autoscaling.BookingExpired:
		what = "the booking expired before all pods were bound"
	case autoscaling.CapacityRevoked:
		what = "booked machines were lost before the workload was admitted"
	}
	if rounds := count / s.choices(w); pause == 0 && rounds*s.choices(w) == count {
		pause = workload.Backoff(checks.StockoutPause, rounds-1, checks.MaxStockoutPause)
	}
	pause = max(pause, notBefore.Sub(s.now))
	message := fmt.Sprintf("%s: %s", outcome(workload.AssignedFlavors(w.Object.Status.Admission), what), why)
	var at time.Time
	if pause > 0 {
		at = s.now.Add(pause)
		message += fmt.Sprintf("; the next attempt is at %s", at.UTC().Format(time.RFC3339))
	}
	v := s.Evict(w, kueue.WorkloadEvictedByAdmissionCheck, message, workload.ReasonWaitingForCapacity, at)
	if v.Status.RequeueState == nil {
		v.Status.RequeueState = &kueue.RequeueState{}
	}
	v.Status.RequeueState.Count = new(count)
	v.Delete = cache.Existing(s.cache.Requests[w.Object.UID])
	if what == checks.NotObtained {
		v.Unobtained = workload.AssignedFlavors(w.Object.Status.Admission)
	}
	return v
}

// choices returns how many flavors of its queue match some pods of the Workload.
func (s Rules) choices(w *cache.Workload) int32 {
	q := s.cache.Queues[w.Object.Status.Admission.ClusterQueue]
	if q == nil {
		return 1
	}
	suiting := slices.DeleteFunc(cache.FlavorsOf(q.Object), func(name kueue.ResourceFlavorReference) bool {
		flavor := s.cache.Flavors[name]
		return flavor == nil || !slices.ContainsFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool {
			return workload.Mismatch(s.cache.CompletePodSpec(w.Object.Namespace, &ps.Template.Spec), flavor) == ""
		})
	})
	return max(1, int32(len(suiting)))
}

// RefusedRequest returns the verdict on a Workload whose ProvisioningRequest the API server rejects; nil if the
// Workload no longer needs one.
func (s Rules) RefusedRequest(w *cache.Workload, why string) *Verdict {
	switch {
	case w.Phase == cache.Reserving:
		w.Busy = true
		return s.attemptFailed(w, checks.NotCreated, why, time.Time{})
	case w.Phase == cache.Pending && w.ProvisionFirst != nil:
		w.Busy = true
		return WithoutQuota(w, s.attemptFailed(w.WithObject(w.ProvisionFirst), checks.NotCreated, why, time.Time{}))
	}
	return nil
}

// outcome is the beginning of the message of an eviction that ended an attempt.
func outcome(flavors []kueue.ResourceFlavorReference, what string) string {
	return fmt.Sprintf("On flavors %v %s", flavors, what)
}
