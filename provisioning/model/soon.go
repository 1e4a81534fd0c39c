package model

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning"
)

// soon keeps what room there will be without another launch, from one snapshot to the
// next.
type soon struct {
	// flying are the requests that wait for capacity and whose attempt is in flight.
	flying map[types.UID]bool
	// list is of these attempts; stale says that nodes or groups have changed since it was
	// made.
	list  *provisioning.Soon
	of    []flight
	stale bool
	// alone runs a function of lists alone: many goroutines have snapshots.
	alone func(func())
}

// flight is an attempt in flight.
type flight struct {
	uid    types.UID
	number int
	began  time.Time
}

func newSoon() soon {
	var mu sync.Mutex
	return soon{flying: map[types.UID]bool{}, alone: func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		f()
	}}
}

// flightOf is the request's attempt as others may count on it. One that is about to be
// recorded as done has its machines until it is: only then may others book them.
func (m *Model) flightOf(e *request) provisioning.Attempt {
	a := m.attempt(e)
	if a.Phase == provisioning.Done && a.Number == e.attempt.Number {
		return e.attempt
	}
	return a
}

// flights are the attempts in flight in the order in which they began.
func (m *Model) flights() []flight {
	out := make([]flight, 0, len(m.soon.flying))
	for uid := range m.soon.flying {
		e := m.requests.byUID[uid]
		if len(m.entry(e).Missing) > 0 {
			continue // its attempt is about to end
		}
		a := m.flightOf(e)
		out = append(out, flight{uid, a.Number, a.Started})
	}
	slices.SortFunc(out, func(a, b flight) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.uid, b.uid))
	})
	return out
}

// soonUntil is how long the list holds if nothing changes; zero is for ever.
func (m *Model) soonUntil() (until time.Time) {
	if m.soon.list != nil {
		until = m.soon.list.Until()
	}
	return until
}

// soonOn is what there will be of these attempts on the nodes of the snapshot. Attempts that
// began since it was last asked for cost by their number alone.
func (m *Model) soonOn(s *provisioning.Snapshot, flights []flight) *provisioning.Soon {
	have := m.soon.of
	if m.soon.list == nil || m.soon.stale || len(have) > len(flights) || !slices.Equal(have, flights[:len(have)]) {
		now := *s
		now.Now, now.Nodes, now.Objects = m.now(), s.Nodes.Clone(), m.lookup()
		m.soon.list = provisioning.NewSoon(&now, m.underway(flights), m.soon.alone)
	} else {
		for _, a := range m.underway(flights[len(have):]) {
			m.soon.list = m.soon.list.With(a)
		}
	}
	m.soon.of, m.soon.stale = flights, false
	return m.soon.list
}

func (m *Model) underway(flights []flight) []provisioning.Underway {
	out := make([]provisioning.Underway, len(flights))
	for i, f := range flights {
		e := m.requests.byUID[f.uid]
		r := m.entry(e)
		out[i] = provisioning.Underway{Gang: r.Gang, Policy: r.Policy, Launches: m.flightOf(e).Launches, Held: r.PodsHeld}
		out[i].Gang.Launch = provisioning.Token(f.uid, f.number)
	}
	return out
}
