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

// world is a cluster in virtual time that does what cycles decide. Nature says what
// is not decided there: how long things take, and whether they succeed.
type world struct {
	state  *queueing.State
	nature nature
	// began is when virtual time began, and now what it is.
	began, now time.Time
	// cycles that it may still take: a bound on what it costs, whatever happens.
	cycles int
	// rounds is how many it has taken at this time.
	rounds int

	events events
	made   int
	// over are the Workloads that have ended.
	over map[types.UID]bool
	// plans are the planner's latest good answers, by the name of the gang and how many
	// pods of each podSet it was asked for.
	plans map[string]planner.Verdict
	// capacity is the picture of the machines; nil without advice. Changed says that the
	// State has not been given it as it is now.
	capacity *planner.Snapshot
	changed  bool
	// requests are those that are alive, with what the made ones of them take.
	requests map[types.UID]*request
	// sees is told each verdict before it is carried out, and saw after that; begins is
	// told of each Workload that may run from now on, and ends of each that is over.
	sees, saw    func(*lifecycle.Verdict)
	begins, ends func(*cache.Workload)
	// rested is called after each cycle. If it reports false, the world ends: stopped is then true, and what has
	// become of its Workloads means nothing.
	rested  func() bool
	stopped bool
}

// nature determines what no controller decides.
type nature interface {
	// runs is for how much longer the pods of an admitted Workload run.
	runs(w *cache.Workload, now time.Time) time.Duration
	// boots is how long after a Workload's request its machines are there; ok is false if
	// the launch fails. Plan is nil if it is not known what is launched.
	boots(w *kueue.Workload, request string, plan *planner.Verdict) (after time.Duration, ok bool)
	// stops is how long the pods of an evicted Workload take to be gone.
	stops() time.Duration
}

// request is a ProvisioningRequest that is alive.
type request struct {
	object *autoscaling.ProvisioningRequest
	// plan is what it takes of the capacity; nil where the capacity knows it already, or
	// no planner was asked.
	plan *planner.Verdict
	// virtual: it was made here.
	virtual bool
}

// newWorld is a world that begins with the objects of a State, which stays as it is,
// but for the Workloads, which are to join.
func newWorld(from *queueing.State, n nature, now time.Time) *world {
	x := &world{
		nature: n, began: now, now: now, cycles: mostCycles, capacity: from.Capacity(), changed: true,
		over: map[types.UID]bool{}, plans: map[string]planner.Verdict{}, requests: map[types.UID]*request{},
		sees: func(*lifecycle.Verdict) {}, saw: func(*lifecycle.Verdict) {}, begins: func(*cache.Workload) {},
		ends: func(*cache.Workload) {}, rested: unhurried,
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

// planFor is the planner's answer for an admission; nil if it was not asked.
func (x *world) planFor(w *kueue.Workload, a *kueue.Admission) *planner.Verdict {
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

// join adds a Workload of the State that the world was made from, and lets go on
// what is under way about it.
func (x *world) join(known *cache.Workload, requests []*autoscaling.ProvisioningRequest) {
	w := x.state.Join(known)
	for _, r := range requests {
		x.requests[r.UID] = &request{object: r}
		if !workload.IsAdmitted(w.Object) && !transaction.IsWhole(r) {
			plan, since := underWay(r)
			after, _ := x.nature.boots(w.Object, r.Name, plan)
			x.at(when.Latest(since.Add(after), x.now), func() { x.answer(r, metav1.ConditionTrue) })
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

// rest runs cycles until nothing more is decided at this time. Preemption may go round in
// circles; in truth each round takes the time that pods need to stop, so it ends here.
func (x *world) rest() {
	for acted := true; acted && x.mayDecide(); {
		acted = false
		for _, v := range x.cycle() {
			x.sees(&v)
			acted = x.apply(&v) || acted
			x.saw(&v)
		}
	}
}

// mayDecide says that another cycle may be run at this time.
func (x *world) mayDecide() bool { return x.rounds < mostRounds && x.cycles > 0 }

func (x *world) cycle() []lifecycle.Verdict {
	x.cycles--
	x.rounds++
	if x.changed && x.capacity != nil {
		at := *x.capacity
		at.Now = x.now
		x.state.SetCapacity(&at)
	}
	x.changed = false
	out := x.state.Cycle(x.now)
	if !x.rested() {
		x.cycles, x.stopped = 0, true
	}
	return out
}

// advance goes on to when something may change; false if nothing does before the end,
// or if that would cost too much.
func (x *world) advance(end time.Time) bool {
	if x.cycles <= 0 {
		return false
	}
	next := x.events.next()
	if wake := x.state.WakeAt(); !wake.IsZero() {
		wake = x.coarsely(wake)
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

// coarsely is the time at which to look at what time alone may change: a little after
// it, by at most 2 % of the wait. That is near enough, and a year has but a thousand
// such steps. What ends or comes does so at its very time: if several ended at once,
// gangs would start that in truth wait behind smaller ones.
func (x *world) coarsely(at time.Time) time.Time {
	off, step := at.Sub(x.began), firstStep
	for off >= 50*step {
		step *= 2
	}
	return x.began.Add((off + step - 1).Truncate(step))
}

// apply carries a verdict out, and reports whether another cycle may decide more because of
// it. A verdict that only gives a reason to wait, or starts a Workload, does not need one.
func (x *world) apply(v *lifecycle.Verdict) bool {
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
		// All pods come at once.
		apimeta.SetStatusCondition(&written.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: kueue.WorkloadStarted, LastTransitionTime: metav1.NewTime(x.now),
		})
	}
	for _, r := range v.Delete {
		x.drop(r)
	}
	if v.Create != nil {
		x.ask(v)
	}
	x.state.Settle(before.UID, written)
	switch {
	case starts:
		x.begins(w)
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

// run has an admitted Workload end when its time has come, unless it was stopped by
// then.
func (x *world) run(w *cache.Workload) {
	since := admittedAt(w.Object)
	x.at(x.now.Add(x.nature.runs(w, x.now)), func() {
		if workload.IsAdmitted(w.Object) && admittedAt(w.Object).Equal(since) && !workload.IsEvicted(w.Object) {
			x.end(w)
		}
	})
}

// admittedAt is when an admitted Workload was admitted.
func admittedAt(w *kueue.Workload) time.Time {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
}

// stop gives the quota of an evicted Workload back once its pods are gone.
func (x *world) stop(w *cache.Workload) {
	x.at(x.now.Add(x.nature.stops()), func() {
		if !x.over[w.Object.UID] && workload.IsEvicted(w.Object) && workload.HasQuota(w.Object) {
			x.state.Settle(w.Object.UID, with(w.Object, workload.Released(w.Object, x.now)))
		}
	})
}

// end takes out a Workload with all that it had.
func (x *world) end(w *cache.Workload) {
	if x.over[w.Object.UID] {
		return
	}
	x.over[w.Object.UID] = true
	for _, r := range x.state.RequestsOf(w) {
		x.drop(r)
	}
	x.state.Delete(w.Object)
	x.ends(w)
}

// ask makes the request of a verdict. Its machines are taken from now on.
func (x *world) ask(v *lifecycle.Verdict) {
	x.made++
	r := v.Create.Object
	r.UID, r.CreationTimestamp = types.UID(fmt.Sprintf("virtual-%d", x.made)), metav1.NewTime(x.now)
	r.Status.Conditions = []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue}}
	made := &request{object: r, virtual: true}
	if a := admissionFor(v); a != nil {
		made.plan = x.planFor(v.Workload.Object, a)
	}
	x.requests[r.UID] = made
	if made.plan != nil && x.capacity != nil {
		x.capacity, x.changed = occupied(x.capacity, made.plan, taken), true
	}
	x.state.Set(r)
	after, ok := x.nature.boots(v.Workload.Object, r.Name, made.plan)
	x.at(x.now.Add(after), func() {
		status := metav1.ConditionTrue
		if !ok {
			status = metav1.ConditionFalse
		}
		x.answer(r, status)
	})
}

// admissionFor is the assignment that a request of a verdict is for.
func admissionFor(v *lifecycle.Verdict) *kueue.Admission {
	if a := v.Workload.Object.Status.Admission; a != nil {
		return a
	}
	// Ahead of quota the pods are those of the request.
	a := &kueue.Admission{}
	for i := range v.Create.Object.Spec.PodSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{Count: &v.Create.Object.Spec.PodSets[i].Count})
	}
	return a
}

// answer says of a request whether its machines are there.
func (x *world) answer(r *autoscaling.ProvisioningRequest, provisioned metav1.ConditionStatus) {
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
	delete(answered.Status.ProvisioningClassDetails, transaction.AttemptDetail) // whatever was under way is over
	have.object = answered
	x.state.Set(answered)
}

// drop deletes a request; its machines are free again.
func (x *world) drop(r *autoscaling.ProvisioningRequest) {
	have := x.requests[r.UID]
	delete(x.requests, r.UID)
	x.state.Delete(r)
	switch {
	case have == nil || x.capacity == nil:
	case have.plan != nil:
		x.capacity, x.changed = occupied(x.capacity, have.plan, givenBack), true
	case !have.virtual:
		x.capacity, x.changed = x.capacity.Without(r.UID), true
	}
}

// What becomes of the machines of a plan.
const (
	taken     = 1
	givenBack = -1
)

// occupied is the snapshot where pods run on the machines of a plan, or where they
// are gone again.
func occupied(s *planner.Snapshot, plan *planner.Verdict, by int) *planner.Snapshot {
	out := *s
	out.Nodes, out.Groups = s.Nodes.Clone(), slices.Clone(s.Groups)
	for i := range plan.Placement {
		p := &plan.Placement[i]
		n := *out.Nodes.Find(p.Node)
		n.Free = n.Free.Clone()
		n.Free.Sub(p.Requests, by)
		out.Nodes.Set(&n)
	}
	// Upcoming describes the launches of now. Those that the forecast adds are unknown to it.
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

// at has something happen.
func (x *world) at(when time.Time, do func()) {
	x.made++
	heap.Push(&x.events, event{when, x.made, do})
}

// event is something that happens at a time; of those at the same time the one that
// was known first.
type event struct {
	at     time.Time
	number int
	do     func()
}

type events []event

// next is the time of the first; zero if there is none.
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
