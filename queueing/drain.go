package queueing

import (
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/quota"
)

// refusal is the answer to a Workload that has to wait.
type refusal struct {
	inadmissible
	// next is what is done about the machines that it has asked for, or is to ask for,
	// ahead of quota; nil gives them up.
	next *Verdict
}

func refusalOf(reason, message string) *refusal {
	return &refusal{inadmissible: inadmissible{reason: reason, message: message}}
}

// inadmissible is why a Workload cannot have quota now, which counts for all of its
// equivalence class that are not before it in the queue.
type inadmissible struct {
	reason, message string
	// until is when time alone may change it; zero is never.
	until time.Time
	// priority and since are those of the Workload that was judged. It does not speak
	// for those before it, whose victims may be more.
	priority int32
	since    time.Time
}

// holds reports whether it is the answer to a Workload, too.
func (r *inadmissible) holds(w *Workload, now time.Time) bool {
	return r != nil && r.priority == w.priority && !w.since.Before(r.since) && (r.until.IsZero() || now.Before(r.until))
}

// likeness is the same for Workloads of a queue that get the same answer in one
// cycle.
type likeness struct {
	shape uint64
	// tenant where there are budgets, which namespaces and their queues have apart.
	tenant provisioning.Tenant
	// terms are those on which it would get machines.
	terms string
	// skip and refused are where the search for machines stands.
	skip    int
	refused string
	// finished pods leave fewer to be run.
	finished int32
	// replaces is the Workload slice whose place is taken.
	replaces types.UID
	// asked is the request that was made ahead of quota, whose machines nobody else can
	// have.
	asked types.UID
}

func (s *Cycle) likeness(q *queue, w *Workload) likeness {
	out := likeness{shape: w.shape, skip: s.blindly(q, w), terms: s.likeTerms(q, w)}
	if s.capacity != nil && len(s.capacity.Budgets) > 0 {
		out.tenant = w.tenant()
	}
	if w.unobtained.lasts(s.now) {
		out.refused = fmt.Sprint(w.unobtained.flavors)
	}
	if old := s.predecessor(q, w); old != nil {
		out.replaces = old.Object.UID
	}
	for _, r := range s.ahead(w) {
		out.asked = r.UID
	}
	for _, r := range w.Object.Status.ReclaimablePods {
		out.finished += r.Count
	}
	return out
}

// line is what is to be judged of one queue in a cycle, in its order.
type line struct {
	queue *queue
	rest  []*Workload
	// first is how the first of the rest could have its quota, nil if it cannot;
	// version is that of the drain at which it was found out.
	first   *proposal
	notes   *assigner
	version int
	// blocked: nobody else of the queue may start in this cycle.
	blocked bool
	// distance is from how far the first borrows, as far as is known.
	distance int
	// lots are those in line by LocalQueue, in a ClusterQueue that orders them by
	// what they have used; the rest above is that of the lot whose turn it is.
	lots []*lot
	turn int
}

// next takes the first out of the line.
func (l *line) next() {
	l.rest, l.first, l.version, l.distance = l.rest[1:], nil, -1, 0
	if l.lots == nil {
		return
	}
	if l.lots[l.turn].rest = l.rest; len(l.rest) == 0 {
		l.lots = slices.Delete(l.lots, l.turn, l.turn+1)
	}
	l.choose()
}

// choose has the lot whose turn it is come first.
func (l *line) choose() {
	for i, o := range l.lots {
		if i == 0 || o.ahead(l.lots[l.turn]) {
			l.turn, l.rest = i, o.rest
		}
	}
}

// all are those in line.
func (l *line) all() []*Workload {
	if l.lots == nil {
		return l.rest
	}
	var out []*Workload
	for _, o := range l.lots {
		out = append(out, o.rest...)
	}
	return out
}

// drainer gives out the quota of one tree.
type drainer struct {
	s     *Cycle
	tree  *tree
	lines []*line
	// version counts the changes of what is free.
	version int
	claims  []claim
	// reservations are quota in time, which backfill must not delay.
	reservations []reservation
	// barred says that backfill keeps a whole queue from starting.
	barred bool
	out    []Verdict
}

// claim is quota that is kept for a Workload whose victims have not left yet.
type claim struct {
	queue   *queue
	usage   quota.Amounts
	victims []victim
	// leaving: the victims are on their way. Else they stay until its machines are
	// there.
	leaving bool
}

// drain judges the Workloads of a tree that wait: those that nobody has judged
// yet, and all if quota has come back. Among the first ones of the queues those go
// first that borrow from nearest, then by priority and time; with fair sharing,
// those whose part of the tree has least. StrictFIFO stops at the first that does
// not fit; BestEffortFIFO goes on with the next.
func (s *Cycle) drain(t *tree) []Verdict {
	d := &drainer{s: s, tree: t}
	if t.loosened {
		for _, q := range t.queues {
			q.forgive()
		}
		t.stale, t.untrue = time.Time{}, false
	}
	t.loosened = false
	for _, q := range t.queues {
		if len(q.skipped) > 0 {
			clear(q.skipped)
			s.told.queues[q] = true
		}
		d.out = append(d.out, d.line(q)...)
	}
	d.keepAll()
	if s.config.FairSharing != nil {
		d.share()
	} else {
		d.borrow()
	}
	d.unclaim()
	return d.out
}

// borrow takes those first that borrow from nearest, then by priority and time.
func (d *drainer) borrow() {
	heap.Init(d)
	for d.Len() > 0 {
		l := d.lines[0]
		d.look(l)
		// What was found out may have put it behind another one. What is not looked
		// at again is better than it is at most, since quota only becomes less.
		if heap.Fix(d, 0); d.lines[0] != l {
			continue
		}
		d.take(l)
		if len(l.rest) == 0 {
			heap.Remove(d, 0)
		} else {
			heap.Fix(d, 0)
		}
	}
}

// share takes those first whose part of the tree would have the smallest share
// with them, looked at from the root down; but before all others those that victims
// have been asked to leave for. A smaller share would take what they leave, only to be
// preempted in its turn.
func (d *drainer) share() {
	lines := map[*quota.Node]*line{}
	for _, l := range d.lines {
		lines[l.queue.node] = l
	}
	for len(lines) > 0 {
		for _, l := range d.lines {
			// One that can have nothing is answered at once, so that the others compete.
			for len(l.rest) > 0 && l.first == nil {
				if d.look(l); l.first == nil {
					d.take(l)
				}
			}
			if len(l.rest) == 0 {
				delete(lines, l.queue.node)
			}
		}
		l := owed(lines)
		if l == nil {
			l = least(d.tree.root, lines)
		}
		if l != nil {
			d.look(l)
			d.take(l)
		}
	}
}

// owed is the first of the lines whose first Workload waits for its victims; nil if there
// is none.
func owed(lines map[*quota.Node]*line) (out *line) {
	for _, l := range lines {
		if l.rest[0].owed && (out == nil || before(l.rest[0], out.rest[0])) {
			out = l
		}
	}
	return out
}

// least is the line below a node that comes first with fair sharing; nil if there
// is none.
func least(n *quota.Node, lines map[*quota.Node]*line) *line {
	if l := lines[n]; l != nil {
		return l
	}
	var best *line
	var share quota.Share
	for _, child := range n.Children() {
		l := least(child, lines)
		if l == nil {
			continue
		}
		own := shareAfter(child, l)
		if c := own.Compare(share); best == nil || c < 0 || c == 0 && before(l.rest[0], best.rest[0]) {
			best, share = l, own
		}
	}
	return best
}

// line puts the Workloads of a queue that are to be judged in line. Those that
// cannot be anything but refused get their answer here.
func (d *drainer) line(q *queue) []Verdict {
	if !q.unjudged() {
		return nil
	}
	defer q.judged()
	head, _ := q.pending.Min()
	strict := q.object.Spec.QueueingStrategy == kueue.StrictFIFO && !backfills(q.object)
	l := &line{queue: q}
	switch {
	case strict && !d.s.sharesByUsage(q) && !q.anew && q.fresh[head.Object.UID] == nil:
		var out []Verdict
		why := d.blocked(q)
		for _, w := range sorted(q.fresh) {
			out = d.s.appendTold(out, w, why)
		}
		return out
	case strict, q.anew, len(q.fresh) == q.pending.Len():
		q.pending.Ascend(func(w *Workload) bool { l.rest = append(l.rest, w); return true })
	default:
		for _, w := range q.fresh {
			l.rest = append(l.rest, w)
		}
		slices.SortFunc(l.rest, compare)
	}
	slices.SortStableFunc(l.rest, func(a, b *Workload) int { return btoi(b.owed) - btoi(a.owed) })
	l.version = -1
	if d.s.sharesByUsage(q) {
		l.lots = lotsOf(l.rest)
		l.choose()
	}
	d.lines = append(d.lines, l)
	return nil
}

func (d *drainer) blocked(q *queue) *refusal {
	why := "is StrictFIFO"
	if backfills(q.object) {
		why = "backfills"
	}
	return refusalOf(kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
		"ClusterQueue %s %s, and a workload ahead of this one does not fit yet", q.object.Name, why))
}

// look finds out how the first of a line could have its quota, as things are.
func (d *drainer) look(l *line) {
	q := l.queue
	for len(l.rest) > 0 {
		w := l.rest[0]
		if w.place != waiting || w.busy {
			l.next()
			continue
		}
		r := q.refusals[d.s.likeness(q, w)]
		if !r.holds(w, d.s.now) || q.object.Spec.QueueingStrategy == kueue.StrictFIFO {
			break
		}
		d.refuse(l, &refusal{inadmissible: *r})
	}
	if len(l.rest) == 0 || l.version == d.version {
		return
	}
	w := l.rest[0]
	l.first, l.notes = d.s.assign(q, w)
	if delete(q.skipped, w.Object.UID); l.notes.skipped {
		q.skipped[w.Object.UID], d.s.told.queues[q] = true, true
	}
	l.version = d.version
	l.distance = 0
	if l.first != nil {
		l.distance = l.first.distance
	}
}

// take does what was found out about the first of a line.
func (d *drainer) take(l *line) {
	if len(l.rest) == 0 {
		return
	}
	w, p := l.rest[0], l.first
	w.owed = false
	if p == nil {
		r := &refusal{inadmissible: inadmissible{l.notes.notes.reason(), l.notes.notes.message(), l.notes.until, w.priority, w.since}}
		if backfills(l.queue.object) {
			r = d.backfill(l, r)
		} else {
			l.queue.refusals[d.s.likeness(l.queue, w)] = &r.inadmissible
		}
		d.refuse(l, r)
		d.keepRefused(l, w)
		return
	}
	if h := d.s.withheld(w, p); h != nil {
		d.withhold(l, h)
		return
	}
	if r := d.delays(l.queue, w, p); r != nil {
		d.refuse(l, r)
		return
	}
	if len(p.victims) > 0 || p.awaits || !d.fitsNow(l.queue, p.growth()) {
		d.claim(l, p)
		return
	}
	d.version++
	d.out = append(d.out, *d.s.reserve(l.queue, w, p))
	d.started(l.queue, w, p.usage)
	l.next()
	d.keepNext(l, w, p.usage)
}

// refuse answers the first of a line, and in StrictFIFO all behind it.
func (d *drainer) refuse(l *line, r *refusal) {
	w := l.rest[0]
	l.next()
	if r.reason == ReasonWaitingForCapacity {
		l.queue.wantsMachines = true
	}
	d.out = d.s.appendTold(d.out, w, r)
	if strict := l.queue.object.Spec.QueueingStrategy == kueue.StrictFIFO && !backfills(l.queue.object); !strict && !l.blocked {
		return
	}
	// One that was judged out of its turn, since victims were to leave for it, blocks none
	// of those before it.
	var ahead []*Workload
	why := d.blocked(l.queue)
	for _, other := range l.all() {
		if l.lots == nil && compare(other, w) < 0 {
			ahead = append(ahead, other)
		} else {
			d.out = d.s.appendTold(d.out, other, why)
		}
	}
	l.rest, l.lots = ahead, nil
}

// appendTold adds the verdict that a Workload waits, unless it has been told just
// that.
func (s *Cycle) appendTold(out []Verdict, w *Workload, r *refusal) []Verdict {
	s.wake(w, r.until)
	v := r.next
	if v == nil || v.Action == Wait {
		v = s.wait(w, r.reason, r.message)
	}
	switch {
	case w.busy:
	case r.next == nil:
		v = s.clean(w, v)
	case v == nil:
		v = r.next
	case v != r.next:
		v.Create, v.Delete = r.next.Create, r.next.Delete
	}
	if v != nil && (v.acts() || v.Status != nil) {
		out = s.emit(out, v)
	}
	return out
}

// claim has the victims of the first of a line leave, and keeps their quota for it
// against those that come after it in this cycle. It is judged again, before them,
// once some quota has come back. Who has to ask for machines first claims in the same
// way, while his victims stay.
func (d *drainer) claim(l *line, p *proposal) {
	w := l.rest[0]
	c := claim{queue: l.queue, usage: p.growth(), victims: p.victims, leaving: true}
	r := refusalOf(kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads, "Waiting for the quota of preempted workloads")
	if p.ahead {
		r.next, c.leaving = d.s.ask(l.queue, w, p)
		if r.next.Action != Wait {
			d.refuse(l, r)
			return
		}
	}
	if c.leaving {
		w.owed = len(p.victims) > 0
		d.preempt(w, p.victims)
		if names := namesOf(p.victims); len(names) > 0 {
			r.message += ": " + strings.Join(names, ", ")
		} else if p.awaits {
			r.message = "Waiting for machines that others give back, whose quota it has"
		}
	} else {
		r.reason, r.message = ReasonWaitingForCapacity, awaited(p)
	}
	l.queue.wantsMachines = l.queue.wantsMachines || p.awaits
	c.apply()
	for _, v := range c.victims {
		v.claimed = true
	}
	if p.plan != nil {
		// Its machines are certain only as long as nobody else is promised them.
		d.s.take(w, p.plan)
	}
	d.claims = append(d.claims, c)
	d.version++
	d.refuse(l, r)
}

// preempt has those leave who are not on their way yet.
func (d *drainer) preempt(w *Workload, victims []victim) {
	for _, v := range victims {
		if !IsEvicted(v.Object) && !v.busy {
			d.out = append(d.out, *d.s.preempted(v, w))
		}
	}
}

// apply makes the tree look as if the victims had left and the Workload had come. As
// long as they stay it has but what is free, and what they will leave over is nobody's.
func (c *claim) apply() {
	for _, v := range c.victims {
		if c.leaving {
			v.queue.node.Sub(v.Usage)
		}
	}
	c.queue.node.Add(c.taken())
}

func (c *claim) undo() {
	c.queue.node.Sub(c.taken())
	for _, v := range c.victims {
		if c.leaving {
			v.queue.node.Add(v.Usage)
		}
	}
}

// taken is what nobody else can have because of the claim.
func (c *claim) taken() quota.Amounts {
	if c.leaving {
		return c.usage
	}
	out := maps.Clone(c.usage)
	for _, v := range c.victims {
		out.Sub(v.Usage)
	}
	return out
}

// fitsNow says that usage which will fit once all victims have left fits already.
func (d *drainer) fitsNow(q *queue, usage quota.Amounts) bool {
	for i := range d.claims {
		d.claims[i].undo()
	}
	fits := q.node.Fits(usage)
	for i := range d.claims {
		d.claims[i].apply()
	}
	return fits
}

// unclaim puts the tree back to what is used. As long as there are claims, every
// cycle judges anew, so that what was claimed is not given to somebody else.
func (d *drainer) unclaim() {
	for i := range d.claims {
		d.claims[i].undo()
		for _, v := range d.claims[i].victims {
			v.claimed = false
		}
	}
	d.tree.claimed = len(d.claims) > 0 || len(d.reservations) > 0 || d.barred
}

// reserve gives a Workload its quota.
func (s *Cycle) reserve(q *queue, w *Workload, p *proposal) *Verdict {
	if p.plan != nil {
		s.take(w, p.plan)
	}
	names := checksFor(q.object, assignedFlavors(p.admission))
	e := edit(w.Object, s.now)
	e.reserve(p.admission, s.fresh(w, names))
	s.assume(w, q, p.usage)
	s.succeed(w, true)
	s.penalize(q, w, p.growth(), s.now)
	w.busy = true
	s.comes(w, p.admission)
	w.reason, w.message = "", ""
	s.timers.set(w, time.Time{})
	return &Verdict{
		Workload: w, Action: Reserve, Status: e.status, Reason: "QuotaReserved", Plan: p.plan,
		Message: fmt.Sprintf("Quota reserved in ClusterQueue %s, wait time since queued was %.0fs",
			q.object.Name, max(0, s.now.Sub(w.since).Seconds())),
	}
}

// fresh are the states of the checks at the start of an attempt.
func (s Rules) fresh(w *Workload, names []kueue.AdmissionCheckReference) []kueue.AdmissionCheckState {
	out := make([]kueue.AdmissionCheckState, 0, len(names))
	for _, name := range names {
		state := kueue.AdmissionCheckState{
			Name: name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(s.now), RetryCount: s.retryCount(w, name),
		}
		if s.isCapacity(name) {
			state.Message = waitingFor(RequestName(w.Object.Name, name, retries(&state)+1))
		}
		out = append(out, state)
	}
	return out
}

// Len, Less, Swap, Push and Pop make the lines a heap, the one to look at first on
// top.
func (d *drainer) Len() int      { return len(d.lines) }
func (d *drainer) Swap(i, j int) { d.lines[i], d.lines[j] = d.lines[j], d.lines[i] }
func (d *drainer) Push(any)      {}

func (d *drainer) Pop() any {
	last := len(d.lines) - 1
	l := d.lines[last]
	d.lines = d.lines[:last]
	return l
}

// Less orders two lines by their first Workloads. One that has not been looked at
// might be the best, so it comes before those that it may beat.
func (d *drainer) Less(i, j int) bool {
	a, b := d.lines[i], d.lines[j]
	if len(a.rest) == 0 || len(b.rest) == 0 {
		return len(a.rest) > len(b.rest)
	}
	if x, y := a.rest[0].owed, b.rest[0].owed; x != y {
		return x
	}
	if a.distance != b.distance {
		return a.distance < b.distance
	}
	return before(a.rest[0], b.rest[0])
}

// shareAfter is the share that a node would have with the first of a line below it.
func shareAfter(n *quota.Node, l *line) quota.Share {
	growth := l.first.growth()
	l.queue.node.Add(growth)
	defer l.queue.node.Sub(growth)
	return n.Share()
}
