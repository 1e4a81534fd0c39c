package invariants

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster/test/invariants/promises"
)

// message is a message of a stream.
type message struct {
	kind promises.Kind
	time time.Time
	// events that were seen, in the order of the stream.
	events []promises.Event
	// gap, if set, is the span of revisions that the stream has missed before them.
	gap *gap
	// lost: the stream has no connection from now on; back: it has one again.
	lost, back bool
}

type gap struct{ from, to uint64 }

// outage is how long the streams must have been without connection for others to
// need time to recover, too. Shorter are the changes from one watch to the next.
const outage = 500 * time.Millisecond

// merger puts the events of all streams in order and feeds them to the Checker.
type merger struct {
	checker        *promises.Checker
	hold, recovery time.Duration
	// held events by revision.
	held []promises.Event
	// blind are the streams without a connection, and since when. While there is one, no event is released, since an earlier one may
	// still arrive on that stream.
	blind map[promises.Kind]time.Time
	// last is the time of the last release.
	last  time.Time
	trace trace
}

func newMerger(c *promises.Checker, hold, recovery time.Duration) *merger {
	return &merger{checker: c, hold: hold, recovery: recovery, blind: map[promises.Kind]time.Time{}}
}

func (m *merger) lost(k promises.Kind, at time.Time) {
	if _, known := m.blind[k]; !known {
		m.blind[k] = at
	}
}

func (m *merger) take(msg message) {
	if msg.gap != nil {
		m.checker.Gap(msg.kind, msg.gap.from, msg.gap.to)
	}
	for _, e := range msg.events {
		i, _ := slices.BinarySearchFunc(m.held, e.Revision+1, func(h promises.Event, r uint64) int { return cmp.Compare(h.Revision, r) })
		m.held = slices.Insert(m.held, i, e)
	}
	if msg.lost {
		m.lost(msg.kind, msg.time)
	}
	if since, blind := m.blind[msg.kind]; msg.back && blind {
		delete(m.blind, msg.kind)
		if !m.last.IsZero() && msg.time.Sub(since) >= outage {
			m.checker.StandStill(msg.time.Add(m.recovery))
		}
	}
}

// release feeds the events that have been held for long enough, and all that were
// written before them. The cluster is behind by so much in all.
func (m *merger) release(now time.Time, behind time.Duration) {
	m.checker.Behind(now, behind)
	if len(m.blind) > 0 {
		return
	}
	ripe := now.Add(-m.hold)
	n := 0
	for i := range m.held {
		if !m.held[i].Time.After(ripe) {
			n = i + 1
		}
	}
	m.feed(n)
	m.last = ripe
	m.checker.Tick(ripe)
}

func (m *merger) feed(n int) {
	for _, e := range m.held[:n] {
		m.checker.Apply(e)
		m.trace.add(e)
	}
	m.held = slices.Delete(m.held, 0, n)
}

// finish feeds all that is held.
func (m *merger) finish(now time.Time) {
	m.feed(len(m.held))
	if len(m.blind) == 0 {
		m.checker.Finish(now)
	} else {
		m.checker.Finish(m.last)
	}
}
