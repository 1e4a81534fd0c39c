package purchases

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Machine is a machine that a process has seen for a request.
type Machine struct {
	// Mark identifies the machine in a record, Call the cloud call that created it.
	Mark, Call string
	// Started is the machine's last start time when it was first seen; zero if unknown.
	Started time.Time
}

// CallMark identifies the call of a launch in a NodeGroup.
func CallMark(group, launch string) string { return Mark(group, launch, time.Time{}) }

// mostOpen limits how many calls with unseen machines a record lists. The unseen machines of earlier calls stay counted for good.
const mostOpen = 64

// open describes machines that a call may have created and that no process has seen.
type open struct {
	call     string
	machines int
	// before is the time by which the machines had started; zero if every machine of the call that has not been seen before is one
	// of them.
	before time.Time
}

// opened parses Open, oldest call first. Entries that do not parse are skipped; their machines stay counted for good.
func (p *Record) opened() (out []open) {
	for _, one := range strings.Fields(p.Open) {
		part := strings.Split(one, ":")
		if len(part) != 3 {
			continue
		}
		machines, err := strconv.Atoi(part[1])
		before, notTime := strconv.ParseInt(part[2], 10, 64)
		if err != nil || notTime != nil || machines <= 0 {
			continue
		}
		o := open{call: part[0], machines: machines}
		if before > 0 {
			o.before = time.Unix(before, 0)
		}
		out = append(out, o)
	}
	return out
}

func (p *Record) setOpened(all []open) {
	all = slices.DeleteFunc(all, func(o open) bool { return o.machines == 0 })
	var out []string
	for _, o := range all[max(0, len(all)-mostOpen):] {
		before := int64(0)
		if !o.before.IsZero() {
			before = o.before.Unix()
		}
		out = append(out, fmt.Sprintf("%s:%d:%d", o.call, o.machines, before))
	}
	p.Open = strings.Join(out, " ")
}

// Expect counts machines that a process which has ended may have created by this call before the given time. A retry uses the same
// token, which never creates a machine twice, so a machine of the call that started before that time is one of them. The cloud's
// clock has a resolution of at least one second. The time is zero if the call is not retried or waits in the cloud's own queue:
// then every machine of the call is one of them.
func (p Record) Expect(call string, machines int, before time.Time) Record {
	if machines <= 0 {
		return p
	}
	p.Unseen += machines
	p.setOpened(append(p.opened(), open{call, machines, before.Truncate(time.Second)}))
	return p
}

// UnseenOf returns how many machines the call may have created that were never seen.
func (p *Record) UnseenOf(call string) (n int) {
	for _, o := range p.opened() {
		if o.call == call {
			n += o.machines
		}
	}
	return n
}

// found returns the record after a machine was seen. The machine replaces one unseen machine of each process that has ended since
// it started: while it existed, a retry could not have created another one in its place.
func (p Record) found(m Machine) Record {
	if !strings.Contains(p.Open, m.Call+":") {
		return p
	}
	all := p.opened()
	for i := range all {
		o := &all[i]
		if o.call == m.Call && (o.before.IsZero() || !m.Started.IsZero() && m.Started.Before(o.before)) {
			o.machines--
			p.Unseen--
		}
	}
	p.setOpened(all)
	return p
}
