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

// Pauses between attempts at capacity. A stockout moves on to the next flavor at
// once; only when as many attempts have failed as the queue has flavors does the
// Workload pause, so that without advice it does not spin. A gang that can never
// be had is tried seldom.
const (
	StockoutPause    = 10 * time.Second
	MaxStockoutPause = 5 * time.Minute
	FailurePause     = time.Minute
	MaxFailurePause  = 30 * time.Minute
)

const (
	// NotObtained is what an attempt came to that a stockout ended.
	NotObtained = "capacity could not be obtained"
	// NotCreated stands where an attempt has no condition, since the API server
	// took no request.
	NotCreated = "NotCreated"
)

// step is what comes of looking at a check.
type step struct {
	State   kueue.CheckState
	message string
	updates []kueue.PodSetUpdate
	Create  *Request
	Delete  []*autoscaling.ProvisioningRequest
	// Ended is how the attempt ended; nil if it goes on.
	Ended *AttemptEnd
	// Until is when to look again though nothing happens; zero is never.
	Until time.Time
	// requeueAfter is the pause after Retry, in seconds.
	requeueAfter *int32
}

// AttemptEnd is how an attempt at machines ended.
type AttemptEnd struct {
	// Condition is that of the request, why what it says.
	Condition, Why string
	// StartBy is when the Workload was to start at the latest, if it is too late for
	// that; zero for other causes.
	StartBy time.Time
	// NotBefore is when machines may be bought again, where too many were bought; zero for other causes.
	NotBefore time.Time
}

// capacityStep looks at the request of the current attempt. Checks are all of the
// Workload's.
//
//	none ─others Ready, create─▶ waiting ─Provisioned=True─▶ Ready
//	                                 │ Provisioned=False, BookingExpired, CapacityRevoked, Failed
//	                                 └─▶ evicted, quota back; the next attempt has its own request
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
			// A booking lasts minutes, the answer of a person may take days.
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
		// What was lost of the booking may be had again, or not: then it expires.
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

// WaitingFor is what a check says from the reservation on until the machines are
// there: one text, so that the way there costs no writes.
func WaitingFor(request string) string {
	return "Waiting for the machines of ProvisioningRequest " + request
}

// Write puts the step into the state of its check, and reports whether that is news.
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

// podSetUpdates makes the pods consume the booking: the annotations are the
// API's, the node label and the toleration are how Muster holds booked nodes.
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
