package checks

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Backoff between attempts to obtain machines. After a stockout the next flavor is tried at once. The Workload backs
// off only when as many attempts have failed as the queue has flavors, so that it does not retry in a loop without a
// capacity snapshot. A gang that can never be provisioned is tried rarely.
const (
	StockoutPause    = 10 * time.Second
	MaxStockoutPause = 5 * time.Minute
	FailurePause     = time.Minute
	MaxFailurePause  = 30 * time.Minute
)

const (
	// NotObtained describes an attempt that ended with a stockout.
	NotObtained = "capacity could not be obtained"
	// NotCreated is used instead of a condition if the API server rejected the request.
	NotCreated = "NotCreated"
)

// step is the result of evaluating a check.
type step struct {
	State   kueue.CheckState
	message string
	updates []kueue.PodSetUpdate
	Create  *Request
	Delete  []*autoscaling.ProvisioningRequest
	// Ended is how the attempt ended; nil if it continues.
	Ended *AttemptEnd
	// Until is when to evaluate the check without an event; zero is never.
	Until time.Time
	// requeueAfter is the backoff after Retry, in seconds.
	requeueAfter *int32
}

// AttemptEnd is how an attempt to obtain machines ended.
type AttemptEnd struct {
	// Condition is the condition of the request, and Why its message.
	Condition, Why string
	// StartBy is the latest start of the Workload if that has passed; zero for other causes.
	StartBy time.Time
	// NotBefore is when machines may be launched again if too many were; zero for other causes.
	NotBefore time.Time
}

// capacityStep evaluates the request of the current attempt. Checks are all checks of the Workload.
//
//	none ─others Ready, create─▶ waiting ─Provisioned=True─▶ Ready
//	                                 │ Provisioned=False, BookingExpired, CapacityRevoked, Failed
//	                                 └─▶ evicted, quota released; the next attempt has its own request
func (s Evaluator) capacityStep(w *cache.Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) step {
	name, current, others := s.requestsFor(w, checks, state)
	pending := step{State: kueue.CheckStatePending, message: WaitingFor(name)}
	switch {
	case len(others) > 0:
		pending.Delete = cache.Existing(others)
		return pending
	case current == nil && workload.PodsIn(w.Object.Status.Admission) == 0:
		return step{State: kueue.CheckStateReady, message: "The workload has no pods, so no machines are needed"}
	case current == nil && len(s.missingPods(w)) == 0:
		return step{State: kueue.CheckStateReady, message: "The machines of the job's pods are there"}
	case current == nil:
		if other := workload.Unready(checks, state.Name); other != "" {
			// A booking lasts minutes; another check may wait days for approval.
			pending.message = fmt.Sprintf("Waiting for AdmissionCheck %s to be Ready, then for the machines of ProvisioningRequest %s", other, name)
			return pending
		}
		pending.Create = s.capacityRequest(w, state, name)
		return pending
	}
	out := s.answer(w, current)
	if by := s.TermsOf(w, state.Name).StartBy; out.Ended == nil && out.State == kueue.CheckStatePending && !by.IsZero() {
		if !s.now.Before(by) {
			return step{Ended: &AttemptEnd{StartBy: by}}
		}
		out.Until = by
	}
	return out
}

// answer turns the conditions of a request into a step.
func (s Evaluator) answer(w *cache.Workload, r *autoscaling.ProvisioningRequest) step {
	condition := func(t string) *metav1.Condition { return apimeta.FindStatusCondition(r.Status.Conditions, t) }
	isTrue := func(t string) bool { return apimeta.IsStatusConditionTrue(r.Status.Conditions, t) }
	for _, over := range []string{autoscaling.Failed, autoscaling.CapacityRevoked, autoscaling.BookingExpired} {
		if isTrue(over) {
			return step{Ended: &AttemptEnd{Condition: over, Why: condition(over).Message}}
		}
	}
	provisioned := condition(autoscaling.Provisioned)
	switch {
	case isTrue(autoscaling.Provisioned) && !workload.IsAdmitted(w.Object) && !transaction.IsWhole(r):
		// Lost machines of the booking may be replaced; otherwise the booking expires.
	case isTrue(autoscaling.Provisioned):
		return step{State: kueue.CheckStateReady, message: "All machines are ready and booked by ProvisioningRequest " + r.Name,
			updates: podSetUpdates(w, r)}
	case isTrue(autoscaling.Accepted) && provisioned != nil && provisioned.Status == metav1.ConditionFalse:
		end := &AttemptEnd{Condition: autoscaling.Provisioned, Why: provisioned.Message}
		if provisioned.Reason == transaction.ReasonPurchasesStopped {
			end.NotBefore = purchases.Of(r).Until
		}
		return step{Ended: end}
	}
	return step{State: kueue.CheckStatePending, message: WaitingFor(r.Name)}
}

// WaitingFor is the message of a check until its machines are booked. It does not change on the way, which would cost
// writes.
func WaitingFor(request string) string {
	return "Waiting for the machines of ProvisioningRequest " + request
}

// Write writes the step to the state of its check, and reports whether that changed.
func (s *step) Write(c *kueue.AdmissionCheckState, now time.Time) bool {
	if c.State == s.State && c.Message == s.message && equality.Semantic.DeepEqual(c.PodSetUpdates, s.updates) {
		return false
	}
	if c.State == kueue.CheckStateReady && s.State == kueue.CheckStateReady {
		// podSetUpdates are immutable while a check stays Ready.
		return false
	}
	if c.State != s.State {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	c.State, c.Message, c.PodSetUpdates, c.RequeueAfterSeconds = s.State, s.message, s.updates, s.requeueAfter
	return true
}

// podSetUpdates makes the pods consume the booking: the API defines the annotations; the node label and the toleration
// match the nodes that Muster holds.
func podSetUpdates(w *cache.Workload, r *autoscaling.ProvisioningRequest) []kueue.PodSetUpdate {
	var out []kueue.PodSetUpdate
	for i := range w.Object.Spec.PodSets {
		out = append(out, kueue.PodSetUpdate{
			Name:         w.Object.Spec.PodSets[i].Name,
			Annotations:  consumerAnnotations(r),
			NodeSelector: map[string]string{state.BookingLabel(r.Name): r.Namespace},
			Tolerations: []corev1.Toleration{{
				Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
			}},
		})
	}
	return out
}
