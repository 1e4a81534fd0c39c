package queueing

import (
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// advance moves a Workload that holds quota one step on.
func (s *State) advance(w *Workload) *Verdict {
	object := w.Object
	if !object.DeletionTimestamp.IsZero() {
		return nil
	}
	if IsEvicted(object) {
		return s.advanceEvicted(w)
	}
	if v := s.stop(w); v != nil {
		return v
	}
	if v := s.answered(w); v != nil {
		return v
	}
	if IsAdmitted(object) {
		return s.expired(w)
	}
	return s.advanceChecks(w)
}

// expired ends an attempt whose booking ran out or broke after the Workload was
// admitted: pods that are not there yet would wait for machines that are gone.
// Nothing else that becomes of a request is a running job's business, least of
// all that all its pods have come.
func (s *State) expired(w *Workload) *Verdict {
	for i := range w.Object.Status.AdmissionChecks {
		state := &w.Object.Status.AdmissionChecks[i]
		if !s.isCapacity(state.Name) {
			continue
		}
		name := RequestName(w.Object.Name, state.Name, retries(state)+1)
		for _, r := range s.requests[w.Object.UID] {
			c := apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.BookingExpired)
			if r.Name == name && c != nil && c.Status == metav1.ConditionTrue && c.Reason == provisioning.ReasonReservationExpired {
				return s.failed(w, autoscaling.BookingExpired, c.Message)
			}
		}
	}
	return nil
}

// advanceEvicted waits for the pods to stop. Whoever controls the Workload knows
// when they have, and releases it; where nothing runs, there is no need to wait.
func (s *State) advanceEvicted(w *Workload) *Verdict {
	if mayRun(w.Object) {
		return nil
	}
	return &Verdict{Workload: w, Action: Release, Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		Message: "Nothing of the evicted workload runs", Status: Released(w.Object, s.now)}
}

// mayRun says that pods of the Workload may be there: it has been admitted, and
// somebody runs it.
func mayRun(w *kueue.Workload) bool { return IsAdmitted(w) && metav1.GetControllerOf(w) != nil }

// stop evicts a Workload that a person has stopped: itself, its LocalQueue or
// its ClusterQueue. Hold stops those that are not admitted yet, HoldAndDrain all.
func (s *State) stop(w *Workload) *Verdict {
	admitted := IsAdmitted(w.Object)
	stops := func(p *kueue.StopPolicy) bool { return drains(p) || isStopped(p) && !admitted }
	if !IsActive(w.Object) {
		reason, message := kueue.WorkloadDeactivated, "The workload is deactivated"
		if rejected := checkIn(w.Object, kueue.CheckStateRejected); rejected != nil {
			reason += "DueTo" + kueue.WorkloadEvictedByAdmissionCheck
			message = fmt.Sprintf("The workload is deactivated due to AdmissionCheck %s: %s", rejected.Name, rejected.Message)
		}
		return s.evict(w, reason, message, kueue.WorkloadDeactivated, time.Time{})
	}
	if lq := s.localQueueOf(w); lq != nil && stops(lq.Spec.StopPolicy) {
		return s.evict(w, kueue.WorkloadEvictedByLocalQueueStopped, "The LocalQueue is stopped", kueue.WorkloadQuotaReservedReasonSuspended, time.Time{})
	}
	switch q := s.queues[w.Object.Status.Admission.ClusterQueue]; {
	case q != nil && stops(q.object.Spec.StopPolicy):
		return s.evict(w, kueue.WorkloadEvictedByClusterQueueStopped, "The ClusterQueue is stopped", kueue.WorkloadQuotaReservedReasonSuspended, time.Time{})
	case (q == nil || !q.object.DeletionTimestamp.IsZero()) && !admitted:
		e := edit(w.Object, s.now)
		e.resetChecks()
		message := fmt.Sprintf("ClusterQueue %s is terminating or missing", w.Object.Status.Admission.ClusterQueue)
		e.release(kueue.WorkloadQuotaReservedReasonMisconfigured, message)
		return &Verdict{Workload: w, Action: Release, Reason: kueue.WorkloadQuotaReservedReasonMisconfigured, Message: message, Status: e.status}
	}
	return nil
}

// evict stops a Workload. Its quota goes with the same write where nothing of it
// can be running; pending is then the reason of QuotaReserved=False. It is
// judged again from requeueAt on; zero is at once.
func (s *State) evict(w *Workload, reason, message, pending string, requeueAt time.Time) *Verdict {
	e := edit(w.Object, s.now)
	e.evict(reason, message)
	if !requeueAt.IsZero() {
		e.pause(requeueAt)
	}
	if !mayRun(w.Object) {
		e.release(pending, message)
	}
	return &Verdict{Workload: w, Action: Evict, Reason: reason, Message: message, Status: e.status}
}

// pause keeps the Workload from being judged until a time.
func (e *editor) pause(until time.Time) {
	if e.status.RequeueState == nil {
		e.status.RequeueState = &kueue.RequeueState{}
	}
	e.status.RequeueState.RequeueAt = new(metav1.NewTime(until))
}

// answered obeys a check whose controller wants the Workload stopped, whether it
// is admitted by now or not.
func (s *State) answered(w *Workload) *Verdict {
	if rejected := checkIn(w.Object, kueue.CheckStateRejected); rejected != nil {
		return &Verdict{Workload: w, Action: Deactivate, Reason: "AdmissionCheckRejected", Message: fmt.Sprintf(
			"Deactivating workload because AdmissionCheck for %s was Rejected: %s", rejected.Name, rejected.Message)}
	}
	if retry := checkIn(w.Object, kueue.CheckStateRetry); retry != nil {
		var at time.Time
		if retry.RequeueAfterSeconds != nil {
			at = s.now.Add(time.Duration(*retry.RequeueAfterSeconds) * time.Second)
		}
		return s.evict(w, kueue.WorkloadEvictedByAdmissionCheck, fmt.Sprintf("At least one admission check is in Retry: %s: %s", retry.Name, retry.Message),
			kueue.WorkloadQuotaReservedReasonPendingEvaluation, at)
	}
	return nil
}

// advanceChecks looks at the checks of a Workload that waits for them.
func (s *State) advanceChecks(w *Workload) *Verdict {
	e := edit(w.Object, s.now)
	v := &Verdict{Workload: w, Action: Advance}
	changed := s.syncChecks(w, e)
	for i := range e.status.AdmissionChecks {
		state := &e.status.AdmissionChecks[i]
		step, ours := s.serve(w, e.status.AdmissionChecks, state)
		if !ours {
			continue
		}
		if step.evict != nil {
			return step.evict
		}
		changed = e.setCheck(state, step) || changed
		v.Create, v.Delete = step.create, step.delete
		if changed {
			v.Reason, v.Message = "AdmissionCheckUpdated", fmt.Sprintf("Admission check %s is %s: %s", state.Name, state.State, state.Message)
		}
	}
	if allReady(e.status.AdmissionChecks) {
		e.admit()
		changed = true
		v.Action, v.Reason = Admit, "Admitted"
		v.Message = fmt.Sprintf("Admitted by ClusterQueue %s, wait time since reservation was %.0fs",
			w.Object.Status.Admission.ClusterQueue, max(0, s.now.Sub(reservedSince(w.Object)).Seconds()))
	}
	if changed {
		v.Status = e.status
	}
	if !changed && v.Create == nil && len(v.Delete) == 0 {
		return nil
	}
	return v
}

// syncChecks follows the queue's spec: checks that it has gained are Pending,
// those that it has lost are forgotten.
func (s *State) syncChecks(w *Workload, e *editor) (changed bool) {
	q := s.queues[w.Object.Status.Admission.ClusterQueue]
	if q == nil {
		return false
	}
	want := s.fresh(w, checksFor(q.object, assignedFlavors(w.Object.Status.Admission)))
	same := len(want) == len(e.status.AdmissionChecks)
	for i := range want {
		if have := findCheck(e.status.AdmissionChecks, want[i].Name); have != nil {
			want[i] = *have
		} else {
			same = false
		}
	}
	if !same {
		e.status.AdmissionChecks = want
	}
	return !same
}

func checkIn(w *kueue.Workload, state kueue.CheckState) *kueue.AdmissionCheckState {
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.State == state {
			return c
		}
	}
	return nil
}

func allReady(states []kueue.AdmissionCheckState) bool {
	for i := range states {
		if states[i].State != kueue.CheckStateReady {
			return false
		}
	}
	return true
}

func reservedSince(w *kueue.Workload) time.Time {
	for _, c := range w.Status.Conditions {
		if c.Type == kueue.WorkloadQuotaReserved {
			return c.LastTransitionTime.Time
		}
	}
	return w.CreationTimestamp.Time
}
