package model

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/state"
)

// A pod of a running gang may be recreated after its end, by a Job that has more completions to come or retries a failure. The new pod
// selects the label of the gang's booking and cannot run elsewhere, so its capacity is kept free.
const (
	// afterSuccess is longer than a Job takes to create the next pod.
	afterSuccess = 10 * time.Second
	// afterFailure is longer than the longest backoff of a Job whose pods fail, 10 minutes.
	afterFailure = 11 * time.Minute
	// afterStop is for pods that were stopped, by a drain or at the end of the job.
	afterStop = time.Minute
)

// ended is a pod that has ended on a node, and until when its capacity is kept for a replacement.
type ended struct {
	key       state.ConsumerKey
	requests  nodegroups.Resources
	at, until time.Time
}

// endedPod records that a pod has ended on its node, or was deleted while it ran.
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

// forgetEnded removes matching pods from the ended pods of a node.
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

// replaced releases the capacity that is kept for one ended pod, since this pod replaces it. It prefers a pod that ended on the same node,
// then the one that ended first. It returns the name of that node.
func (ns *nodes) replaced(p *state.Pod) (where string) {
	if p.Consumes.Name == "" {
		return ""
	}
	key, first := p.Consumes.Booking(), time.Time{}
	// Binding times are whole seconds. A pod that was bound before the end is no replacement.
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

// keepRoom subtracts the capacity that is kept on the node for running gangs from its free capacity.
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

// roomOfEnded returns the part of the booking that is kept for pods that have ended here and is not in use, and until when the first part
// and all of it are kept.
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

// lapsed returns the nodes on which kept capacity is free again.
func (ns *nodes) lapsed(now time.Time) (names []string) {
	for name, at := range ns.lapses {
		if !now.Before(at) {
			names = append(names, name)
		}
	}
	return names
}
