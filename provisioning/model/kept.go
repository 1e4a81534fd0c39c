package model

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/state"
)

// A pod of a gang that runs may be made again when it has ended: by a Job that has more
// completions to come, or that tries again after a failure. The next one selects the
// label of the gang's booking, so it has nowhere else to go, and its room is kept for it.
const (
	// afterSuccess is longer than a Job takes for the next pod.
	afterSuccess = 10 * time.Second
	// afterFailure is longer than the longest pause of a Job whose pods fail, 10 minutes.
	afterFailure = 11 * time.Minute
	// afterStop is for pods that were stopped: it may have been a drain, or the
	// end of all.
	afterStop = time.Minute
)

// ended is a pod that has ended on a node, and until when another one may come in its
// place.
type ended struct {
	key       state.ConsumerKey
	requests  nodegroups.Resources
	at, until time.Time
}

// endedPod notes that a pod has ended on its node, or was deleted before it had.
func (ns *nodes) endedPod(p *state.Pod, at time.Time) {
	if !p.Bound || p.Consumes.Name == "" || !p.MadeAgain {
		return
	}
	after := afterFailure
	switch {
	case p.Succeeded:
		after = afterSuccess
	case p.Terminating || !p.Finished:
		after = afterStop
	}
	e, n := ended{p.Consumes.Booking(), p.Requests, at, at.Add(after)}, ns.byName[p.Node]
	n.ended = append(n.ended, e)
	if ns.endedOn[e.key] == nil {
		ns.endedOn[e.key] = map[string]int{}
	}
	ns.endedOn[e.key][p.Node]++
}

// forgetEnded forgets those of the pods that have ended on a node.
func (ns *nodes) forgetEnded(name string, n *node, which func(ended) bool) {
	n.ended = slices.DeleteFunc(n.ended, func(e ended) bool {
		if !which(e) {
			return false
		}
		on := ns.endedOn[e.key]
		if on[name]--; on[name] == 0 {
			delete(on, name)
		}
		if len(on) == 0 {
			delete(ns.endedOn, e.key)
		}
		return true
	})
}

// replaced gives the room up of one pod that has ended, since this one has come in its
// place: on the same node if there is such a one, else the one that has waited longest. It
// returns the name of that node.
func (ns *nodes) replaced(p *state.Pod) (where string) {
	if p.Consumes.Name == "" {
		return ""
	}
	key, first := p.Consumes.Booking(), time.Time{}
	// Times of binding are whole seconds. A pod that was there before is none in place of
	// this one.
	fits := func(e ended) bool {
		return e.key == key && maps.Equal(e.requests, p.Requests) && !p.BoundAt.Before(e.at.Truncate(time.Second))
	}
	for name := range ns.endedOn[key] {
		for _, e := range ns.byName[name].ended {
			if fits(e) && where != p.Node && (where == "" || name == p.Node || e.at.Before(first)) {
				where, first = name, e.at
			}
		}
	}
	if where == "" {
		return ""
	}
	one := false
	ns.forgetEnded(where, ns.byName[where], func(e ended) bool {
		if one || !fits(e) {
			return false
		}
		one = true
		return true
	})
	return where
}

// keepRoom takes the room off that is kept on the node for gangs that run.
func (ns *nodes) keepRoom(name string, n *node, out *state.Node, now time.Time) {
	delete(ns.lapses, name)
	if len(n.ended) == 0 {
		return
	}
	ns.forgetEnded(name, n, func(e ended) bool { return !now.Before(e.until) })
	for i := range out.Labelled {
		b := &out.Labelled[i]
		if !ns.requests.runs(b) {
			continue
		}
		kept, first, last := n.roomOfEnded(b)
		if _, _, some := (nodegroups.Resources{}).Short(kept); !some {
			continue
		}
		b.Kept, b.KeptUntil = kept, last
		out.Free.Sub(kept, 1)
		if at, some := ns.lapses[name]; !some || first.Before(at) {
			ns.lapses[name] = first
		}
	}
}

// roomOfEnded is that of pods that have ended here, of what is booked and not in use, and
// until when some and all of it is kept.
func (n *node) roomOfEnded(b *state.Booking) (kept nodegroups.Resources, first, last time.Time) {
	key := state.ConsumerKey{Namespace: b.Namespace, Name: b.Key}
	kept = nodegroups.Resources{}
	for _, e := range n.ended {
		if e.key == key {
			kept.Add(e.requests, 1)
			if first.IsZero() || e.until.Before(first) {
				first = e.until
			}
			if e.until.After(last) {
				last = e.until
			}
		}
	}
	left := b.Booked.Clone()
	for _, uid := range n.consuming(b.Namespace, b.Key) {
		if p := n.pods[uid]; !p.Finished {
			left.Sub(p.Requests, 1)
		}
	}
	for resource, amount := range kept {
		kept[resource] = max(0, min(amount, left[resource]))
	}
	return kept, first, last
}

// lapsed are the nodes on which room is free by now that was kept until then.
func (ns *nodes) lapsed(now time.Time) (names []string) {
	for name, at := range ns.lapses {
		if !now.Before(at) {
			names = append(names, name)
		}
	}
	return names
}
