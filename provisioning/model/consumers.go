package model

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// consumers are the pods that consume requests.
type consumers struct {
	// active counts those that have not finished, bound or not.
	active map[state.ConsumerKey]int
	// ended is when the last consumer, or the request, of a booking key went. What
	// went before began is not remembered.
	ended map[state.ConsumerKey]time.Time
	began time.Time
	// stranded pods have no room.
	stranded map[state.ConsumerKey]map[types.UID]strandedPod
}

// strandedPod has no room, as has been known since then.
type strandedPod struct {
	since    time.Time
	requests nodegroups.Resources
}

func newConsumers(began time.Time) consumers {
	return consumers{active: map[state.ConsumerKey]int{}, ended: map[state.ConsumerKey]time.Time{}, began: began,
		stranded: map[state.ConsumerKey]map[types.UID]strandedPod{}}
}

// set puts a version of a pod in place of an older one; either may be nil.
func (cs *consumers) set(uid types.UID, old, p *state.Pod, now time.Time) {
	if old != nil {
		if cs.count(old, -1, now); p == nil || old.Consumes != p.Consumes || !p.Stranded {
			cs.rescue(old.Consumes, uid)
		}
	}
	if p == nil || p.Consumes.Name == "" {
		return
	}
	if cs.count(p, +1, now); !p.Stranded {
		return
	}
	if cs.stranded[p.Consumes] == nil {
		cs.stranded[p.Consumes] = map[types.UID]strandedPod{}
	}
	if _, known := cs.stranded[p.Consumes][uid]; !known {
		cs.stranded[p.Consumes][uid] = strandedPod{now, p.Requests}
	}
}

func (cs *consumers) count(p *state.Pod, by int, now time.Time) {
	if p.Finished || p.Consumes.Name == "" {
		return
	}
	if cs.active[p.Consumes] += by; cs.active[p.Consumes] == 0 {
		delete(cs.active, p.Consumes)
		cs.ended[p.Consumes.Booking()] = now
	}
}

// rescue notes that a pod has room, or is gone.
func (cs *consumers) rescue(key state.ConsumerKey, uid types.UID) {
	if delete(cs.stranded[key], uid); len(cs.stranded[key]) == 0 {
		delete(cs.stranded, key)
	}
}

// strandedOf are the pods of a gang that ran, and that would run again if there were
// room.
func (cs *consumers) strandedOf(e *request) (out transaction.Stranded) {
	if e == nil || e.status != transaction.Over || !transaction.IsConsumed(e.object) {
		return out
	}
	for _, p := range cs.stranded[e.key()] {
		if out.Pods++; out.Pods == 1 {
			out.Since, out.Requests = p.since, nodegroups.Resources{}
		}
		if p.since.Before(out.Since) {
			out.Since = p.since
		}
		out.Requests.Add(p.requests, 1)
	}
	return out
}

// lookup is a copy of what is known by booking key: how many pods are active, and when the
// last of them, or their request, went.
func (cs *consumers) lookup() func(namespace, key string) (int, time.Time) {
	active, ended, began := map[state.ConsumerKey]int{}, maps.Clone(cs.ended), cs.began
	for key, n := range cs.active {
		active[key.Booking()] += n
	}
	return func(namespace, key string) (int, time.Time) {
		k := state.ConsumerKey{Namespace: namespace, Name: key}
		if at, ok := ended[k]; ok {
			return active[k], at
		}
		return active[k], began
	}
}

// remembered is how long the end of a gang is remembered: longer than anything
// waits for it.
const remembered = time.Hour

func (cs *consumers) forget(now time.Time) {
	maps.DeleteFunc(cs.ended, func(_ state.ConsumerKey, at time.Time) bool { return now.Sub(at) > remembered })
}
