package cache

import (
	"cmp"
	"strings"
	"time"

	"github.com/google/btree"
)

// timer evaluates a Workload again at a time.
type timer struct {
	at time.Time
	w  *Workload
}

// timers are sorted by time. Each Workload has at most one.
type timers struct{ tree *btree.BTreeG[timer] }

func (t *timers) Set(w *Workload, at time.Time) {
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

// next returns the earliest time; zero if there is none.
func (t *timers) next() time.Time {
	if t.tree == nil {
		return time.Time{}
	}
	first, _ := t.tree.Min()
	return first.at
}

// Expired removes and returns the Workloads that are due.
func (t *timers) Expired(now time.Time) (out []*Workload) {
	for at := t.next(); !at.IsZero() && !now.Before(at); at = t.next() {
		first, _ := t.tree.DeleteMin()
		first.w.wakeAt = time.Time{}
		out = append(out, first.w)
	}
	return out
}
