package purchases

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Machine is one that was seen of a request.
type Machine struct {
	// Mark stands for the machine in a record, and Call for the call that has made it.
	Mark, Call string
	// Started is when it was last started when it was first seen; zero where that was not known.
	Started time.Time
}

// CallMark stands for the call of a launch in a NodeGroup.
func CallMark(group, launch string) string { return Mark(group, launch, time.Time{}) }

// mostOpen is how many calls a record names of whose machines some were not seen. Those of earlier calls count for good.
const mostOpen = 64

// open are machines that a call may have made without being seen.
type open struct {
	call     string
	machines int
	// before is the time before which they were started; zero where all machines of the call are among them that were not seen before.
	before time.Time
}

// opened are those of the record, the oldest first. What cannot be read counts for good.
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

// Expect counts machines that the call may have made and that were not seen, where it was made before that time by a process that has
// ended. A call is made again with the same token, which makes no machine twice: a machine that exists since before that time is one of
// them, by the clock of its cloud, which tells seconds at least. The time is zero where the call is not made again, or waits in the
// cloud's own queue: then every machine of it is.
func (p Record) Expect(call string, machines int, before time.Time) Record {
	if machines <= 0 {
		return p
	}
	p.Unseen += machines
	p.setOpened(append(p.opened(), open{call, machines, before.Truncate(time.Second)}))
	return p
}

// found is the record once a machine is seen. It is one of those of each process that has ended since it was started: while it
// existed, no call can have made another one in its place.
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
