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

// Cycle drains what can be drained: it moves every Workload that holds quota
// one step on, and then admits from each queue, in its order, until nothing more
// fits. Workloads for which there is nothing to do and nothing to wait for get no
// verdict.
//
// Quota that a verdict gives back is not given out in the same cycle: whoever
// watches must see it free before somebody else has it.
func Cycle(s *Snapshot) []Verdict {
	// The advice is consumed as the cycle goes on, so the caller's stays as it is.
	own := *s
	ix := newIndex(&own)
	var out []Verdict
	add := func(v *Verdict) {
		if v != nil {
			out = append(out, *v)
		}
	}
	for _, w := range ix.sorted() {
		switch {
		case IsFinished(w.Object):
			add(ix.clean(w, nil))
		case HasQuota(w.Object):
			add(ix.advance(w))
		default:
			v, q := ix.gate(w)
			if q != nil {
				q.pending = append(q.pending, w)
			}
			add(v)
		}
	}
	ix.foresee()
	for _, q := range ix.order {
		out = append(out, ix.drain(q)...)
	}
	return out
}

// clean deletes the requests that a Workload no longer needs, on top of what
// else is decided about it.
func (ix *index) clean(w *Workload, v *Verdict) *Verdict {
	var stale []*autoscaling.ProvisioningRequest
	for _, r := range ix.Requests[w.Object.UID] {
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
func (ix *index) gate(w *Workload) (*Verdict, *queue) {
	if !w.Object.DeletionTimestamp.IsZero() {
		return ix.clean(w, nil), nil
	}
	wait := func(reason, format string, args ...any) (*Verdict, *queue) {
		return ix.clean(w, ix.wait(w, reason, fmt.Sprintf(format, args...), time.Time{})), nil
	}
	name, lq := w.Object.Spec.QueueName, ix.localQueueOf(w)
	if !IsActive(w.Object) {
		return wait(kueue.WorkloadDeactivated, "The workload is deactivated; set spec.active to true to queue it again")
	}
	if lq == nil {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"LocalQueue %q in namespace %q doesn't exist: create it, or change the job's label kueue.x-k8s.io/queue-name; the job starts once there is one",
			name, w.Object.Namespace)
	}
	q := ix.queues[lq.Spec.ClusterQueue]
	switch {
	case q == nil:
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"ClusterQueue %q, which LocalQueue %q feeds, doesn't exist: an admin has to create it", lq.Spec.ClusterQueue, name)
	case isStopped(lq.Spec.StopPolicy):
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "LocalQueue %s is stopped (%s); it goes on when stopPolicy is None", name, *lq.Spec.StopPolicy)
	case !q.standing.Active:
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "ClusterQueue %s is inactive: %s", q.object.Name, q.standing.Message)
	}
	if why := ix.refused(w, q); why != "" {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured, "%s", why)
	}
	if by := w.Object.Annotations[GatedByAnnotation]; by != "" {
		return wait(kueue.WorkloadAdmissionGated, "Admission is gated by: %s", by)
	}
	if state := w.Object.Status.RequeueState; state != nil && state.RequeueAt != nil && ix.Now.Before(state.RequeueAt.Time) {
		// The reason was written with the pause; only its end is waited for.
		return ix.clean(w, &Verdict{Workload: w, Action: Wait, WakeAt: state.RequeueAt.Time}), nil
	}
	return ix.clean(w, nil), q
}

// refused says what about a Workload is not supported or wrong.
func (ix *index) refused(w *Workload, q *queue) string {
	if why := w.Object.Annotations[RefusedAnnotation]; why != "" {
		return why
	}
	selector, err := metav1.LabelSelectorAsSelector(q.object.Spec.NamespaceSelector)
	if err != nil {
		return fmt.Sprintf("the namespaceSelector of ClusterQueue %s is invalid: %v", q.object.Name, err)
	}
	if !selector.Matches(ix.Namespaces[w.Object.Namespace]) {
		return fmt.Sprintf("ClusterQueue %s takes no workloads of namespace %s: its namespaceSelector does not match the namespace's labels",
			q.object.Name, w.Object.Namespace)
	}
	const unsupported = "Muster does not support yet: "
	if w.Object.Spec.MaximumExecutionTimeSeconds != nil {
		return unsupported + "maximumExecutionTimeSeconds (on a Job the label kueue.x-k8s.io/max-exec-time-seconds); use the Job's activeDeadlineSeconds"
	}
	if len(w.Object.Spec.PreemptionGates) > 0 {
		return unsupported + "preemptionGates"
	}
	if why := ix.refusedParameters(w.Object.Annotations); why != "" {
		return why
	}
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		switch {
		case ps.MinCount != nil:
			return fmt.Sprintf("%sminCount of podSet %s (partial admission)", unsupported, ps.Name)
		case ps.TopologyRequest != nil && wantsTopology(ps.TopologyRequest):
			return fmt.Sprintf("%sthe topologyRequest of podSet %s", unsupported, ps.Name)
		case len(ps.Template.Spec.ResourceClaims) > 0:
			return fmt.Sprintf("%sresourceClaims (DRA) of podSet %s", unsupported, ps.Name)
		}
	}
	return ""
}

// refusedParameters says which annotations cannot become parameters of a request.
func (ix *index) refusedParameters(annotations map[string]string) string {
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
		case name == PolicyParameter && v != "" && ix.policies[v] == nil:
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

// wait is the verdict for a Workload that stays pending. The status is set only
// if it says something new.
func (ix *index) wait(w *Workload, reason, message string, wakeAt time.Time) *Verdict {
	// As it will be stored, else a long message would be news in every cycle.
	message = provisioning.Clip(message, maxMessage)
	v := &Verdict{Workload: w, Action: Wait, Reason: reason, Message: message, WakeAt: wakeAt}
	have := apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadQuotaReserved)
	if have != nil && have.Status == metav1.ConditionFalse && have.Reason == reason && have.Message == message {
		return v
	}
	e := edit(w.Object, ix.Now)
	if isTrue(w.Object, kueue.WorkloadQuotaReserved) || w.Object.Status.Admission != nil {
		// Half a reservation, as a hand or another controller may leave it.
		e.release(reason, message)
	} else {
		e.pending(reason, message)
	}
	v.Status = e.status
	return v
}
