package queueing

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// Pauses between attempts at capacity. A stockout moves on to the next flavor at
// once; only when as many attempts have failed as the queue has flavors does the
// Workload pause, so that without advice it does not spin. A gang that can never
// be had is tried seldom.
const (
	stockoutPause    = 10 * time.Second
	maxStockoutPause = 5 * time.Minute
	failurePause     = time.Minute
	maxFailurePause  = 30 * time.Minute
)

const (
	// notObtained is what an attempt came to that a stockout ended.
	notObtained = "capacity could not be obtained"
	// notCreated stands where an attempt has no condition, since the API server
	// took no request.
	notCreated = "NotCreated"
)

// step is what comes of looking at a check.
type step struct {
	state   kueue.CheckState
	message string
	updates []kueue.PodSetUpdate
	create  *Request
	delete  []*autoscaling.ProvisioningRequest
	// over is how the attempt ended; nil if it goes on.
	over *attemptEnd
	// until is when to look again though nothing happens; zero is never.
	until time.Time
	// requeueAfter is the pause after Retry, in seconds.
	requeueAfter *int32
}

// attemptEnd is how an attempt at machines ended.
type attemptEnd struct {
	// condition is that of the request, why what it says.
	condition, why string
	// startBy is when the Workload was to start at the latest, if it is too late for
	// that; zero for other causes.
	startBy time.Time
}

// capacityStep looks at the request of the current attempt. Checks are all of the
// Workload's.
//
//	none ─others Ready, create─▶ waiting ─Provisioned=True─▶ Ready
//	                                 │ Provisioned=False, BookingExpired, CapacityRevoked, Failed
//	                                 └─▶ evicted, quota back; the next attempt has its own request
func (s Evaluator) capacityStep(w *Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) step {
	name, current, others := s.requestsFor(w, checks, state)
	pending := step{state: kueue.CheckStatePending, message: waitingFor(name)}
	switch {
	case len(others) > 0:
		pending.delete = living(others)
		return pending
	case current == nil && podsIn(w.Object.Status.Admission) == 0:
		return step{state: kueue.CheckStateReady, message: "The workload has no pods, so no machines are needed"}
	case current == nil:
		if other := unready(checks, state.Name); other != "" {
			// A booking lasts minutes, the answer of a person may take days.
			pending.message = fmt.Sprintf("Waiting for AdmissionCheck %s to be Ready, then for the machines of ProvisioningRequest %s", other, name)
			return pending
		}
		pending.create = s.capacityRequest(w, state, name)
		return pending
	}
	out := s.answer(w, current)
	if by := s.termsOf(w, state.Name).startBy; out.over == nil && out.state == kueue.CheckStatePending && !by.IsZero() {
		if !s.now.Before(by) {
			return step{over: &attemptEnd{startBy: by}}
		}
		out.until = by
	}
	return out
}

// unready is the first check other than own that is not Ready; empty if all are.
func unready(checks []kueue.AdmissionCheckState, own kueue.AdmissionCheckReference) kueue.AdmissionCheckReference {
	for i := range checks {
		if c := &checks[i]; c.Name != own && c.State != kueue.CheckStateReady {
			return c.Name
		}
	}
	return ""
}

// answer turns the conditions of a request into a step.
func (s Evaluator) answer(w *Workload, r *autoscaling.ProvisioningRequest) step {
	condition := func(t string) *metav1.Condition { return apimeta.FindStatusCondition(r.Status.Conditions, t) }
	isTrue := func(t string) bool { return apimeta.IsStatusConditionTrue(r.Status.Conditions, t) }
	for _, over := range []string{autoscaling.Failed, autoscaling.CapacityRevoked, autoscaling.BookingExpired} {
		if isTrue(over) {
			return step{over: &attemptEnd{condition: over, why: condition(over).Message}}
		}
	}
	provisioned := condition(autoscaling.Provisioned)
	switch {
	case isTrue(autoscaling.Provisioned) && !IsAdmitted(w.Object) && !provisioning.IsWhole(r):
		// What was lost of the booking may be had again, or not: then it expires.
	case isTrue(autoscaling.Provisioned):
		return step{state: kueue.CheckStateReady, message: "All machines are ready and booked by ProvisioningRequest " + r.Name, updates: podSetUpdates(w, r)}
	case isTrue(autoscaling.Accepted) && provisioned != nil && provisioned.Status == metav1.ConditionFalse:
		return step{over: &attemptEnd{condition: autoscaling.Provisioned, why: provisioned.Message}}
	}
	return step{state: kueue.CheckStatePending, message: waitingFor(r.Name)}
}

// waitingFor is what a check says from the reservation on until the machines are
// there: one text, so that the way there costs no writes.
func waitingFor(request string) string {
	return "Waiting for the machines of ProvisioningRequest " + request
}

func podsIn(a *kueue.Admission) (n int32) {
	for i := range a.PodSetAssignments {
		n += countOf(&a.PodSetAssignments[i])
	}
	return n
}

// failed ends an attempt and says when the next one may be.
func (s Rules) failed(w *Workload, condition, why string) *Verdict {
	var count int32
	if s := w.Object.Status.RequeueState; s != nil && s.Count != nil {
		count = *s.Count
	}
	count++
	var pause time.Duration
	what := notObtained
	switch condition {
	case notCreated:
		what = "the request for capacity could not be created"
		pause = doubled(failurePause, count-1, maxFailurePause)
	case autoscaling.Failed:
		what = "the request for capacity failed"
		pause = doubled(failurePause, count-1, maxFailurePause)
	case autoscaling.BookingExpired:
		what = "the booked capacity expired before all pods came"
	case autoscaling.CapacityRevoked:
		what = "the booked capacity was lost before the workload was admitted"
	}
	if rounds := count / s.choices(w); pause == 0 && rounds*s.choices(w) == count {
		pause = doubled(stockoutPause, rounds-1, maxStockoutPause)
	}
	message := fmt.Sprintf("%s: %s", outcome(assignedFlavors(w.Object.Status.Admission), what), why)
	var at time.Time
	if pause > 0 {
		at = s.now.Add(pause)
		message += fmt.Sprintf("; the next attempt is at %s", at.UTC().Format(time.RFC3339))
	}
	v := s.evict(w, kueue.WorkloadEvictedByAdmissionCheck, message, ReasonWaitingForCapacity, at)
	if v.Status.RequeueState == nil {
		v.Status.RequeueState = &kueue.RequeueState{}
	}
	v.Status.RequeueState.Count = new(count)
	v.Delete = living(s.requests[w.Object.UID])
	if what == notObtained {
		v.unobtained = assignedFlavors(w.Object.Status.Admission)
	}
	return v
}

// choices is how many flavors of its queue suit some pods of the Workload.
func (s Rules) choices(w *Workload) int32 {
	q := s.queues[w.Object.Status.Admission.ClusterQueue]
	if q == nil {
		return 1
	}
	suiting := slices.DeleteFunc(flavorsOf(q.object), func(name kueue.ResourceFlavorReference) bool {
		flavor := s.flavors[name]
		return flavor == nil || !slices.ContainsFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool {
			return mismatch(&ps.Template.Spec, flavor) == ""
		})
	})
	return max(1, int32(len(suiting)))
}

// refusedRequest is the verdict on a Workload whose request the API server does not
// take; nil if the Workload neither has quota nor asks ahead of it any more.
func (s Rules) refusedRequest(w *Workload, why string) *Verdict {
	switch {
	case w.place == holding:
		w.busy = true
		return s.failed(w, notCreated, why)
	case w.place == waiting && w.trial != nil:
		w.busy = true
		return unreserved(w, s.failed(w.as(w.trial), notCreated, why))
	}
	return nil
}

// outcome begins the message of an eviction that ended an attempt.
func outcome(flavors []kueue.ResourceFlavorReference, what string) string {
	return fmt.Sprintf("On flavors %v %s", flavors, what)
}

// unobtained are flavors on which an attempt at machines has just failed. They are not
// tried again until then, whatever the advice is: advice may lag behind.
type unobtained struct {
	flavors []kueue.ResourceFlavorReference
	until   time.Time
}

// lasts reports whether it is too early for another attempt.
func (u *unobtained) lasts(now time.Time) bool { return now.Before(u.until) }

// doubled is base doubled n times, at most limit.
func doubled(base time.Duration, n int32, limit time.Duration) time.Duration {
	for ; n > 0 && base < limit; n-- {
		base *= 2
	}
	return min(base, limit)
}

// write puts the step into the state of its check, and reports whether that is news.
func (s *step) write(c *kueue.AdmissionCheckState, now time.Time) bool {
	if c.State == s.state && c.Message == s.message && equality.Semantic.DeepEqual(c.PodSetUpdates, s.updates) {
		return false
	}
	if c.State == kueue.CheckStateReady && s.state == kueue.CheckStateReady {
		// podSetUpdates are immutable while a check stays Ready.
		return false
	}
	if c.State != s.state {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	c.State, c.Message, c.PodSetUpdates, c.RequeueAfterSeconds = s.state, s.message, s.updates, s.requeueAfter
	return true
}

// podSetUpdates makes the pods consume the booking: the annotations are the
// API's, the node label and the toleration are how Muster holds booked nodes.
func podSetUpdates(w *Workload, r *autoscaling.ProvisioningRequest) []kueue.PodSetUpdate {
	var out []kueue.PodSetUpdate
	for i := range w.Object.Spec.PodSets {
		out = append(out, kueue.PodSetUpdate{
			Name:         w.Object.Spec.PodSets[i].Name,
			Annotations:  consuming(r),
			NodeSelector: map[string]string{provisioning.BookingLabel(r.Name): r.Namespace},
			Tolerations: []corev1.Toleration{{
				Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
			}},
		})
	}
	return out
}
