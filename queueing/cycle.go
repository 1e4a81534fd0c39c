package queueing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning"
)

// Cycle is one pass over the queues: what it decides on, beside the Cache.
type Cycle struct {
	Rules
	plan Planner
	// capacity is the provisioner's picture of the machines without what the cycle has
	// given out; nil if there is none.
	capacity *provisioning.Snapshot
	// foreseen says that capacity lacks what Workloads with quota will use.
	foreseen bool
	// returned are the requests of this cycle's returning; nil before it is asked for.
	returned []types.UID
}

func (s *Cycle) run() (out []Verdict) {
	if s.outdated {
		s.rebuild()
	}
	s.sample(s.now)
	for _, w := range s.timers.expired(s.now) {
		s.touch(w.Object.UID)
	}
	// A table that was large once would cost as much to go through ever after.
	due := s.due
	s.due = map[types.UID]*Workload{}
	for _, w := range sorted(due) {
		if v := s.prioritize(w); v != nil {
			out = append(out, *v)
		}
		if w.busy {
			continue // once it is settled, it is looked at
		}
		delete(s.due, w.Object.UID)
		if v := s.look(w); v != nil {
			out = s.emit(out, v)
		}
	}
	for _, t := range s.trees {
		t.correct(s.now)
		t.loosened = t.loosened || !t.stale.IsZero() && !s.now.Before(t.stale)
		if t.loosened || slices.ContainsFunc(t.queues, (*queue).unjudged) {
			t.loosened = t.loosened || t.claimed
			out = append(out, s.drain(t)...)
		}
		t.correct(s.now)
	}
	return out
}

// emit adds a verdict to those of the cycle. A Workload for which there is more to do
// than to tell it why it waits is not judged again before that is settled.
func (s *Cycle) emit(out []Verdict, v *Verdict) []Verdict {
	w := v.Workload
	w.busy = w.busy || v.acts()
	if v.unobtained != nil {
		w.unobtained = unobtained{v.unobtained, s.now.Add(stockoutPause)}
	}
	return append(out, *v)
}

// look says what is to be done about a Workload that something has happened to,
// and puts it in line if it waits for quota.
func (s *Cycle) look(w *Workload) *Verdict {
	s.timers.set(w, time.Time{})
	switch {
	case IsFinished(w.Object):
		return s.clean(w, nil)
	case s.orphaned(w) != nil:
		return s.orphaned(w)
	case s.successor(w) != nil:
		return s.supersede(w, s.successor(w))
	case HasQuota(w.Object):
		return s.advance(w)
	}
	v, q := s.gate(w)
	if q != nil {
		q.push(w)
	} else if w.queue != nil {
		w.queue.withdraw(w)
	}
	return v
}

// wake has a Workload looked at from a time on; zero is never.
func (s *Cache) wake(w *Workload, at time.Time) {
	if !at.IsZero() && (w.wakeAt.IsZero() || at.Before(w.wakeAt)) {
		s.timers.set(w, at)
	}
}

// clean deletes what is no longer needed, on top of what else is decided about a
// Workload: its requests but those to keep, then itself.
func (s Rules) clean(w *Workload, v *Verdict, keep ...*autoscaling.ProvisioningRequest) *Verdict {
	removal := s.retire(w)
	var stale []*autoscaling.ProvisioningRequest
	for _, r := range s.requests[w.Object.UID] {
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

// gate says what keeps a pending Workload from being judged at all; if nothing
// does, it returns the queue to judge it in.
func (s *Cycle) gate(w *Workload) (*Verdict, *queue) {
	if !w.Object.DeletionTimestamp.IsZero() {
		return s.clean(w, nil), nil
	}
	wait := func(reason, format string, args ...any) (*Verdict, *queue) {
		return s.clean(w, s.wait(w, reason, fmt.Sprintf(format, args...))), nil
	}
	if v := s.half(w); v != nil {
		return s.clean(w, v), nil
	}
	if v := s.deactivate(w); v != nil {
		return s.clean(w, v), nil
	}
	if !IsActive(w.Object) {
		return s.clean(w, s.inactive(w)), nil
	}
	name, lq := w.Object.Spec.QueueName, s.localQueueOf(w)
	if lq == nil {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"LocalQueue %s doesn't exist: create it in namespace %s, or change the job's label kueue.x-k8s.io/queue-name; the job starts once there is one",
			name, w.Object.Namespace)
	}
	q := s.queues[lq.Spec.ClusterQueue]
	if q == nil {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"ClusterQueue %s doesn't exist: LocalQueue %s feeds it, and an admin has to create it", lq.Spec.ClusterQueue, name)
	}
	why := s.refused(w, q)
	if why == "" && IsAdopted(w.Object) {
		// Its pods run, whether the queue is stopped or not.
		return s.clean(w, s.adopt(q, w)), nil
	}
	switch {
	case isStopped(lq.Spec.StopPolicy):
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "%s", stoppedMessage(lq))
	case !q.standing.Active:
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "%s", inactiveMessage(q))
	case why != "":
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured, "%s", why)
	}
	if AsksAdoption(w.Object) {
		return wait(kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			"The annotation %s says that the job ran before Muster came, which Muster has not found; take it off, and the workload queues like any other", AdoptedAnnotation)
	}
	if by := w.Object.Annotations[GatedByAnnotation]; by != "" {
		return wait(kueue.WorkloadAdmissionGated, "Admission is gated by: %s", by)
	}
	if until := s.pausedUntil(w); !until.IsZero() {
		// The reason was written with the pause; only its end is waited for.
		s.wake(w, until)
		return s.clean(w, nil), nil
	}
	if v, late := s.late(w, q); late {
		return s.clean(w, v), nil
	}
	// Whether what was asked for ahead of quota is still wanted is for the judgement.
	return s.clean(w, nil, s.ahead(w)...), q
}

// pausedUntil is when a Workload is judged again whose attempt has failed; zero if it
// does not pause.
func (s Rules) pausedUntil(w *Workload) time.Time {
	if state := w.Object.Status.RequeueState; state != nil && state.RequeueAt != nil && s.now.Before(state.RequeueAt.Time) {
		return state.RequeueAt.Time
	}
	return time.Time{}
}

// refused says what about a Workload is not supported or wrong.
func (s *Cycle) refused(w *Workload, q *queue) string {
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
	if rules := checkRules(q.object); len(rules) > 0 && replacedKey(w.Object).Name != "" {
		return fmt.Sprintf("%sjobs that grow in a queue with admission checks, as ClusterQueue %s has with %s", unsupported, q.object.Name, rules[0].Name)
	}
	if why := s.refusedParameters(q, w); why != "" {
		return why
	}
	if why := s.refusedPods(w); why != "" {
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

func wantsTopology(t *kueue.PodSetTopologyRequest) bool {
	return t.Required != nil || t.Preferred != nil || t.Unconstrained != nil || t.PodSetSliceRequiredTopology != nil
}

// wait is the verdict for a Workload that stays pending; nil if it has been told
// just that.
func (s Rules) wait(w *Workload, reason, message string) *Verdict {
	// As it will be stored, else a long message would be news in every cycle.
	message = provisioning.Clip(message, maxMessage)
	if w.reason == reason && w.message == message {
		return nil
	}
	w.reason, w.message = reason, message
	status := Waiting(w.Object, s.requested(w), reason, message, s.now)
	if status == nil {
		return nil
	}
	return &Verdict{Workload: w, Action: Wait, Reason: reason, Message: message, Status: status}
}

// requested is what a Workload in a queue asks for, as its status tells it while it has no
// quota.
func (s *Cache) requested(w *Workload) []kueue.PodSetRequest {
	if w.queue == nil {
		return nil
	}
	out := make([]kueue.PodSetRequest, len(w.Pod))
	for i, n := range podCounts(w) {
		total := make(nodegroups.Resources, len(w.Pod[i]))
		for name, v := range w.Pod[i] {
			total[name] = nodegroups.Times(v, int64(n))
		}
		out[i] = kueue.PodSetRequest{Name: w.Object.Spec.PodSets[i].Name, Resources: total.List()}
	}
	return out
}

// Requested is requested by UID; nil for a Workload that is not there.
func (s *Cache) Requested(uid types.UID) []kueue.PodSetRequest {
	if w := s.workloads[uid]; w != nil {
		return s.requested(w)
	}
	return nil
}

// Waiting is the status of a Workload that waits for a reason and asks for so much; nil if
// it says so already.
func Waiting(w *kueue.Workload, requested []kueue.PodSetRequest, reason, message string, now time.Time) *kueue.WorkloadStatus {
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
	switch reason {
	case kueue.WorkloadQuotaReservedReasonSuspended, kueue.WorkloadQuotaReservedReasonMisconfigured, kueue.WorkloadDeactivated:
	default:
		// What kept it from being queued is over.
		e.requeued()
	}
	e.blockedOnGates(reason, message)
	e.status.ResourceRequests = requested
	return e.status
}
