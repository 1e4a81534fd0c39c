package cloudsim

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// Line is what one instance or reservation has cost so far.
type Line struct {
	// ID of the instance or reservation.
	ID   string  `json:"id"`
	Pool PoolKey `json:"pool"`
	// Group is the cloud's own group that owns it; empty for none.
	Group string            `json:"group,omitempty"`
	Tags  map[string]string `json:"tags,omitempty"`
	// Places is how many machines are billed at once: 1 for an instance. Of a reservation, only the places without an instance are
	// billed.
	Places int       `json:"places"`
	From   time.Time `json:"from"`
	// Until is the end, or now for what is still there.
	Until time.Time `json:"until"`
	Open  bool      `json:"open,omitempty"`
	// MachineMilliseconds are paid for, at MicroUSD, millionths of a USD.
	MachineMilliseconds int64 `json:"machineMilliseconds"`
	MicroUSD            int64 `json:"microUSD"`
}

// Bill is what everything has cost by now, by beginning and ID.
func (w *World) Bill() []Line {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	end := func(t time.Time) time.Time {
		if t.IsZero() {
			return now
		}
		return t
	}
	var out []Line
	for _, in := range w.instances {
		l := Line{ID: in.ID, Pool: in.Pool, Group: in.Group, Tags: in.copy().Tags, Places: 1, From: in.LaunchedAt, Until: end(in.TerminatedAt),
			Open: in.TerminatedAt.IsZero()}
		from := l.From
		for _, off := range in.off {
			w.charge(&l, 1, from, off.from)
			if from = end(off.to); from.After(l.Until) {
				from = l.Until
			}
		}
		w.charge(&l, 1, from, l.Until)
		out = append(out, l)
	}
	for _, r := range w.reservations {
		l := Line{ID: r.ID, Pool: r.Pool, Tags: r.copy().Tags, Places: r.Count, From: r.MadeAt, Until: end(r.EndedAt), Open: r.EndedAt.IsZero()}
		w.chargeEmpty(&l, r)
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Line) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.ID, b.ID)) })
	return out
}

// chargeEmpty charges the places of a reservation that no instance fills, from one
// change of their number to the next.
func (w *World) chargeEmpty(l *Line, r *Reservation) {
	type change struct {
		at time.Time
		by int
	}
	changes := []change{{l.Until, 0}}
	for _, in := range w.instances {
		if in.Reservation != r.ID {
			continue
		}
		changes = append(changes, change{in.LaunchedAt, -1})
		if !in.TerminatedAt.IsZero() {
			changes = append(changes, change{in.TerminatedAt, 1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	free, from := r.Count, l.From
	for _, c := range changes {
		until := c.at
		if until.After(l.Until) {
			until = l.Until
		}
		if until.After(from) {
			w.charge(l, free, from, until)
			from = until
		}
		free += c.by
	}
}

// charge adds a time to a line, each part of it at the price that held then.
func (w *World) charge(l *Line, places int, from, until time.Time) {
	p := w.pools[l.Pool]
	for from.Before(until) {
		perHour, next := p.microUSD(from.Sub(w.began))
		to := until
		if at := w.began.Add(next); next > 0 && at.Before(until) {
			to = at
		}
		machine := int64(places) * to.Sub(from).Milliseconds()
		l.MachineMilliseconds += machine
		hi, lo := bits.Mul64(uint64(machine), uint64(perHour))
		cost, _ := bits.Div64(hi, lo, uint64(time.Hour/time.Millisecond))
		l.MicroUSD += int64(cost)
		from = to
	}
}
