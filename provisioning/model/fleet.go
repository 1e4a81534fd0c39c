package model

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning"
)

// Fleet is what upkeep depends on. It costs by the number of requests, and of
// machines without a node.
func (m *Model) Fleet(now time.Time) provisioning.Fleet {
	s := m.Snapshot(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	f := provisioning.Fleet{Snapshot: s, Requests: map[types.UID]bool{}, InFlight: map[string]bool{}, Undecided: m.undecided()}
	for uid, e := range m.requests.byUID {
		f.Requests[uid] = true
		if a := m.attempt(e); e.status != provisioning.Over && a.InFlight() {
			for _, token := range a.Tokens(uid) {
				f.InFlight[token] = true
			}
		}
	}
	for _, keys := range m.links.lone {
		for key := range keys {
			f.Lone = append(f.Lone, m.groups.machines[key])
		}
	}
	sortMachines(f.Lone)
	active := map[consumerKey]int{}
	for key, n := range m.consumers {
		active[keyOf(key)] += n
	}
	ended := maps.Clone(m.ended)
	for key, at := range m.ended {
		if now.Sub(at) > remembered {
			delete(m.ended, key)
		}
	}
	f.Consumers = func(namespace, key string) (int, time.Time) {
		k := consumerKey{namespace, key}
		if at, ok := ended[k]; ok {
			return active[k], at
		}
		return active[k], m.began
	}
	return f
}

// untoldFor is how long a loss is remembered that nobody has told of.
const untoldFor = 10 * time.Minute

// Tidy forgets what nobody needs any more. Whoever decides does most of it by the way; a
// process that only stands by has nobody who decides, and its leader tells of losses.
func (m *Model) Tidy(now time.Time) {
	m.Fleet(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, lost := range m.requests.lost {
		maps.DeleteFunc(lost, func(_ string, l *loss) bool { return !l.told && now.Sub(l.at) > untoldFor })
	}
}

// remembered is how long the end of a gang is remembered: longer than anything
// waits for it.
const remembered = time.Hour

// undecided says whether a request that waits for capacity is about to be decided:
// it is due, or a step of it is under way, after which it will be.
func (m *Model) undecided() bool {
	for uid := range m.requests.waiting {
		if _, busy := m.assumed[uid]; busy || m.requests.all || m.requests.due[uid] {
			return true
		}
	}
	return false
}
