// Package consumers records which pods consume requests, and when the last of them ended.
package consumers

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Consumers are the pods that consume requests.
type Consumers struct {
	// Active counts the pods that have not finished, bound or not.
	Active map[state.ConsumerKey]int
	// Ended is when the last consumer, or the request, of a booking key ended. Ends from before began are not recorded.
	Ended map[state.ConsumerKey]time.Time
	began time.Time
	// stranded pods have no room.
	stranded map[state.ConsumerKey]map[types.UID]strandedPod
	// blocked pods cannot start.
	blocked map[state.ConsumerKey]map[types.UID]blockedPod
}

// blockedPod is a pod that cannot start, and since when.
type blockedPod struct {
	since time.Time
	why   string
}

// strandedPod is a pod without room, and since when.
type strandedPod struct {
	since    time.Time
	requests nodegroups.Resources
}

// New begins without any.
func New(began time.Time) Consumers {
	return Consumers{Active: map[state.ConsumerKey]int{}, Ended: map[state.ConsumerKey]time.Time{}, began: began,
		stranded: map[state.ConsumerKey]map[types.UID]strandedPod{}, blocked: map[state.ConsumerKey]map[types.UID]blockedPod{}}
}

// Set puts a version of a pod in place of an older one; either may be nil.
func (cs *Consumers) Set(uid types.UID, old, p *state.Pod, now time.Time) {
	if old != nil {
		if cs.count(old, -1, now); p == nil || old.Consumes != p.Consumes || !p.Stranded {
			cs.rescue(old.Consumes, uid)
		}
	}
	cs.block(uid, old, p, now)
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

// block records what keeps a pod from starting.
func (cs *Consumers) block(uid types.UID, old, p *state.Pod, now time.Time) {
	since := now
	if old != nil && old.Blocked != "" {
		if known, ok := cs.blocked[old.Consumes][uid]; ok {
			since = known.since
		}
		if delete(cs.blocked[old.Consumes], uid); len(cs.blocked[old.Consumes]) == 0 {
			delete(cs.blocked, old.Consumes)
		}
	}
	if p == nil || p.Blocked == "" || p.Consumes.Name == "" {
		return
	}
	if cs.blocked[p.Consumes] == nil {
		cs.blocked[p.Consumes] = map[types.UID]blockedPod{}
	}
	cs.blocked[p.Consumes][uid] = blockedPod{since, fmt.Sprintf("pod %s: %s", p.Name, p.Blocked)}
}

// BlockedOf returns the pods of a gang that cannot start.
func (cs *Consumers) BlockedOf(key state.ConsumerKey) (out transaction.Blocked) {
	for _, p := range cs.blocked[key] {
		if out.Pods++; out.Pods == 1 || p.since.Before(out.Since) {
			out.Since = p.since
		}
		if out.Why == "" || p.why < out.Why {
			out.Why = p.why
		}
	}
	return out
}

func (cs *Consumers) count(p *state.Pod, by int, now time.Time) {
	if p.Finished || p.Consumes.Name == "" {
		return
	}
	if cs.Active[p.Consumes] += by; cs.Active[p.Consumes] == 0 {
		delete(cs.Active, p.Consumes)
		cs.Ended[p.Consumes.Booking()] = now
	}
}

// rescue records that a pod has room, or is gone.
func (cs *Consumers) rescue(key state.ConsumerKey, uid types.UID) {
	if delete(cs.stranded[key], uid); len(cs.stranded[key]) == 0 {
		delete(cs.stranded, key)
	}
}

// StrandedOf returns the pods of a gang that were running, and lack room to run again.
func (cs *Consumers) StrandedOf(key state.ConsumerKey) (out transaction.Stranded) {
	for _, p := range cs.stranded[key] {
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

// Lookup returns a copy by booking key: how many pods are active, and when the last of them, or their request, ended.
func (cs *Consumers) Lookup() func(namespace, key string) (int, time.Time) {
	active, ended, began := map[state.ConsumerKey]int{}, maps.Clone(cs.Ended), cs.began
	for key, n := range cs.Active {
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

// Remembered is how long the end of a gang is kept: longer than anything waits for it.
const Remembered = time.Hour

// Forget drops the ends of gangs that nothing waits for any more.
func (cs *Consumers) Forget(now time.Time) {
	maps.DeleteFunc(cs.Ended, func(_ state.ConsumerKey, at time.Time) bool { return now.Sub(at) > Remembered })
}
