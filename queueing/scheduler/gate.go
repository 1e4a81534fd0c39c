package scheduler

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// gate returns the verdict on a pending Workload that cannot be evaluated at all; otherwise the queue to evaluate it
// in.
func (s *Cycle) gate(w *cache.Workload) (*lifecycle.Verdict, *cache.ClusterQueue) {
	if !w.Object.DeletionTimestamp.IsZero() {
		return s.rules.DeleteStale(w, nil), nil
	}
	wait := func(reason, format string, args ...any) (*lifecycle.Verdict, *cache.ClusterQueue) {
		return s.rules.DeleteStale(w, s.rules.Wait(w, reason, fmt.Sprintf(format, args...))), nil
	}
	if v := s.rules.PartialReservation(w); v != nil {
		return s.rules.DeleteStale(w, v), nil
	}
	if v := s.rules.Deactivate(w); v != nil {
		return s.rules.DeleteStale(w, v), nil
	}
	if !workload.IsActive(w.Object) {
		return s.rules.DeleteStale(w, s.rules.Inactive(w)), nil
	}
	name, lq := w.Object.Spec.QueueName, s.cache.LocalQueueOf(w)
	if lq == nil {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"LocalQueue %s doesn't exist: create it in namespace %s, or change the job's label kueue.x-k8s.io/queue-name; the job starts once "+
				"there is one", name, w.Object.Namespace)
	}
	q := s.cache.Queues[lq.Spec.ClusterQueue]
	if q == nil {
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured,
			"ClusterQueue %s of LocalQueue %s doesn't exist: ask an administrator to create it", lq.Spec.ClusterQueue, name)
	}
	why := s.rejectionReason(w, q)
	if why == "" && workload.IsAdopted(w.Object) {
		// Its pods run even if the queue is stopped.
		return s.rules.DeleteStale(w, s.adopt(q, w)), nil
	}
	switch {
	case cache.IsStopped(lq.Spec.StopPolicy):
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "%s", lifecycle.StoppedMessage(lq))
	case !q.Status.Active:
		return wait(kueue.WorkloadQuotaReservedReasonSuspended, "%s", lifecycle.InactiveMessage(q))
	case why != "":
		return wait(kueue.WorkloadQuotaReservedReasonMisconfigured, "%s", why)
	}
	if workload.AsksAdoption(w.Object) {
		return wait(kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			"The annotation %s marks the job as running before Muster was installed, but it was not; remove it to queue the workload",
			workload.AdoptedAnnotation)
	}
	if by := w.Object.Annotations[workload.GatedByAnnotation]; by != "" {
		return wait(kueue.WorkloadAdmissionGated, "Admission is gated by: %s", by)
	}
	if until := s.rules.PausedUntil(w); !until.IsZero() {
		// The condition was written when the backoff began; only its end matters.
		s.cache.Wake(w, until)
		return s.rules.DeleteStale(w, nil), nil
	}
	if v, late := s.rules.StartByPassed(w, q); late {
		return s.rules.DeleteStale(w, v), nil
	}
	// Whether an early ProvisioningRequest is still needed is decided with the assignment.
	return s.rules.DeleteStale(w, nil, s.cache.Requests.ProvisionFirst(w)...), q
}

// rejectionReason returns what is invalid or not supported about a Workload.
func (s *Cycle) rejectionReason(w *cache.Workload, q *cache.ClusterQueue) string {
	if why := w.Object.Annotations[workload.RefusedAnnotation]; why != "" {
		return why
	}
	selector, err := metav1.LabelSelectorAsSelector(q.Object.Spec.NamespaceSelector)
	if err != nil {
		return fmt.Sprintf("the namespaceSelector of ClusterQueue %s is invalid: %v", q.Object.Name, err)
	}
	if !selector.Matches(s.cache.Namespaces.LabelsOf(w.Object.Namespace)) {
		return fmt.Sprintf("ClusterQueue %s does not admit workloads of namespace %s: its namespaceSelector does not match the namespace's "+
			"labels", q.Object.Name, w.Object.Namespace)
	}
	if w.Object.Annotations[workload.DelegatedAnnotation] == "true" && !s.cache.Delegates(q.Object) {
		return fmt.Sprintf("the job's managedBy is %q, so that another cluster is to run it, and ClusterQueue %s has no AdmissionCheck of that "+
			"controller; add one, or create the job again without managedBy", kueue.MultiKueueControllerName, q.Object.Name)
	}
	if why := s.checks.RefusedParameters(q, w); why != "" {
		return why
	}
	if why := invalidTopology(w.Object); why != "" {
		return why
	}
	if why := s.invalidPods(w); why != "" {
		return why
	}
	return w.RefusedClaims()
}
