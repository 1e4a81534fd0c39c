package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/btree"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writer"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// tellAfter is how old a Workload is at least before it is told why it waits.
	// Most get their quota sooner.
	tellAfter = time.Second
	// refreshAfter is how long a text stays at least once its reason has been told,
	// unless the reason itself changes. Every admission changes what is free, and
	// with it the text of all that wait.
	refreshAfter = 10 * time.Second

	// leastRate and mostRate bound how many Workloads are told why they wait, per
	// second, while nothing else is written; firstRate is where it begins.
	leastRate = 10
	firstRate = 50
	mostRate  = 200
	// mostAhead is how many that have never been told anything are told whatever acts there
	// are: people look after some seconds. That is for crowds that come at once, so there are
	// as many again only when all have been told. It takes aheadWriters at a time.
	mostAhead    = 1000
	aheadWriters = writers * 3 / 4
	// actsPerReason is how many acts there are to a reason while they take all that the
	// API server has time for.
	actsPerReason = 10
	// quickWrite and slowWrite say from how long the API server takes for a write
	// whether it has time for more.
	quickWrite = 20 * time.Millisecond
	slowWrite  = 50 * time.Millisecond
	// tellEvery is how often the loop comes back to tell more.
	tellEvery = 50 * time.Millisecond
)

// reasons are what pending Workloads are to be told. Writes are the budget of the
// whole cluster, and these change nothing: they get what is left of it.
type reasons struct {
	notes map[types.UID]*note
	// due has the notes of each kind by when they may be written.
	due [kinds]*btree.BTreeG[*note]
	// count numbers the notes, so that the heads of the queues go first.
	count int64
	// last is when a Workload was told.
	last map[types.UID]time.Time
	// underWay are the Workloads that are being told, with what is to be done then.
	underWay map[types.UID][]held

	// rate is in writes a second, acts included; tokens, in thousandths of a write, is
	// how many reasons may be told, as of at.
	rate   int64
	tokens int64
	at     time.Time
	// ahead is how many more may be told out of turn.
	ahead int
	// acts counts the acts since second, lately how many there were a second before.
	acts, lately int64
	second       time.Time
	// slowed is when the rate was halved last.
	slowed time.Time
}

// note is the newest reason of one Workload.
type note struct {
	uid             types.UID
	reason, message string
	kind            kind
	due             time.Time
	number          int64
}

// kind says what a note is to those who read it, the most wanted first.
type kind int

const (
	// first: the Workload has not been told anything yet.
	first kind = iota
	// news: its reason is another one. So is one that could not be written.
	news
	// reworded: it has a new text only.
	reworded

	kinds
)

func newReasons() *reasons {
	byDue := func(a, b *note) bool { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.number, b.number)) < 0 }
	r := &reasons{
		notes: map[types.UID]*note{}, last: map[types.UID]time.Time{}, underWay: map[types.UID][]held{}, rate: firstRate, ahead: mostAhead,
	}
	for k := range r.due {
		r.due[k] = btree.NewG(32, byDue)
	}
	return r
}

// note takes in why a Workload waits, in place of what was known before.
func (r *reasons) note(w *kueue.Workload, reason, message string, now time.Time) {
	r.drop(w.UID)
	n := &note{uid: w.UID, reason: reason, message: message, due: w.CreationTimestamp.Add(tellAfter), number: r.count}
	r.count++
	have := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	last, told := r.last[w.UID]
	pause := tellAfter
	switch {
	case have == nil && !told:
		n.kind = first
	case have == nil || have.Reason != reason:
		n.kind = news
	default:
		n.kind, pause = reworded, refreshAfter
	}
	if told {
		n.due = latest(n.due, last.Add(pause))
	}
	// The clock of the API server may be ahead.
	if limit := now.Add(tellAfter); !told && n.due.After(limit) {
		n.due = limit
	}
	if n.due.Before(now) {
		n.due = now
	}
	r.notes[w.UID] = n
	r.due[n.kind].ReplaceOrInsert(n)
}

func (r *reasons) drop(uid types.UID) {
	if n := r.notes[uid]; n != nil {
		r.due[n.kind].Delete(n)
		delete(r.notes, uid)
	}
}

// remove forgets a Workload that waits no more.
func (r *reasons) remove(uid types.UID) {
	r.drop(uid)
	delete(r.last, uid)
}

// next takes out the note to write now; nil if there is none. It is paid for once it is
// known that there is something to write.
func (r *reasons) next(now time.Time) *note {
	for k, tree := range r.due {
		n, ok := tree.Min()
		if !ok || now.Before(n.due) {
			if kind(k) == first {
				r.ahead = mostAhead
			}
			continue
		}
		ahead := n.kind == first && r.ahead > 0 && len(r.underWay) < aheadWriters
		if r.tokens < 1000 && !ahead {
			return nil
		}
		r.drop(n.uid)
		return n
	}
	return nil
}

// pay counts a reason that is being told.
func (r *reasons) pay() {
	if r.tokens >= 1000 {
		r.tokens -= 1000
	} else {
		r.ahead--
	}
}

// wakeAt is when the next note is due; zero if there is none.
func (r *reasons) wakeAt() (out time.Time) {
	for _, tree := range r.due {
		if n, ok := tree.Min(); ok {
			out = earliest(out, n.due)
		}
	}
	return out
}

// acted counts an act, which is a write that gets somebody on.
func (r *reasons) acted() { r.acts++ }

// spare is how many reasons a second may be told: what acts leave of the rate. Who is
// admitted before its turn to be told needs none.
func (r *reasons) spare() int64 {
	acts := max(r.acts, r.lately)
	return max(r.rate-acts, acts/actsPerReason, leastRate)
}

// refill gives the writes that may be started since it was called last.
func (r *reasons) refill(now time.Time) {
	if passed := now.Sub(r.second); passed >= time.Second {
		r.lately, r.acts, r.second = r.acts*1000/passed.Milliseconds(), 0, now
	}
	// A pause gives no more than is written between two looks.
	since := min(now.Sub(r.at), 2*tellEvery)
	r.at = now
	spare := r.spare()
	r.tokens = min(r.tokens+spare*since.Milliseconds(), max(1000, spare*2*tellEvery.Milliseconds()))
}

// took follows how fast the API server is.
func (r *reasons) took(d time.Duration, now time.Time) {
	switch {
	case now.Sub(r.slowed) < time.Second:
		// Writes under way at once are slow together, so they count once; and that
		// there are quick ones among them says nothing.
	case d < quickWrite:
		r.rate = min(r.rate+1, mostRate)
	case d > slowWrite:
		r.rate, r.slowed = max(r.rate/2, leastRate), now
	}
}

// held is what goes on once a Workload has been told why it waits.
type held struct {
	// then takes the versions on both sides of that write; after is nil if there was
	// none.
	then func(before, after *kueue.Workload)
	// waits says that the Workload waits on for the same reason.
	waits bool
}

// hold keeps what is to be done about a Workload while it is being told why it
// waits, or it would meet another version than it was meant for. False says that
// there is nothing to wait for.
func (r *reasons) hold(uid types.UID, h held) bool {
	waiting, ok := r.underWay[uid]
	if ok {
		r.underWay[uid] = append(waiting, h)
	}
	return ok
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// pace takes in how long a write took.
func (l *loop) pace(took time.Duration, now time.Time) { l.reasons.took(took, now) }

// tell starts as many writes of reasons as may be, and returns when to go on.
func (l *loop) tell(now time.Time) time.Time {
	r := l.reasons
	r.refill(now)
	for n := r.next(now); n != nil; n = r.next(now) {
		object := l.known.workload(n.uid)
		if object == nil || workload.HasQuota(object) || workload.IsFinished(object) {
			continue
		}
		if _, ok := r.underWay[n.uid]; ok {
			l.again(n, now)
			continue
		}
		status := workload.Waiting(object, l.state.Requested(n.uid), n.reason, n.message, now)
		if status == nil {
			continue
		}
		r.pay()
		r.underWay[n.uid] = nil
		l.start(paced, func(ctx context.Context) settle {
			began := l.now()
			written, err := writer.ApplyStatus(ctx, l.client, object, status)
			took := l.now().Sub(began)
			return func(now time.Time) {
				l.pace(took, now)
				l.told(n, object, written, err, now)
			}
		})
	}
	next := r.wakeAt()
	if !next.IsZero() && next.Before(now.Add(tellEvery)) {
		next = now.Add(tellEvery)
	}
	return next
}

// told takes in that a Workload was told why it waits, or was not.
func (l *loop) told(n *note, before, written *kueue.Workload, err error, now time.Time) {
	r := l.reasons
	waiting := r.underWay[n.uid]
	delete(r.underWay, n.uid)
	switch {
	case l.known.workload(n.uid) == nil:
		// It is gone, and so is all that there was to tell.
	case err == nil:
		l.set(written)
		r.last[n.uid] = now
	default:
		if !isStale(err) {
			l.log.Error(err, "Telling a Workload why it waits failed")
		}
		if !slices.ContainsFunc(waiting, func(h held) bool { return !h.waits }) {
			l.again(n, now)
		}
	}
	for _, h := range waiting {
		h.then(before, written)
	}
}

// again has a note written later, unless there is a newer one.
func (l *loop) again(n *note, now time.Time) {
	r := l.reasons
	if r.notes[n.uid] != nil {
		return
	}
	n.due, n.kind = now.Add(tellAfter), max(n.kind, news)
	r.notes[n.uid] = n
	r.due[n.kind].ReplaceOrInsert(n)
}
