package forecast

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/provisioning/when"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// simulatedCluster is a cluster in virtual time that applies the decisions of cycles. The environment determines what
// cycles do not decide: how long things take and whether they succeed.
type simulatedCluster struct {
	state       *queueing.State
	environment environment
	// began is when virtual time began, and now is the current virtual time.
	began, now time.Time
	// cycles is how many cycles are left, which bounds the cost.
	cycles int
	// rounds is how many cycles were run at the current time.
	rounds int

	events   events
	sequence int
	// finished are the Workloads that have ended.
	finished map[types.UID]bool
	// plans are the planner's latest successful verdicts, by the name of the gang and the number of pods of each
	// podSet.
	plans map[string]planner.Verdict
	// capacity is the capacity snapshot; nil if there is none. changed: it has changed since the State got it.
	capacity *planner.Snapshot
	changed  bool
	// requests are the existing ProvisioningRequests.
	requests map[types.UID]*request
	// beforeApply and afterApply are called with each verdict, onStart with each Workload that may run from now on,
	// and onEnd with each that has ended.
	beforeApply, afterApply func(*lifecycle.Verdict)
	onStart, onEnd          func(*cache.Workload)
	// afterCycle is called after each cycle. If it returns false the simulation ends, and stopped is true: its results
	// mean nothing then.
	afterCycle func() bool
	stopped    bool
}

// environment determines what no controller decides.
type environment interface {
	// remaining is how much longer the pods of an admitted Workload run.
	remaining(w *cache.Workload, now time.Time) time.Duration
	// provisionTime is the time from a Workload's request until its machines are ready; ok is false if the launch
	// fails. Plan is nil if it is unknown what is launched.
	provisionTime(w *kueue.Workload, request string, plan *planner.Verdict) (after time.Duration, ok bool)
	// stops is how long the pods of an evicted Workload take to stop.
	stops() time.Duration
}

// request is an existing ProvisioningRequest.
type request struct {
	object *autoscaling.ProvisioningRequest
	// plan is the capacity that it uses; nil if the snapshot already includes it, or without a planner.
	plan *planner.Verdict
	// virtual: the simulation created it.
	virtual bool
}

// newSimulatedCluster returns a cluster with the objects of a State, without its Workloads; join adds them. It does not change
// the State.
func newSimulatedCluster(from *queueing.State, n environment, now time.Time) *simulatedCluster {
	x := &simulatedCluster{
		environment: n, began: now, now: now, cycles: maxCycles, capacity: from.Capacity(), changed: true,
		finished: map[types.UID]bool{}, plans: map[string]planner.Verdict{}, requests: map[types.UID]*request{},
		beforeApply: func(*lifecycle.Verdict) {}, afterApply: func(*lifecycle.Verdict) {}, onStart: func(*cache.Workload) {},
		onEnd: func(*cache.Workload) {}, afterCycle: unhurried,
	}
	x.state = from.WithoutWorkloads(func(gang state.Gang, v planner.Verdict) {
		if v.Outcome == planner.Fits || v.Outcome == planner.Launch {
			counts := make([]int, len(gang.PodSets))
			for i := range gang.PodSets {
				counts[i] = gang.PodSets[i].Count
			}
			x.plans[planKey(gang.Name, counts)] = v
		}
	})
	x.state.Nodes.BookedUnseen = true
	x.state.Nodes.DeleteWorkloadPods()
	return x
}

func planKey(gang string, counts []int) string { return fmt.Sprint(gang, counts) }

// planFor returns the planner's verdict for an admission; nil if the planner was not called.
func (x *simulatedCluster) planFor(w *kueue.Workload, a *kueue.Admission) *planner.Verdict {
	counts := make([]int, len(a.PodSetAssignments))
	for i := range a.PodSetAssignments {
		if n := a.PodSetAssignments[i].Count; n != nil {
			counts[i] = int(*n)
		}
	}
	plan, ok := x.plans[planKey(w.Namespace+"/"+w.Name, counts)]
	if !ok {
		return nil
	}
	return &plan
}

// join adds a Workload of the original State, and continues what is in progress for it.
func (x *simulatedCluster) join(known *cache.Workload, requests []*autoscaling.ProvisioningRequest) {
	w := x.state.Join(known)
	for _, r := range requests {
		x.requests[r.UID] = &request{object: r}
		if !workload.IsAdmitted(w.Object) && !transaction.IsWhole(r) {
			plan, since := launchInProgress(r)
			after, _ := x.environment.provisionTime(w.Object, r.Name, plan)
			x.at(when.Latest(since.Add(after), x.now), func() { x.setProvisioned(r, metav1.ConditionTrue) })
		}
	}
	switch {
	case !workload.HasQuota(w.Object) || !workload.IsAdmitted(w.Object):
	case workload.IsEvicted(w.Object):
		x.stop(w)
	default:
		x.run(w)
	}
}

// runCycles runs cycles until nothing more is decided at the current time. Preemption may be cyclic. In reality each
// round takes the time in which pods stop, so the number of rounds is bounded.
func (x *simulatedCluster) runCycles() {
	for acted := true; acted && x.mayDecide(); {
		acted = false
		for _, v := range x.cycle() {
			x.beforeApply(&v)
			acted = x.apply(&v) || acted
			x.afterApply(&v)
		}
	}
}

// mayDecide reports whether another cycle may run at the current time.
func (x *simulatedCluster) mayDecide() bool { return x.rounds < maxRounds && x.cycles > 0 }

func (x *simulatedCluster) cycle() []lifecycle.Verdict {
	x.cycles--
	x.rounds++
	if x.changed && x.capacity != nil {
		at := *x.capacity
		at.Now = x.now
		x.state.SetCapacity(&at)
	}
	x.changed = false
	out := x.state.Cycle(x.now)
	if !x.afterCycle() {
		x.cycles, x.stopped = 0, true
	}
	return out
}

// advance advances to the next time at which something may change. It returns false if nothing does before the end, or
// if it would cost too much.
func (x *simulatedCluster) advance(end time.Time) bool {
	if x.cycles <= 0 {
		return false
	}
	next := x.events.next()
	if wake := x.state.WakeAt(); !wake.IsZero() {
		wake = x.roundUp(wake)
		if next.IsZero() || wake.Before(next) {
			next = wake
		}
	}
	if next.IsZero() || next.After(end) {
		return false
	}
	x.now, x.changed, x.rounds = when.Latest(next, x.now), true, 0
	for len(x.events) > 0 && !x.events.next().After(x.now) {
		heap.Pop(&x.events).(event).do()
	}
	return true
}

// roundUp returns when to evaluate a change by time alone: later by at most 2 % of the wait. That is accurate enough,
// and a year has only a thousand such steps. Ends and arrivals happen at their exact time: if several ended at once,
// gangs would start that in reality wait behind smaller ones.
func (x *simulatedCluster) roundUp(at time.Time) time.Time {
	off, step := at.Sub(x.began), firstStep
	for off >= 50*step {
		step *= 2
	}
	return x.began.Add((off + step - 1).Truncate(step))
}

// apply applies a verdict, and reports whether another cycle may decide more because of it. A verdict that only has a
// reason to wait, or that starts a Workload, needs none.
func (x *simulatedCluster) apply(v *lifecycle.Verdict) bool {
	w, before := v.Workload, v.Workload.Object
	if v.Action == lifecycle.Wait && v.Create == nil && len(v.Delete) == 0 {
		return false
	}
	var written *kueue.Workload
	switch {
	case v.Action == lifecycle.Remove:
		x.end(w)
		return true
	case v.Action == lifecycle.Deactivate:
		written = with(before, &before.Status)
		written.Spec.Active = new(false)
		written.Generation++
	case v.Action != lifecycle.Wait && v.Status != nil:
		written = with(before, v.Status)
	}
	starts := written != nil && workload.IsAdmitted(written) && !workload.IsAdmitted(before)
	if starts {
		// All pods become ready at once.
		apimeta.SetStatusCondition(&written.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: kueue.WorkloadStarted, LastTransitionTime: metav1.NewTime(x.now),
		})
	}
	for _, r := range v.Delete {
		x.deleteRequest(r)
	}
	if v.Create != nil {
		x.createRequest(v)
	}
	x.state.Settle(before.UID, written)
	switch {
	case starts:
		x.onStart(w)
		x.run(w)
		return false
	case v.Action == lifecycle.Evict && workload.HasQuota(w.Object):
		x.stop(w)
	}
	return true
}

// with returns the object with another status and without a resource version.
func with(w *kueue.Workload, status *kueue.WorkloadStatus) *kueue.Workload {
	out := *w
	out.Status = *status
	out.ResourceVersion = ""
	return &out
}

// run schedules the end of an admitted Workload, unless it is evicted before.
func (x *simulatedCluster) run(w *cache.Workload) {
	since := admittedAt(w.Object)
	x.at(x.now.Add(x.environment.remaining(w, x.now)), func() {
		if workload.IsAdmitted(w.Object) && admittedAt(w.Object).Equal(since) && !workload.IsEvicted(w.Object) {
			x.end(w)
		}
	})
}

// admittedAt returns when an admitted Workload was admitted.
func admittedAt(w *kueue.Workload) time.Time {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
}

// stop schedules the release of the quota of an evicted Workload.
func (x *simulatedCluster) stop(w *cache.Workload) {
	x.at(x.now.Add(x.environment.stops()), func() {
		if !x.finished[w.Object.UID] && workload.IsEvicted(w.Object) && workload.HasQuota(w.Object) {
			x.state.Settle(w.Object.UID, with(w.Object, workload.Released(w.Object, x.now)))
		}
	})
}

// end removes a Workload with its requests.
func (x *simulatedCluster) end(w *cache.Workload) {
	if x.finished[w.Object.UID] {
		return
	}
	x.finished[w.Object.UID] = true
	for _, r := range x.state.RequestsOf(w) {
		x.deleteRequest(r)
	}
	x.state.Delete(w.Object)
	x.onEnd(w)
}

// createRequest creates the request of a verdict, which uses its machines from now on.
func (x *simulatedCluster) createRequest(v *lifecycle.Verdict) {
	x.sequence++
	r := v.Create.Object
	r.UID, r.CreationTimestamp = types.UID(fmt.Sprintf("virtual-%d", x.sequence)), metav1.NewTime(x.now)
	r.Status.Conditions = []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue}}
	made := &request{object: r, virtual: true}
	if a := admissionFor(v); a != nil {
		made.plan = x.planFor(v.Workload.Object, a)
	}
	x.requests[r.UID] = made
	if made.plan != nil && x.capacity != nil {
		x.capacity, x.changed = withPlan(x.capacity, made.plan, taken), true
	}
	x.state.Set(r)
	after, ok := x.environment.provisionTime(v.Workload.Object, r.Name, made.plan)
	x.at(x.now.Add(after), func() {
		status := metav1.ConditionTrue
		if !ok {
			status = metav1.ConditionFalse
		}
		x.setProvisioned(r, status)
	})
}

// admissionFor returns the assignment that the request of a verdict is for.
func admissionFor(v *lifecycle.Verdict) *kueue.Admission {
	if a := v.Workload.Object.Status.Admission; a != nil {
		return a
	}
	// Before the quota is reserved, the pods are those of the request.
	a := &kueue.Admission{}
	for i := range v.Create.Object.Spec.PodSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{Count: &v.Create.Object.Spec.PodSets[i].Count})
	}
	return a
}

// setProvisioned sets the condition Provisioned of a request.
func (x *simulatedCluster) setProvisioned(r *autoscaling.ProvisioningRequest, provisioned metav1.ConditionStatus) {
	have := x.requests[r.UID]
	if have == nil {
		return
	}
	answered := have.object.DeepCopy()
	for _, c := range []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue},
		{Type: autoscaling.Provisioned, Status: provisioned}} {
		c.LastTransitionTime = metav1.NewTime(x.now)
		apimeta.SetStatusCondition(&answered.Status.Conditions, c)
	}
	delete(answered.Status.ProvisioningClassDetails, transaction.AttemptDetail) // nothing is in progress any more
	have.object = answered
	x.state.Set(answered)
}

// deleteRequest deletes a request and frees its machines.
func (x *simulatedCluster) deleteRequest(r *autoscaling.ProvisioningRequest) {
	have := x.requests[r.UID]
	delete(x.requests, r.UID)
	x.state.Delete(r)
	switch {
	case have == nil || x.capacity == nil:
	case have.plan != nil:
		x.capacity, x.changed = withPlan(x.capacity, have.plan, released), true
	case !have.virtual:
		x.capacity, x.changed = x.capacity.Without(r.UID), true
	}
}

// Factors for the machines of a plan.
const (
	taken    = 1
	released = -1
)

// withPlan returns the snapshot with the machines of a plan used, or released again.
func withPlan(s *planner.Snapshot, plan *planner.Verdict, by int) *planner.Snapshot {
	out := *s
	out.Nodes, out.Groups = s.Nodes.Clone(), slices.Clone(s.Groups)
	for i := range plan.Placement {
		p := &plan.Placement[i]
		n := *out.Nodes.Find(p.Node)
		n.Free = n.Free.Clone()
		n.Free.Sub(p.Requests, by)
		out.Nodes.Set(&n)
	}
	// Upcoming are the launches in progress now, not those of the forecast.
	out.Upcoming = nil
	for _, l := range plan.Launches {
		for i := range out.Groups {
			if out.Groups[i].Name == l.Group {
				out.Groups[i].Machines += by * l.Count
			}
		}
	}
	return &out
}

// at schedules an event.
func (x *simulatedCluster) at(when time.Time, do func()) {
	x.sequence++
	heap.Push(&x.events, event{when, x.sequence, do})
}

// event happens at a time. Events at the same time happen in the order in which they were scheduled.
type event struct {
	at     time.Time
	number int
	do     func()
}

type events []event

// next returns the time of the first event; zero if there is none.
func (e events) next() time.Time {
	if len(e) == 0 {
		return time.Time{}
	}
	return e[0].at
}

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].number < e[j].number
}
func (e *events) Push(v any) { *e = append(*e, v.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	out := (*e)[last]
	*e = (*e)[:last]
	return out
}
