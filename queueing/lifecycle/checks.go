package lifecycle

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/workload"
)

// AnsweredChecks returns the verdict required by a check that is Rejected or Retry, whether the Workload is admitted or
// not.
func (s Rules) AnsweredChecks(w *cache.Workload) *Verdict {
	if rejected := workload.ChecksIn(w.Object, kueue.CheckStateRejected); len(rejected) > 0 {
		return s.requestDeactivation(w, kueue.WorkloadEvictedByAdmissionCheck, workload.DescribeChecks(rejected))
	}
	if retry := workload.ChecksIn(w.Object, kueue.CheckStateRetry); len(retry) > 0 {
		return s.Evict(w, kueue.WorkloadEvictedByAdmissionCheck, "Evicted due to "+workload.DescribeChecks(retry),
			kueue.WorkloadQuotaReservedReasonPendingEvaluation, workload.RetryAt(w.Object))
	}
	return nil
}

// AdvanceChecks evaluates the checks of a Workload that waits for them. Again is when to evaluate them without an
// event; zero is never.
func (s Rules) AdvanceChecks(w *cache.Workload) (v *Verdict, again time.Time) {
	e := workload.Edit(w.Object, s.now)
	v = &Verdict{Workload: w, Action: Advance}
	changed := s.syncChecks(w, e)
	if changed {
		v.Reason, v.Message = "AdmissionCheckUpdated", "The admission checks of the ClusterQueue have changed"
	}
	for i := range e.Status.AdmissionChecks {
		state := &e.Status.AdmissionChecks[i]
		step, ours := s.checks.Serve(w, e.Status.AdmissionChecks, state)
		if !ours {
			continue
		}
		if step.Ended != nil {
			return s.endAttempt(w, step.Ended), again
		}
		again = workload.Earliest(again, step.Until)
		changed = step.Write(state, s.now) || changed
		// One request per verdict; the next is created once this one is settled.
		v.Create = cmp.Or(v.Create, step.Create)
		v.Delete = append(v.Delete, step.Delete...)
		if changed {
			v.Reason, v.Message = "AdmissionCheckUpdated", fmt.Sprintf("Admission check %s is %s: %s", state.Name, state.State, state.Message)
		}
	}
	ready := workload.AllReady(e.Status.AdmissionChecks)
	if ready && workload.AwaitsTopology(e.Status.Admission) {
		if why := s.placeOnBooked(w, e); why != "" {
			ready = false
			changed = e.AwaitsTopology(why) || changed
			again = workload.Earliest(again, s.now.Add(nodesLookAgain))
			v.Reason, v.Message = kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests, why
		}
	}
	if ready {
		e.Admit()
		changed = true
		v.Action, v.Reason = Admit, "Admitted"
		v.Message = fmt.Sprintf("Admitted by ClusterQueue %s, wait time since reservation was %.0fs",
			w.Object.Status.Admission.ClusterQueue, max(0, s.now.Sub(workload.ReservedSince(w.Object)).Seconds()))
	}
	if changed {
		v.Status = e.Status
	}
	if !changed && v.Create == nil && len(v.Delete) == 0 {
		return nil, again
	}
	return v, again
}

// endAttempt ends an attempt to obtain machines.
func (s Rules) endAttempt(w *cache.Workload, over *checks.AttemptEnd) *Verdict {
	if over.StartBy.IsZero() {
		return s.attemptFailed(w, over.Condition, over.Why, over.NotBefore)
	}
	v := s.Evict(w, kueue.WorkloadEvictedByAdmissionCheck, checks.TooLate(over.StartBy), checks.ReasonStartByPassed, time.Time{})
	v.Delete = cache.Existing(s.cache.Requests[w.Object.UID])
	return v
}

// syncChecks updates the checks to the queue's spec: new ones are Pending, removed ones are deleted.
func (s Rules) syncChecks(w *cache.Workload, e *workload.Editor) (changed bool) {
	q := s.cache.Queues[w.Object.Status.Admission.ClusterQueue]
	if q == nil {
		return false
	}
	want := s.NewCheckStates(w, cache.ChecksFor(q.Object, workload.AssignedFlavors(w.Object.Status.Admission)))
	same := len(want) == len(e.Status.AdmissionChecks)
	for i := range want {
		if have := workload.FindCheck(e.Status.AdmissionChecks, want[i].Name); have != nil {
			want[i] = *have
		} else {
			same = false
		}
	}
	if !same {
		e.Status.AdmissionChecks = want
	}
	return !same
}

// revoked evaluates the requests of Kueue's checks of an admitted Workload: their capacity may have been revoked.
func (s Rules) revoked(w *cache.Workload) *Verdict {
	e := workload.Edit(w.Object, s.now)
	for i := range e.Status.AdmissionChecks {
		state := &e.Status.AdmissionChecks[i]
		if !s.cache.IsRequest(state.Name) {
			continue
		}
		step := s.checks.RequestStep(w, e.Status.AdmissionChecks, state)
		if over := step.State == kueue.CheckStateRetry || step.State == kueue.CheckStateRejected; over && step.Write(state, s.now) {
			return &Verdict{Workload: w, Action: Advance, Status: e.Status, Reason: "AdmissionCheckUpdated",
				Message: fmt.Sprintf("Admission check %s is %s: %s", state.Name, state.State, state.Message)}
		}
	}
	return nil
}

// NewCheckStates returns the states of the checks at the start of an attempt.
func (s Rules) NewCheckStates(w *cache.Workload, names []kueue.AdmissionCheckReference) []kueue.AdmissionCheckState {
	out := make([]kueue.AdmissionCheckState, 0, len(names))
	for _, name := range names {
		state := kueue.AdmissionCheckState{
			Name: name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(s.now), RetryCount: s.checks.RetryCount(w, name),
		}
		request := checks.RequestName(w.Object.Name, name, workload.Retries(&state)+1)
		if s.cache.IsCapacity(name) {
			state.Message = checks.WaitingFor(request)
		} else if config := s.requestConfig(name); config != nil {
			state.Message = checks.WaitingForProvisioner(request, config.ProvisioningClassName)
		}
		out = append(out, state)
	}
	return out
}

// requestConfig returns the ProvisioningRequestConfig of a check of Kueue's controller; nil for others.
func (s Rules) requestConfig(name kueue.AdmissionCheckReference) *kueue.ProvisioningRequestConfigSpec {
	if !s.cache.IsRequest(name) {
		return nil
	}
	return s.cache.ConfigOf(name)
}
