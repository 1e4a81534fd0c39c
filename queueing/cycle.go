package queueing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// Cycle decides what can be decided now. It moves every Workload that holds quota
// and that something has happened to one step on, and then gives out the quota that
// is free until nothing more fits. Workloads for which there is nothing to do and
// nothing new to say get no verdict.
//
// Quota that a verdict gives back is not given out before the verdict is settled:
// whoever watches must see it free before somebody else has it.
func (s *State) Cycle(now time.Time) []Verdict {
	s.now = now
	if s.outdated {
		s.rebuild()
	}
	// The advice is consumed as the cycle goes on, so the caller's stays as it is.
	s.capacity, s.foreseen = s.advice, false
	for _, w := range s.timers.expired(now) {
		s.touch(w.Object.UID)
	}
	var out []Verdict
	for _, w := range sorted(s.due) {
		if w.busy {
			continue
		}
		delete(s.due, w.Object.UID)
		if v := s.look(w); v != nil {
			w.busy = v.acts()
			out = append(out, *v)
		}
	}
	for _, t := range s.trees {
		fresh := slices.ContainsFunc(t.queues, func(q *queue) bool { return len(q.fresh) > 0 })
		if fresh || t.loosened {
			t.loosened = t.loosened || t.claimed
			out = append(out, s.drain(t)...)
		}
	}
	return out
}

// look says what is to be done about a Workload that something has happened to,
// and puts it in line if it waits for quota.
func (s *State) look(w *Workload) *Verdict {
	s.timers.set(w, time.Time{})
	switch {
	case IsFinished(w.Object):
		return s.clean(w, nil)
	case HasQuota(w.Object):
		return s.advance(w)
	}
	v, q := s.gate(w)
	if q != nil {
		q.push(w)
	} else if w.queue != nil {
		w.queue.drop(w)
	}
	return v
}

// wake has a Workload looked at from a time on; zero is never.
func (s *State) wake(w *Workload, at time.Time) {
	if !at.IsZero() && (w.wakeAt.IsZero() || at.Before(w.wakeAt)) {
		s.timers.set(w, at)
	}
}

// clean deletes the requests that a Workload no longer needs, on top of what
// else is decided about it.
func (s *State) clean(w *Workload, v *Verdict) *Verdict {
	var stale []*autoscaling.ProvisioningRequest
	for _, r := range s.requests[w.Object.UID] {
		if r.DeletionTimestamp.IsZero() {
			stale = append(stale, r)
		}
	}
	if len(stale) == 0 {
		return v
	}
	if v == nil {
		v = &Verdict{Workload: w, Action: Wait}
	}
	v.Delete = stale
	return v
}

// gate says what keeps a pending Workload from being judged at all; if nothing
// does, it returns the queue to judge it in.
func (s *State) gate(w *Workload) (*Verdict, *queue) {
	if !w.Object.DeletionTimestamp.IsZero() {
		return s.clean(w, nil), nil
	}
	wait := func(reason, format string, args ...any) (*Verdict, *queue) {
		return s.clean(w, s.wait(w, reason, fmt.Sprintf(format, args...))), nil
	}
	name, lq := w.Object.Spec.QueueName, s.localQueueOf(w)
	if !IsActive(w.Object) {
		return wait(kueue.WorkloadDeactivated, "The workload is deactivated; set spec.active to true to queue it again")
	}
	if lq == nil {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"LocalQueue %q in namespace %q doesn't exist: create it, or change the job's label kueue.x-k8s.io/queue-name; the job starts once there is one",
			name, w.Object.Namespace)
	}
	q := s.queues[lq.Spec.ClusterQueue]
	switch {
	case q == nil:
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"ClusterQueue %q, which LocalQueue %q feeds, doesn't exist: an admin has to create it", lq.Spec.ClusterQueue, name)
	case isStopped(lq.Spec.StopPolicy):
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "LocalQueue %s is stopped (%s); it goes on when stopPolicy is None", name, *lq.Spec.StopPolicy)
	case !q.standing.Active:
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "ClusterQueue %s is inactive: %s", q.object.Name, q.standing.Message)
	}
	if why := s.refused(w, q); why != "" {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured, "%s", why)
	}
	if by := w.Object.Annotations[GatedByAnnotation]; by != "" {
		return wait(kueue.WorkloadAdmissionGated, "Admission is gated by: %s", by)
	}
	if state := w.Object.Status.RequeueState; state != nil && state.RequeueAt != nil && s.now.Before(state.RequeueAt.Time) {
		// The reason was written with the pause; only its end is waited for.
		s.wake(w, state.RequeueAt.Time)
		return s.clean(w, nil), nil
	}
	return s.clean(w, nil), q
}

// refused says what about a Workload is not supported or wrong.
func (s *State) refused(w *Workload, q *queue) string {
	if why := w.Object.Annotations[RefusedAnnotation]; why != "" {
		return why
	}
	selector, err := metav1.LabelSelectorAsSelector(q.object.Spec.NamespaceSelector)
	if err != nil {
		return fmt.Sprintf("the namespaceSelector of ClusterQueue %s is invalid: %v", q.object.Name, err)
	}
	if !selector.Matches(s.labelsOf(w.Object.Namespace)) {
		return fmt.Sprintf("ClusterQueue %s takes no workloads of namespace %s: its namespaceSelector does not match the namespace's labels",
			q.object.Name, w.Object.Namespace)
	}
	const unsupported = "Muster does not support yet: "
	if len(w.Object.Spec.PreemptionGates) > 0 {
		return unsupported + "preemptionGates"
	}
	if why := s.refusedParameters(w.Object.Annotations); why != "" {
		return why
	}
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		switch {
		case ps.TopologyRequest != nil && wantsTopology(ps.TopologyRequest):
			return fmt.Sprintf("%sthe topologyRequest of podSet %s", unsupported, ps.Name)
		case len(ps.Template.Spec.ResourceClaims) > 0:
			return fmt.Sprintf("%sresourceClaims (DRA) of podSet %s", unsupported, ps.Name)
		}
	}
	return ""
}

// refusedParameters says which annotations cannot become parameters of a request.
func (s *State) refusedParameters(annotations map[string]string) string {
	// The check may add its policy.
	count := 1
	for _, k := range slices.Sorted(maps.Keys(annotations)) {
		v := annotations[k]
		switch name, ok := strings.CutPrefix(k, ParameterPrefix); {
		case !ok:
		case len(v) > maxParameter:
			return fmt.Sprintf("the annotation %s has %d characters; a parameter may have %d", k, len(v), maxParameter)
		case name == processorParameter:
			return fmt.Sprintf("the annotation %s would give the request to another provisioner, which books no machines for the queue; remove it from the job", k)
		case name == PolicyParameter && v != "" && s.policies[v] == nil:
			return fmt.Sprintf("CapacityPolicy %q, which the annotation %s names, doesn't exist; create it or change the annotation", v, k)
		case name != PolicyParameter:
			count++
		}
	}
	if count > maxParameters {
		return fmt.Sprintf("the annotations %s… and the policy of the check make %d parameters; a request may have %d", ParameterPrefix, count, maxParameters)
	}
	return ""
}

func wantsTopology(t *kueue.PodSetTopologyRequest) bool {
	return t.Required != nil || t.Preferred != nil || t.Unconstrained != nil || t.PodSetSliceRequiredTopology != nil
}

// wait is the verdict for a Workload that stays pending; nil if it has been told
// just that.
func (s *State) wait(w *Workload, reason, message string) *Verdict {
	// As it will be stored, else a long message would be news in every cycle.
	message = provisioning.Clip(message, maxMessage)
	if w.reason == reason && w.message == message {
		return nil
	}
	w.reason, w.message = reason, message
	status := Waiting(w.Object, reason, message, s.now)
	if status == nil {
		return nil
	}
	return &Verdict{Workload: w, Action: Wait, Reason: reason, Message: message, Status: status}
}

// Waiting is the status of a Workload that waits for a reason; nil if it says so
// already.
func Waiting(w *kueue.Workload, reason, message string, now time.Time) *kueue.WorkloadStatus {
	have := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if have != nil && have.Status == metav1.ConditionFalse && have.Reason == reason && have.Message == message {
		return nil
	}
	e := edit(w, now)
	if isTrue(w, kueue.WorkloadQuotaReserved) || w.Status.Admission != nil {
		// Half a reservation, as a hand or another controller may leave it.
		e.release(reason, message)
	} else {
		e.pending(reason, message)
	}
	return e.status
}
