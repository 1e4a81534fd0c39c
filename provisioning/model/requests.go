package model

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/model/consumers"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// requests are the ProvisioningRequests and their phases.
type requests struct {
	byUID map[types.UID]*request
	named map[state.ConsumerKey]types.UID
	// keyed indexes requests by booking key, in all namespaces; using indexes them by PodTemplate.
	keyed index[string, types.UID]
	using index[types.NamespacedName, types.UID]
	// gone are the requests that were not found by a write. Until the informers catch up, their versions of them are old.
	gone map[state.ConsumerKey]types.UID
	// carried has the purchases for earlier requests of the same Workloads.
	carried purchases.Carried
	// assumed has the decisions for requests that are being written.
	assumed map[types.UID]Assumption

	// courses has the course of each request; phases indexes them by phase.
	courses map[types.UID]course
	phases  index[phase, types.UID]
}

// Assumption is a decision for a request that is being written.
type Assumption struct {
	Bookings []planner.Placement
	Attempt  transaction.Attempt
}

// phase is a state of a request at a time. A request may be in several.
type phase int

const (
	// waiting requests wait for capacity that others release.
	waiting phase = iota
	// launching requests have an attempt in flight that launches machines.
	launching
	// upcoming requests have an attempt whose capacity others may count on, see upcomingView.
	upcoming
)

// request is a request with the values derived from it.
type request struct {
	object  *provreq.ProvisioningRequest
	status  transaction.Status
	attempt transaction.Attempt
	// repair is the last repair. It is in flight unless the request is over.
	repair transaction.RepairRecord
	// purchases are the recorded purchases.
	purchases purchases.Record
	// seen is when the model first saw the request.
	seen time.Time
	// read is the request in the form for decisions; nil if it must be derived again.
	read *transaction.Request
	// looksUp reports whether its pods refer to objects other than their templates.
	looksUp bool
}

// course is the progress of a request. The zero value is that of a request that does not exist.
type course struct {
	exists bool
	status transaction.Status
	tenant state.Tenant
	// held and consumed: see transaction.IsHeld and transaction.IsConsumed.
	held, consumed bool
	// provisioned is the time from which on the gang's pods may be created; zero if they may not.
	provisioned time.Time
	// attempt is the attempt that is being written, or else the recorded one.
	attempt transaction.Attempt
	// flight is the attempt in the form that other requests may count on. While its end is being recorded, it still has its machines:
	// others may book them only after that.
	flight transaction.Attempt
	// short bookings wait for capacity, too.
	short bool
	// repair is the number of the last repair.
	repair int
}

func newRequests() requests {
	return requests{
		byUID: map[types.UID]*request{}, named: map[state.ConsumerKey]types.UID{},
		keyed: index[string, types.UID]{}, using: index[types.NamespacedName, types.UID]{},
		gone: map[state.ConsumerKey]types.UID{}, carried: purchases.Carried{}, assumed: map[types.UID]Assumption{},
		courses: map[types.UID]course{}, phases: index[phase, types.UID]{},
	}
}

// tenant pays for the request's machines.
func (e *request) tenant() state.Tenant {
	return state.Tenant{Namespace: e.object.Namespace, Queue: e.object.Labels[state.QueueLabel]}
}

func (e *request) key() state.ConsumerKey {
	return state.ConsumerKey{Namespace: e.object.Namespace, Name: e.object.Name}
}

// live reports whether the request with that UID exists and is not over.
func (rs *requests) live(uid types.UID) bool {
	e := rs.byUID[uid]
	return e != nil && e.status != transaction.Over
}

// waits reports whether the request of a booking waits for its pods.
func (rs *requests) waits(b *state.Booking) bool {
	return rs.live(b.UID) && b.Repair == rs.byUID[b.UID].repair.Number
}

// runs reports whether the pods of a booking have arrived, and have not been stopped since.
func (rs *requests) runs(b *state.Booking) bool {
	e := rs.byUID[b.UID]
	return e != nil && (transaction.IsConsumed(e.object) || e.status == transaction.Provisioned && b.Repair < e.repair.Number)
}

// set stores a version of a request, unless it is old.
func (rs *requests) set(r *provreq.ProvisioningRequest, now time.Time) effect {
	old := rs.byUID[r.UID]
	if old != nil && !objects.Newer(r, old.object) {
		return unchanged
	}
	e := &request{object: r, status: transaction.StatusOf(r), attempt: transaction.AttemptOf(r), repair: transaction.RepairOf(r), seen: now,
		purchases: purchases.Of(r)}
	if old != nil {
		e.seen = old.seen
	}
	rs.byUID[r.UID] = e
	rs.named[e.key()] = r.UID
	rs.keyed.add(state.BookingKey(r.Name), r.UID)
	for _, name := range transaction.TemplatesOf(r) {
		rs.using.add(name, r.UID)
	}
	return changed
}

// remove removes a request. made are the machines that were seen of it.
func (rs *requests) remove(uid types.UID, made []purchases.Machine, now time.Time) effect {
	e := rs.byUID[uid]
	if e == nil {
		return unchanged
	}
	rs.carried.End(transaction.WorkloadOf(e.object), e.purchases, made, transaction.IsConsumed(e.object), now)
	delete(rs.byUID, uid)
	if rs.named[e.key()] == uid {
		delete(rs.named, e.key())
	}
	rs.keyed.remove(state.BookingKey(e.object.Name), uid)
	for _, name := range transaction.TemplatesOf(e.object) {
		rs.using.remove(name, uid)
	}
	return changed
}

// refresh derives the course of a request. Views of nodes, machines and charges reflect what the request books and releases. An attempt in
// flight also affects the capacity that others may count on.
func (rs *requests) refresh(uid types.UID) effect {
	old, now := rs.courses[uid], rs.courseOf(uid)
	if reflect.DeepEqual(old, now) {
		return unchanged
	}
	if now.exists {
		rs.courses[uid] = now
	} else {
		delete(rs.courses, uid)
	}
	for _, p := range []phase{waiting, launching, upcoming} {
		rs.phases.set(p, uid, now.in(p))
	}
	if old.in(upcoming) || now.in(upcoming) {
		return frees
	}
	return changed
}

// reread marks the request to be derived again before its next decision. If it has an attempt in flight, upcoming capacity changes, too.
func (rs *requests) reread(uid types.UID) effect {
	e := rs.byUID[uid]
	if e == nil {
		return unchanged
	}
	e.read = nil
	if rs.phases[upcoming][uid] {
		return frees
	}
	return changed
}

func (rs *requests) courseOf(uid types.UID) (c course) {
	e := rs.byUID[uid]
	if e == nil {
		return c
	}
	c = course{
		exists: true, status: e.status, tenant: e.tenant(), held: transaction.IsHeld(e.object), consumed: transaction.IsConsumed(e.object),
		provisioned: transaction.ProvisionedAt(e.object), attempt: rs.attempt(e),
		short: e.status == transaction.Provisioned && !transaction.IsWhole(e.object), repair: e.repair.Number,
	}
	if c.flight = c.attempt; c.attempt.Phase == transaction.Done && c.attempt.Number == e.attempt.Number {
		c.flight = e.attempt
	}
	return c
}

// in reports whether the request is in the phase.
func (c *course) in(p phase) bool {
	if !c.exists || c.status == transaction.Over {
		return false
	}
	switch p {
	case waiting:
		return c.status == transaction.Pending && (!c.attempt.InFlight() || len(c.attempt.Shares) > 0) || c.short && !c.attempt.InFlight()
	case launching:
		return c.attempt.Phase == transaction.Launching
	default:
		return c.status == transaction.Pending && c.flight.Phase == transaction.Launching
	}
}

// attempt returns the attempt of a request that is being written, or else the recorded one.
func (rs *requests) attempt(e *request) transaction.Attempt {
	if assumed, ok := rs.assumed[e.object.UID]; ok && assumed.Attempt.Number >= max(1, e.attempt.Number) {
		return assumed.Attempt
	}
	return e.attempt
}

// owner returns the request that manages the machines of that launch, with its attempt.
func (rs *requests) owner(token string) (e *request, a transaction.Attempt, owned bool) {
	if e = rs.byUID[state.TokenUID(token)]; e == nil {
		return nil, a, false
	}
	a = rs.attempt(e)
	return e, a, a.Owned(e.status) && slices.Contains(a.Tokens(e.object.UID), token)
}

// keyTaken returns the name of an earlier request with the same booking key. A request that is over keeps its key as long as pods of its
// gang exist, which could use capacity that others book under the key.
func (rs *requests) keyTaken(r *transaction.Request, active map[state.ConsumerKey]int) string {
	taken := ""
	if len(r.Name) < state.CutKey {
		return taken // only names that are truncated, or have the length of truncated ones, can collide
	}
	begun := func(status transaction.Status, a transaction.Attempt) int {
		if status != transaction.Pending || a.InFlight() {
			return 0
		}
		return 1
	}
	for uid := range rs.keyed[state.BookingKey(r.Name)] {
		other := rs.byUID[uid]
		o := other.object
		over := other.status == transaction.Over && active[state.ConsumerKey{Namespace: o.Namespace, Name: o.Name}] == 0
		if o.UID == r.UID || o.Namespace != r.Namespace || over {
			continue
		}
		// Creation times are whole seconds. Of two requests in the same second, the one that has begun to get capacity is the earlier
		// one.
		if cmp.Or(cmp.Compare(begun(other.status, other.attempt), begun(r.Status, r.Attempt)),
			o.CreationTimestamp.Compare(r.Created), cmp.Compare(o.UID, r.UID)) < 0 {
			taken = max(taken, o.Namespace+"/"+o.Name)
		}
	}
	return taken
}

// concerns reports whether the loss of a node is reported to a request that has booked it, or has so many pods there.
func (rs *requests) concerns(request types.UID, pods int) bool {
	e := rs.byUID[request]
	return e != nil && e.status != transaction.Pending && (e.status != transaction.Over || pods > 0)
}

// blocked returns the pods of the request's gang that exist and cannot start.
func (e *request) blocked(cs *consumers.Consumers) (out transaction.Blocked) {
	if e == nil || e.status != transaction.Over || !transaction.IsConsumed(e.object) {
		return out
	}
	return cs.BlockedOf(e.key())
}

// isBlocked reports whether the request's status says that pods cannot start.
func (e *request) isBlocked() bool {
	return meta.IsStatusConditionTrue(e.object.Status.Conditions, transaction.PodsBlocked)
}

// stranded returns the pods of the request's gang that were running and have no capacity now.
func (e *request) stranded(cs *consumers.Consumers) (out transaction.Stranded) {
	if e == nil || e.status != transaction.Over || !transaction.IsConsumed(e.object) {
		return out
	}
	return cs.StrandedOf(e.key())
}
