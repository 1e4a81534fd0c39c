package queueing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// queue is a ClusterQueue with what is in it.
type queue struct {
	object   *kueue.ClusterQueue
	standing Standing
	node     *quota.Node
	tree     *tree
	counts

	// pending are the Workloads that wait and may be judged, in their order; fresh
	// those of them that have not been since they changed. Anew says that none has been
	// since the queue did.
	pending *btree.BTreeG[*Workload]
	fresh   map[types.UID]*Workload
	anew    bool
	// refusals are the answers to Workloads that still wait. They hold as long as
	// quota and machines only become fewer.
	refusals map[likeness]*inadmissible
	// holding are those with quota.
	holding map[types.UID]*Workload
	// asked is what those that wait ask for, on whatever flavor.
	asked sums
	// skipped are the Workloads that found nothing to preempt in the last cycle but what
	// others had claimed in it.
	skipped map[types.UID]bool
	// unseen counts those charged with quota whose objects do not show it yet.
	unseen int
	// circular: its cohort is in a circle of cohorts.
	circular bool
	// wantsMachines says that a refusal was for want of machines.
	wantsMachines bool
}

// tree is a cohort with all below it, or a ClusterQueue that has none: what is
// used in one queue of it may matter to all others, and to none outside.
type tree struct {
	root   *quota.Node
	queues []*queue
	// loosened says that quota came back, so that what was refused may fit now.
	loosened bool
	// claimed says that quota was kept for Workloads that wait for their victims, or
	// for a time to come. Then nobody may be judged without those ahead of him.
	claimed bool
	// overlooked says that preemption was considered while a Workload had been given quota
	// that its object did not show yet, so it could not be asked to leave.
	overlooked bool
	// kept is quota that is not lent, as of the last drain.
	kept []kept
	// untrue says that quota was given out since some Workloads were told how much is
	// free. At stale all are judged again for that; zero if what they were told is true.
	untrue bool
	stale  time.Time
}

// staleAfter is how long what a Workload was told may be untrue.
const staleAfter = 10 * time.Second

// tightened notes that more is used.
func (t *tree) tightened() {
	t.untrue = t.untrue || slices.ContainsFunc(t.queues, func(q *queue) bool { return len(q.refusals) > 0 })
}

// correct sets the time at which the Workloads of the tree are judged again whose
// messages are not true any more.
func (t *tree) correct(now time.Time) {
	if t.untrue && t.stale.IsZero() {
		t.stale = now.Add(staleAfter)
	}
	t.untrue = false
}

// localQueue is a LocalQueue with its numbers.
type localQueue struct {
	object *kueue.LocalQueue
	counts
	consumption
}

// counts are what the status of a queue shows.
type counts struct {
	waiting, reserving, running int32
	// finished are those that are over and not deleted yet.
	finished int32
	// reserved is what Workloads have reserved, admitted the part of it whose
	// Workloads may run.
	reserved, admitted sums
}

func newCounts() counts { return counts{reserved: sums{}, admitted: sums{}} }

func (q *queue) countsOf() *counts {
	if q == nil {
		return nil
	}
	return &q.counts
}

func (lq *localQueue) countsOf() *counts {
	if lq == nil {
		return nil
	}
	return &lq.counts
}

// sums are amounts that Workloads are added to and taken from.
type sums quota.Amounts

func (a sums) change(usage quota.Amounts, by int32) {
	if by > 0 {
		quota.Amounts(a).Add(usage)
	} else {
		quota.Amounts(a).Sub(usage)
	}
}

func newQueue(cq *kueue.ClusterQueue) *queue {
	return &queue{
		object: cq, counts: newCounts(),
		node:     quota.NewNode(cq.Name, weightOf(cq.Spec.FairSharing), quotasOf(cq.Spec.ResourceGroups)),
		pending:  btree.NewG(32, before),
		fresh:    map[types.UID]*Workload{},
		refusals: map[likeness]*inadmissible{},
		holding:  map[types.UID]*Workload{},
		asked:    sums{},
		skipped:  map[types.UID]bool{},
	}
}

// before orders the Workloads of a ClusterQueue: higher priority, then longer in
// the queue, then the UID, which is unique.
func before(a, b *Workload) bool { return compare(a, b) < 0 }

func compare(a, b *Workload) int {
	if c := cmp.Compare(b.priority, a.priority); c != 0 {
		return c
	}
	if c := a.since.Compare(b.since); c != 0 {
		return c
	}
	return strings.Compare(string(a.Object.UID), string(b.Object.UID))
}

// push puts a Workload into the queue, to be judged.
func (q *queue) push(w *Workload) {
	q.pending.ReplaceOrInsert(w)
	q.fresh[w.Object.UID] = w
}

// drop takes a Workload out of those that wait to be judged.
func (q *queue) drop(w *Workload) {
	q.pending.Delete(w)
	delete(q.fresh, w.Object.UID)
}

// withdraw takes out a Workload that waits no more though it got no quota. Those that were
// refused because of it may start now: all behind the head of a StrictFIFO queue, and all
// of the tree if quota was claimed or kept for it.
func (q *queue) withdraw(w *Workload) {
	if !q.pending.Has(w) {
		return
	}
	head, _ := q.pending.Min()
	q.anew = q.anew || head == w && q.object.Spec.QueueingStrategy == kueue.StrictFIFO
	kept := slices.ContainsFunc(q.tree.kept, func(k kept) bool { return k.head == w })
	q.tree.loosened = q.tree.loosened || q.tree.claimed || kept
	q.drop(w)
}

// forgive forgets what was refused, so that all are judged again.
func (q *queue) forgive() {
	clear(q.refusals)
	q.wantsMachines, q.anew = false, true
}

// unjudged says that somebody is to be judged.
func (q *queue) unjudged() bool { return len(q.fresh) > 0 || q.anew && q.pending.Len() > 0 }

// judged empties what is to be judged. A table that was large once would cost as much to
// clear ever after.
func (q *queue) judged() { q.fresh, q.anew = map[types.UID]*Workload{}, false }

// weightOf is in thousandths; one where nothing is said.
func weightOf(fs *kueue.FairSharing) int64 {
	if fs == nil || fs.Weight == nil {
		return 1000
	}
	return max(0, nodegroups.Scaled(*fs.Weight, resource.Milli))
}

// quotasOf reads the quotas of a ClusterQueue or cohort.
func quotasOf(groups []kueue.ResourceGroup) map[quota.FlavorResource]quota.Quota {
	out := map[quota.FlavorResource]quota.Quota{}
	for _, group := range groups {
		for _, flavor := range group.Flavors {
			for _, r := range flavor.Resources {
				amount := func(list corev1.ResourceList) int64 { return nodegroups.ResourcesFrom(list)[r.Name] }
				own := quota.Quota{Nominal: amount(corev1.ResourceList{r.Name: r.NominalQuota})}
				if r.BorrowingLimit != nil {
					own.Borrowing = new(amount(corev1.ResourceList{r.Name: *r.BorrowingLimit}))
				}
				if r.LendingLimit != nil {
					own.Lending = new(amount(corev1.ResourceList{r.Name: *r.LendingLimit}))
				}
				out[quota.FlavorResource{Flavor: flavor.Name, Resource: r.Name}] = own
			}
		}
	}
	return out
}

// rebuild works out the queues anew after an object other than a Workload or a
// request has changed, which is seldom, and has every Workload looked at again.
func (s *Cache) rebuild() {
	for _, q := range s.order {
		// Cheaper than to take out one after the other.
		q.pending.Clear(false)
	}
	for _, w := range s.workloads {
		s.leave(w)
		// The trees are built again, without anything in use.
		w.charged, w.charge, w.unseen = nil, nil, false
	}
	s.outdated = false
	s.queues = make(map[kueue.ClusterQueueReference]*queue, len(s.clusterQueues))
	s.order = s.order[:0]
	for _, cq := range s.clusterQueues {
		q := newQueue(cq)
		s.queues[kueue.ClusterQueueReference(cq.Name)] = q
		s.order = append(s.order, q)
	}
	slices.SortFunc(s.order, func(a, b *queue) int { return strings.Compare(a.object.Name, b.object.Name) })
	for _, lq := range s.localQueues {
		lq.counts = newCounts()
		s.weigh(lq)
	}
	s.plant()
	for _, q := range s.order {
		q.standing = s.clusterQueueStanding(q)
	}
	for uid, w := range s.workloads {
		if w.assumed != nil {
			// A queue that is gone is charged with nothing.
			w.assumed = s.queues[kueue.ClusterQueueReference(w.assumed.object.Name)]
		}
		s.enter(w)
		s.due[uid] = w
	}
	s.told.all(s)
	if s.sharing != nil && s.sampleAt.IsZero() {
		// The sample finds out which LocalQueues use anything.
		s.sampleAt = atOnce
	}
}

// atOnce is a time that is over.
var atOnce = time.Unix(0, 0)

// plant makes the trees of cohorts. A cohort that nobody has made is one without
// quota of its own; cohorts in a circle form no tree, and their queues are put
// into trees of their own, which are inactive.
func (s *Cache) plant() {
	nodes := map[kueue.CohortReference]*quota.Node{}
	parents := map[kueue.CohortReference]kueue.CohortReference{}
	var names []kueue.CohortReference
	var add func(name kueue.CohortReference)
	add = func(name kueue.CohortReference) {
		if nodes[name] != nil {
			return
		}
		names = append(names, name)
		cohort := s.cohorts[name]
		if cohort == nil {
			nodes[name] = quota.NewNode(string(name), 1000, nil)
			return
		}
		nodes[name] = quota.NewNode(string(name), weightOf(cohort.Spec.FairSharing), quotasOf(cohort.Spec.ResourceGroups))
		if cohort.Spec.ParentName != "" {
			parents[name] = cohort.Spec.ParentName
			add(cohort.Spec.ParentName)
		}
	}
	for name := range s.cohorts {
		add(name)
	}
	for _, q := range s.order {
		if q.object.Spec.CohortName != "" {
			add(q.object.Spec.CohortName)
		}
	}
	slices.Sort(names)
	// depth is how many cohorts are above one; -1 in or below a circle.
	depth := func(name kueue.CohortReference) int {
		for d := 0; ; d++ {
			parent, ok := parents[name]
			if !ok {
				return d
			}
			if d > len(names) {
				return -1
			}
			name = parent
		}
	}
	slices.SortStableFunc(names, func(a, b kueue.CohortReference) int { return cmp.Compare(depth(b), depth(a)) })
	for _, q := range s.order {
		q.circular = q.object.Spec.CohortName != "" && depth(q.object.Spec.CohortName) < 0
		if q.object.Spec.CohortName != "" && !q.circular {
			q.node.Join(nodes[q.object.Spec.CohortName])
		}
	}
	for _, name := range names {
		if parent, ok := parents[name]; ok && depth(name) >= 0 {
			nodes[name].Join(nodes[parent])
		}
	}
	s.cohortNodes = nodes
	s.trees = s.trees[:0]
	of := map[*quota.Node]*tree{}
	for _, q := range s.order {
		root := q.node.Root()
		if of[root] == nil {
			of[root] = &tree{root: root, loosened: true}
			s.trees = append(s.trees, of[root])
		}
		q.tree = of[root]
		q.tree.queues = append(q.tree.queues, q)
	}
}

// timer has a Workload looked at from a time on.
type timer struct {
	at time.Time
	w  *Workload
}

// timers are in the order of their times. A Workload's last one counts.
type timers struct{ tree *btree.BTreeG[timer] }

func (t *timers) set(w *Workload, at time.Time) {
	if t.tree == nil {
		t.tree = btree.NewG(32, func(a, b timer) bool {
			return cmp.Or(a.at.Compare(b.at), strings.Compare(string(a.w.Object.UID), string(b.w.Object.UID))) < 0
		})
	}
	if w.wakeAt.Equal(at) {
		return
	}
	if !w.wakeAt.IsZero() {
		t.tree.Delete(timer{w.wakeAt, w})
	}
	if w.wakeAt = at; !at.IsZero() {
		t.tree.ReplaceOrInsert(timer{at, w})
	}
}

// next is the earliest time; zero if there is none.
func (t *timers) next() time.Time {
	if t.tree == nil {
		return time.Time{}
	}
	first, _ := t.tree.Min()
	return first.at
}

// expired takes out those that are due.
func (t *timers) expired(now time.Time) (out []*Workload) {
	for at := t.next(); !at.IsZero() && !now.Before(at); at = t.next() {
		first, _ := t.tree.DeleteMin()
		first.w.wakeAt = time.Time{}
		out = append(out, first.w)
	}
	return out
}

// told are the objects whose status may not say yet what is.
type told struct {
	queues map[*queue]bool
	locals map[*localQueue]bool
	checks bool
	// trees: cohorts may have come, gone or moved.
	trees bool
}

func newTold() told { return told{queues: map[*queue]bool{}, locals: map[*localQueue]bool{}} }

func (t *told) counted(w *Workload) {
	if w.queue != nil {
		t.queues[w.queue] = true
	}
	if w.local != nil {
		t.locals[w.local] = true
	}
}

func (t *told) all(s *Cache) {
	*t = newTold()
	for _, q := range s.order {
		t.queues[q] = true
	}
	for _, lq := range s.localQueues {
		t.locals[lq] = true
	}
	t.checks, t.trees = true, true
}
