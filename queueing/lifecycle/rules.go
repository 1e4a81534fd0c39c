package lifecycle

import (
	"cmp"
	"slices"
	"time"

	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Advance returns the next step of a Workload with quota: the first verdict of the rules.
func (s Rules) Advance(w *cache.Workload) *Verdict {
	object := w.Object
	if workload.IsEvicted(object) {
		return s.advanceEvicted(w)
	}
	// A finalizer may keep a deleted Workload for any time. It has quota while its pods run.
	if !object.DeletionTimestamp.IsZero() && !workload.MayHold(object) {
		return s.Release(w, kueue.WorkloadQuotaReservedReasonPendingEvaluation, "The workload is being deleted, and nothing of it has started")
	}
	for _, step := range []func(*cache.Workload) *Verdict{s.stop, s.editedAdmission, s.quotaRestored, s.scaleDown,
		s.AnsweredChecks, s.podsRefused, s.executionTime, s.podsReady} {
		if v := step(w); v != nil {
			return v
		}
	}
	if workload.IsAdmitted(object) {
		if v := s.evictOnLostBooking(w); v != nil {
			return v
		}
		if v := s.replaceNodes(w); v != nil {
			return v
		}
		return s.revoked(w)
	}
	v, again := s.AdvanceChecks(w)
	s.cache.Wake(w, again)
	return v
}

// advanceEvicted waits until the pods have stopped. The controller of the job then releases the quota. If no pods can
// be running, it releases the quota itself.
func (s Rules) advanceEvicted(w *cache.Workload) *Verdict {
	if workload.MayHold(w.Object) {
		return nil
	}
	return &Verdict{Workload: w, Action: Release, Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		Message: "The evicted workload has no running pods", Status: workload.Released(w.Object, s.now)}
}

// DeleteStale extends a verdict by the deletion of what is no longer needed: the Workload's requests except those to
// keep, then the Workload itself.
func (s Rules) DeleteStale(w *cache.Workload, v *Verdict, keep ...*autoscaling.ProvisioningRequest) *Verdict {
	removal, requests := s.retention(w), s.cache.Requests.Of(w)
	if removal == nil && len(requests) > 0 && workload.IsFinished(w.Object) && s.cache.Slices.HasHeir(w) {
		return v
	}
	var stale []*autoscaling.ProvisioningRequest
	for _, r := range requests {
		if r.DeletionTimestamp.IsZero() && !slices.Contains(keep, r) {
			stale = append(stale, r)
		}
	}
	if len(stale) == 0 {
		return cmp.Or(removal, v)
	}
	if v == nil {
		v = &Verdict{Workload: w, Action: Wait}
	}
	v.Delete = stale
	return v
}

// PausedUntil returns when a Workload that backs off is evaluated again; zero if it does not.
func (s Rules) PausedUntil(w *cache.Workload) time.Time {
	if state := w.Object.Status.RequeueState; state != nil && state.RequeueAt != nil && s.now.Before(state.RequeueAt.Time) {
		return state.RequeueAt.Time
	}
	return time.Time{}
}

// Wait returns the verdict that a Workload stays pending; nil if its condition already says so.
func (s Rules) Wait(w *cache.Workload, reason, message string) *Verdict {
	// Compare what will be stored; a longer message would differ in every cycle.
	message = text.Clip(message, workload.MaxMessage)
	if w.Reason == reason && w.Message == message {
		return nil
	}
	w.Reason, w.Message = reason, message
	status := workload.Waiting(w.Object, w.Requested(), reason, message, s.now)
	if status == nil {
		return nil
	}
	return &Verdict{Workload: w, Action: Wait, Reason: reason, Message: message, Status: status}
}
