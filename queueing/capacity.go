package queueing

import (
	"fmt"
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

// step is what comes of looking at a capacity check.
type step struct {
	state   kueue.CheckState
	message string
	updates []kueue.PodSetUpdate
	create  *Request
	delete  []*autoscaling.ProvisioningRequest
	evict   *Verdict
}

// capacityStep looks at the request of the current attempt.
//
//	none ─create─▶ waiting ─Provisioned=True─▶ Ready
//	                  │ Provisioned=False, BookingExpired, CapacityRevoked, Failed
//	                  └─▶ evicted, quota back; the next attempt has its own request
func (ix *index) capacityStep(w *Workload, state *kueue.AdmissionCheckState) step {
	name := RequestName(w.Object.Name, state.Name, retries(state)+1)
	var current *autoscaling.ProvisioningRequest
	var stale []*autoscaling.ProvisioningRequest
	others := false
	for _, r := range ix.Requests[w.Object.UID] {
		switch {
		case r.Name == name && r.DeletionTimestamp.IsZero():
			current = r
		default:
			others = true
			if r.DeletionTimestamp.IsZero() {
				stale = append(stale, r)
			}
		}
	}
	pending := step{state: kueue.CheckStatePending, message: waitingFor(name)}
	switch {
	case others:
		// At most one live request of a Workload: the last attempt's has to be
		// gone, and with it its machines, before this attempt's is made.
		pending.delete = stale
		return pending
	case current == nil && podsIn(w.Object.Status.Admission) == 0:
		return step{state: kueue.CheckStateReady, message: "The workload has no pods, so no machines are needed"}
	case current == nil:
		pending.create = ix.newRequest(w, state, name)
		return pending
	}
	return ix.read(w, current)
}

// read turns the conditions of a request into a step.
func (ix *index) read(w *Workload, r *autoscaling.ProvisioningRequest) step {
	condition := func(t string) *metav1.Condition { return apimeta.FindStatusCondition(r.Status.Conditions, t) }
	isTrue := func(t string) bool { return apimeta.IsStatusConditionTrue(r.Status.Conditions, t) }
	for _, over := range []string{autoscaling.Failed, autoscaling.CapacityRevoked, autoscaling.BookingExpired} {
		if isTrue(over) {
			return step{evict: ix.failed(w, over, condition(over).Message)}
		}
	}
	provisioned := condition(autoscaling.Provisioned)
	switch {
	case isTrue(autoscaling.Provisioned):
		return step{state: kueue.CheckStateReady, message: "All machines are ready and booked by ProvisioningRequest " + r.Name, updates: podSetUpdates(w, r)}
	case isTrue(autoscaling.Accepted) && provisioned != nil && provisioned.Status == metav1.ConditionFalse:
		return step{evict: ix.failed(w, autoscaling.Provisioned, provisioned.Message)}
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
func (ix *index) failed(w *Workload, condition, why string) *Verdict {
	var count int32
	if s := w.Object.Status.RequeueState; s != nil && s.Count != nil {
		count = *s.Count
	}
	count++
	var pause time.Duration
	what := "capacity could not be obtained"
	switch condition {
	case autoscaling.Failed:
		what = "the request for capacity failed"
		pause = doubled(failurePause, count-1, maxFailurePause)
	case autoscaling.BookingExpired:
		what = "the booked capacity expired before the workload was admitted"
	case autoscaling.CapacityRevoked:
		what = "the booked capacity was lost before the workload was admitted"
	}
	if rounds := count / ix.choices(w); pause == 0 && rounds*ix.choices(w) == count {
		pause = doubled(stockoutPause, rounds-1, maxStockoutPause)
	}
	message := fmt.Sprintf("On flavors %v %s: %s", assignedFlavors(w.Object.Status.Admission), what, why)
	var at time.Time
	if pause > 0 {
		at = ix.Now.Add(pause)
		message += fmt.Sprintf("; the next attempt is at %s", at.UTC().Format(time.RFC3339))
	}
	v := ix.evict(w, kueue.WorkloadEvictedByAdmissionCheck, message, ReasonWaitingForCapacity, at)
	if v.Status.RequeueState == nil {
		v.Status.RequeueState = &kueue.RequeueState{}
	}
	v.Status.RequeueState.Count = new(count)
	v.Delete = ix.live(w)
	return v
}

// choices is how many flavors the Workload's queue has.
func (ix *index) choices(w *Workload) int32 {
	q := ix.queues[w.Object.Status.Admission.ClusterQueue]
	if q == nil {
		return 1
	}
	return max(1, int32(len(flavorsOf(q.object))))
}

// live are the Workload's requests that nobody has deleted yet.
func (ix *index) live(w *Workload) []*autoscaling.ProvisioningRequest {
	var out []*autoscaling.ProvisioningRequest
	for _, r := range ix.Requests[w.Object.UID] {
		if r.DeletionTimestamp.IsZero() {
			out = append(out, r)
		}
	}
	return out
}

// doubled is base doubled n times, at most limit.
func doubled(base time.Duration, n int32, limit time.Duration) time.Duration {
	for ; n > 0 && base < limit; n-- {
		base *= 2
	}
	return min(base, limit)
}

// setCheck writes a step into a check's state and says whether that is news.
func (e *editor) setCheck(c *kueue.AdmissionCheckState, s step) bool {
	if c.State == s.state && c.Message == s.message && equality.Semantic.DeepEqual(c.PodSetUpdates, s.updates) {
		return false
	}
	if c.State == kueue.CheckStateReady && s.state == kueue.CheckStateReady {
		// podSetUpdates are immutable while a check stays Ready.
		return false
	}
	if c.State != s.state {
		c.LastTransitionTime = e.now
	}
	c.State, c.Message, c.PodSetUpdates = s.state, s.message, s.updates
	return true
}

// podSetUpdates makes the pods consume the booking: the annotations are the
// API's, the node label and the toleration are how Muster holds booked nodes.
func podSetUpdates(w *Workload, r *autoscaling.ProvisioningRequest) []kueue.PodSetUpdate {
	var out []kueue.PodSetUpdate
	for i := range w.Object.Spec.PodSets {
		out = append(out, kueue.PodSetUpdate{
			Name: w.Object.Spec.PodSets[i].Name,
			Annotations: map[string]string{
				autoscaling.ProvisioningRequestPodAnnotationKey: r.Name,
				autoscaling.ProvisioningClassPodAnnotationKey:   r.Spec.ProvisioningClassName,
			},
			NodeSelector: map[string]string{provisioning.BookingLabel(r.Name): r.Namespace},
			Tolerations: []corev1.Toleration{{
				Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
			}},
		})
	}
	return out
}
