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

// Advance moves a Workload that holds quota one step on: the first of these that
// has something to say.
func (s Rules) Advance(w *cache.Workload) *Verdict {
	object := w.Object
	if workload.IsEvicted(object) {
		return s.advanceEvicted(w)
	}
	// A finalizer may keep what is being deleted for as long as its user likes. It has its quota while its pods run.
	if !object.DeletionTimestamp.IsZero() && !workload.MayHold(object) {
		return s.Release(w, kueue.WorkloadQuotaReservedReasonPendingEvaluation, "The workload is being deleted, and nothing of it has started")
	}
	for _, step := range []func(*cache.Workload) *Verdict{s.stop, s.editedAdmission, s.tookBack, s.scaleDown,
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

// advanceEvicted waits for the pods to stop. The controller of the Workload knows
// when they have, and releases it; where nothing runs, there is no need to wait.
func (s Rules) advanceEvicted(w *cache.Workload) *Verdict {
	if workload.MayHold(w.Object) {
		return nil
	}
	return &Verdict{Workload: w, Action: Release, Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		Message: "The evicted workload has no running pods", Status: workload.Released(w.Object, s.now)}
}

// DeleteStale deletes what is no longer needed, on top of what else is decided about a
// Workload: its requests but those to keep, then itself.
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

// PausedUntil is when a Workload is judged again whose attempt has failed; zero if it
// does not pause.
func (s Rules) PausedUntil(w *cache.Workload) time.Time {
	if state := w.Object.Status.RequeueState; state != nil && state.RequeueAt != nil && s.now.Before(state.RequeueAt.Time) {
		return state.RequeueAt.Time
	}
	return time.Time{}
}

// Wait is the verdict for a Workload that stays pending; nil if it has been told
// just that.
func (s Rules) Wait(w *cache.Workload, reason, message string) *Verdict {
	// As it will be stored, else a long message would be news in every cycle.
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
