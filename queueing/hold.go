package queueing

import "time"

// hold is why a Workload that could have its quota does not get it yet.
type hold struct {
	reason, message string
	// until is when time alone may change it; zero is never.
	until time.Time
	// aside: others need not wait behind it, not even in StrictFIFO.
	aside bool
}

// withheld says what keeps a Workload from the quota that it could have; nil is
// nothing.
func (s *Cycle) withheld(w *Workload, p *proposal) *hold {
	for _, rule := range []func(*Workload, *proposal) *hold{s.changing, s.gated, s.overNamespaceQuota, s.awaitsPods} {
		if h := rule(w, p); h != nil {
			return h
		}
	}
	return nil
}

// withhold answers the first of a line. One that steps aside leaves the queue until
// it is looked at again.
func (d *drainer) withhold(l *line, h *hold) {
	w := l.rest[0]
	r := refusalOf(h.reason, h.message)
	r.until = h.until
	if l.first.ahead {
		// It still is to have just that, so what it has asked for is kept.
		r.next = &Verdict{Workload: w, Action: Wait}
	}
	if !h.aside {
		d.refuse(l, r)
		return
	}
	l.next()
	l.queue.drop(w)
	d.out = d.s.appendTold(d.out, w, r)
}
