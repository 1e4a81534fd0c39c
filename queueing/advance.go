package queueing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// Rules decide on Workloads one by one at a time.
type Rules struct{ Evaluator }

// advance moves a Workload that holds quota one step on: the first of these that
// has something to say.
func (s Rules) advance(w *Workload) *Verdict {
	object := w.Object
	if !object.DeletionTimestamp.IsZero() {
		return nil
	}
	if IsEvicted(object) {
		return s.advanceEvicted(w)
	}
	for _, step := range []func(*Workload) *Verdict{s.stop, s.mend, s.shrink, s.answered, s.turnedAway, s.overtime, s.unready} {
		if v := step(w); v != nil {
			return v
		}
	}
	if IsAdmitted(object) {
		if v := s.bereft(w); v != nil {
			return v
		}
		return s.revoked(w)
	}
	v, again := s.advanceChecks(w)
	s.wake(w, again)
	return v
}

// bereft ends an attempt whose booking ran out or broke after the Workload was
// admitted: pods that are not there yet would wait for machines that are gone. So it
// does where machines were lost on which the Workload ran, unless its CapacityPolicy
// leaves it then. Nothing else that becomes of a request is a running job's business,
// least of all that all its pods have come.
func (s Rules) bereft(w *Workload) *Verdict {
	for i := range w.Object.Status.AdmissionChecks {
		state := &w.Object.Status.AdmissionChecks[i]
		if !s.isCapacity(state.Name) {
			continue
		}
		name := RequestName(w.Object.Name, state.Name, retries(state)+1)
		for _, r := range s.requests[w.Object.UID] {
			if r.Name != name {
				continue
			}
			if c := apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.CapacityRevoked); c != nil && c.Status == metav1.ConditionTrue {
				return s.lost(w, c.Message)
			}
			c := apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.BookingExpired)
			if c != nil && c.Status == metav1.ConditionTrue && c.Reason == provisioning.ReasonReservationExpired {
				return s.failed(w, autoscaling.BookingExpired, c.Message)
			}
		}
	}
	return nil
}

// lost stops a Workload of whose machines some are gone. It is no failure of the attempt,
// so the next one does not wait.
func (s Rules) lost(w *Workload, why string) *Verdict {
	message := fmt.Sprintf("%s: %s", outcome(assignedFlavors(w.Object.Status.Admission), "machines were lost that it ran on"), why)
	v := s.evict(w, kueue.WorkloadEvictedByAdmissionCheck, message, ReasonWaitingForCapacity, time.Time{})
	v.Delete = living(s.requests[w.Object.UID])
	return v
}

// advanceEvicted waits for the pods to stop. Whoever controls the Workload knows
// when they have, and releases it; where nothing runs, there is no need to wait.
func (s Rules) advanceEvicted(w *Workload) *Verdict {
	if mayRun(w.Object) {
		return nil
	}
	return &Verdict{Workload: w, Action: Release, Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		Message: "Nothing of the evicted workload runs", Status: Released(w.Object, s.now)}
}

// mayRun says that pods of the Workload may be there: it has been admitted, and
// somebody runs it.
func mayRun(w *kueue.Workload) bool { return IsAdmitted(w) && metav1.GetControllerOf(w) != nil }

// stop ends what a person has stopped: the Workload itself, its LocalQueue or its
// ClusterQueue. Hold takes the quota back from those that are not admitted yet;
// HoldAndDrain evicts the others, too.
func (s Rules) stop(w *Workload) *Verdict {
	if v := s.deactivate(w); v != nil {
		return v
	}
	if !IsActive(w.Object) {
		cause, message := deactivationCause(w.Object)
		return s.evictDueTo(w, kueue.WorkloadDeactivated, cause, message, kueue.WorkloadDeactivated, time.Time{})
	}
	lq, q := s.localQueueOf(w), s.queues[w.Object.Status.Admission.ClusterQueue]
	if IsAdmitted(w.Object) {
		switch {
		case lq != nil && drains(lq.Spec.StopPolicy):
			return s.evict(w, kueue.WorkloadEvictedByLocalQueueStopped, "The LocalQueue is stopped", kueue.WorkloadQuotaReservedReasonSuspended, time.Time{})
		case q != nil && drains(q.object.Spec.StopPolicy):
			return s.evict(w, kueue.WorkloadEvictedByClusterQueueStopped, "The ClusterQueue is stopped", kueue.WorkloadQuotaReservedReasonSuspended, time.Time{})
		}
		return nil
	}
	switch {
	case lq == nil || !lq.DeletionTimestamp.IsZero():
		return s.release(w, kueue.WorkloadQuotaReservedReasonMisconfigured, fmt.Sprintf("LocalQueue %s is terminating or missing", w.Object.Spec.QueueName))
	case isStopped(lq.Spec.StopPolicy):
		return s.release(w, kueue.WorkloadQuotaReservedReasonSuspended, stoppedMessage(lq))
	case q == nil || !q.object.DeletionTimestamp.IsZero():
		return s.release(w, kueue.WorkloadQuotaReservedReasonMisconfigured, fmt.Sprintf("ClusterQueue %s is terminating or missing", w.Object.Status.Admission.ClusterQueue))
	case isStopped(q.object.Spec.StopPolicy):
		return s.release(w, kueue.WorkloadQuotaReservedReasonSuspended, inactiveMessage(q))
	}
	return nil
}

// What a Workload is told that is held back by its queue: the same when it loses
// its quota as afterwards, so that it is written once.
func stoppedMessage(lq *kueue.LocalQueue) string {
	return fmt.Sprintf("LocalQueue %s is inactive: its stopPolicy is %s; it goes on when that is None", lq.Name, *lq.Spec.StopPolicy)
}

func inactiveMessage(q *queue) string {
	return fmt.Sprintf("ClusterQueue %s is inactive: %s", q.object.Name, q.standing.Message)
}

// release takes the quota of a Workload back of which nothing has run on it.
func (s Rules) release(w *Workload, reason, message string) *Verdict {
	e := edit(w.Object, s.now)
	e.resetChecks()
	e.release(reason, message)
	return &Verdict{Workload: w, Action: Release, Reason: reason, Message: message, Status: e.status}
}

// evict stops a Workload. Its quota goes with the same write where nothing of it
// can be running; pending is then the reason of QuotaReserved=False. It is
// judged again from requeueAt on; zero is at once.
func (s Rules) evict(w *Workload, reason, message, pending string, requeueAt time.Time) *Verdict {
	return s.evictDueTo(w, reason, "", message, pending, requeueAt)
}

// evictDueTo is evict for reasons that have causes.
func (s Rules) evictDueTo(w *Workload, reason, cause, message, pending string, requeueAt time.Time) *Verdict {
	e := edit(w.Object, s.now)
	e.evict(reason, cause, message)
	s.recount(w.Object, e.status)
	if !requeueAt.IsZero() {
		e.pause(requeueAt)
	}
	if !mayRun(w.Object) {
		why := message
		if pending == kueue.WorkloadDeactivated {
			why = deactivatedMessage
		}
		e.release(pending, why)
	}
	if reason == kueue.WorkloadDeactivated && cause != "" {
		reason += dueTo + cause
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
func (s Rules) answered(w *Workload) *Verdict {
	if rejected := checksIn(w.Object, kueue.CheckStateRejected); rejected != "" {
		return s.condemn(w, kueue.WorkloadEvictedByAdmissionCheck, rejected)
	}
	if retry := checksIn(w.Object, kueue.CheckStateRetry); retry != "" {
		return s.evict(w, kueue.WorkloadEvictedByAdmissionCheck, "Evicted due to "+retry, kueue.WorkloadQuotaReservedReasonPendingEvaluation, retryAt(w.Object))
	}
	return nil
}

// advanceChecks looks at the checks of a Workload that waits for them, and says when
// to look again though nothing happens; zero is never.
func (s Rules) advanceChecks(w *Workload) (v *Verdict, again time.Time) {
	e := edit(w.Object, s.now)
	v = &Verdict{Workload: w, Action: Advance}
	changed := s.syncChecks(w, e)
	if changed {
		v.Reason, v.Message = "AdmissionCheckUpdated", "The ClusterQueue asks for other admission checks now"
	}
	for i := range e.status.AdmissionChecks {
		state := &e.status.AdmissionChecks[i]
		step, ours := s.serve(w, e.status.AdmissionChecks, state)
		if !ours {
			continue
		}
		if step.over != nil {
			return s.end(w, step.over), again
		}
		again = earliest(again, step.until)
		changed = step.write(state, s.now) || changed
		// One request a verdict; the next one is made when it is settled.
		v.Create = cmp.Or(v.Create, step.create)
		v.Delete = append(v.Delete, step.delete...)
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
		return nil, again
	}
	return v, again
}

// end ends an attempt at machines.
func (s Rules) end(w *Workload, over *attemptEnd) *Verdict {
	if over.startBy.IsZero() {
		return s.failed(w, over.condition, over.why)
	}
	v := s.evict(w, kueue.WorkloadEvictedByAdmissionCheck, tooLate(over.startBy), ReasonStartByPassed, time.Time{})
	v.Delete = living(s.requests[w.Object.UID])
	return v
}

// syncChecks follows the queue's spec: checks that it has gained are Pending,
// those that it has lost are forgotten.
func (s Rules) syncChecks(w *Workload, e *editor) (changed bool) {
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

// checksIn says in Kueue's words which checks of a Workload are in a state, by name
// and with what they say; empty if none is.
func checksIn(w *kueue.Workload, state kueue.CheckState) string {
	var names []string
	for i := range w.Status.AdmissionChecks {
		switch c := &w.Status.AdmissionChecks[i]; {
		case c.State != state:
		case c.Message == "":
			names = append(names, strconv.Quote(string(c.Name)))
		default:
			names = append(names, fmt.Sprintf("%q (%s)", c.Name, c.Message))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	noun := "AdmissionCheck"
	if len(names) > 1 {
		noun += "s"
	}
	return fmt.Sprintf("%s in %s state: %s", noun, state, strings.Join(names, "; "))
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
