package model

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// consumers are the pods that consume requests.
type consumers struct {
	// active counts those that have not finished, bound or not.
	active map[consumerKey]int
	// ended is when the last consumer, or the request, of a booking key went. What
	// went before began is not remembered.
	ended map[consumerKey]time.Time
	began time.Time
	// stranded pods have no room.
	stranded map[consumerKey]map[types.UID]strandedPod
}

// strandedPod has no room, as has been known since then.
type strandedPod struct {
	since    time.Time
	requests nodegroups.Resources
}

func newConsumers(began time.Time) consumers {
	return consumers{active: map[consumerKey]int{}, ended: map[consumerKey]time.Time{}, began: began,
		stranded: map[consumerKey]map[types.UID]strandedPod{}}
}

// set puts a version of a pod in place of an older one; either may be nil.
func (cs *consumers) set(uid types.UID, old, p *pod, now time.Time) {
	if old != nil {
		if cs.count(old, -1, now); p == nil || old.consumes != p.consumes || !p.stranded {
			cs.rescue(old.consumes, uid)
		}
	}
	if p == nil || p.consumes.name == "" {
		return
	}
	if cs.count(p, +1, now); !p.stranded {
		return
	}
	if cs.stranded[p.consumes] == nil {
		cs.stranded[p.consumes] = map[types.UID]strandedPod{}
	}
	if _, known := cs.stranded[p.consumes][uid]; !known {
		cs.stranded[p.consumes][uid] = strandedPod{now, p.requests}
	}
}

func (cs *consumers) count(p *pod, by int, now time.Time) {
	if p.finished || p.consumes.name == "" {
		return
	}
	if cs.active[p.consumes] += by; cs.active[p.consumes] == 0 {
		delete(cs.active, p.consumes)
		cs.ended[keyOf(p.consumes)] = now
	}
}

// rescue notes that a pod has room, or is gone.
func (cs *consumers) rescue(key consumerKey, uid types.UID) {
	if delete(cs.stranded[key], uid); len(cs.stranded[key]) == 0 {
		delete(cs.stranded, key)
	}
}

// strandedOf are the pods of a gang that ran, and that would run again if there were
// room.
func (cs *consumers) strandedOf(e *request) (out transaction.Stranded) {
	if e == nil || e.status != transaction.Over || !isConsumed(e.object) {
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
	active, ended, began := map[consumerKey]int{}, maps.Clone(cs.ended), cs.began
	for key, n := range cs.active {
		active[keyOf(key)] += n
	}
	return func(namespace, key string) (int, time.Time) {
		k := consumerKey{namespace, key}
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
	maps.DeleteFunc(cs.ended, func(_ consumerKey, at time.Time) bool { return now.Sub(at) > remembered })
}
