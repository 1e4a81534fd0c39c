package model

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// upcomingNodes keep what room there will be without another launch, from one snapshot to the
// next.
type upcomingNodes struct {
	list *planner.Upcoming
	// of these attempts in flight.
	of []flight
}

// flight is an attempt in flight.
type flight struct {
	uid    types.UID
	number int
	began  time.Time
}

// refreshUpcoming lists what there will be of the attempts in flight, in the order in which
// they began. Those that began since it was last listed cost by their number alone.
func (m *Model) refreshUpcoming() effect {
	flights := make([]flight, 0, len(m.requests.phases[upcoming]))
	for uid := range m.requests.phases[upcoming] {
		if len(m.entry(m.requests.byUID[uid]).Missing) > 0 {
			continue // its attempt is about to end
		}
		a := m.requests.courses[uid].flight
		flights = append(flights, flight{uid, a.Number, a.Started})
	}
	slices.SortFunc(flights, func(a, b flight) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.uid, b.uid))
	})
	u := &m.upcoming
	if u.list != nil && len(u.of) <= len(flights) && slices.Equal(u.of, flights[:len(u.of)]) {
		for _, a := range m.upcomingAttempts(flights[len(u.of):]) {
			u.list = u.list.With(a)
		}
	} else {
		s := planner.Snapshot{
			Now: m.clock.Now(), Nodes: m.nodes.set.Clone(), Groups: m.groups.list, DaemonSets: m.groups.daemons, Objects: m.objects.Copy(),
		}
		u.list = planner.NewUpcoming(&s, m.upcomingAttempts(flights))
	}
	u.of = flights
	return changed
}

func (m *Model) upcomingAttempts(flights []flight) []planner.UpcomingAttempt {
	out := make([]planner.UpcomingAttempt, len(flights))
	for i, f := range flights {
		r, a := m.entry(m.requests.byUID[f.uid]), m.requests.courses[f.uid].flight
		out[i] = planner.UpcomingAttempt{Gang: r.Gang, Policy: r.Policy, Launches: a.Launches, Shares: len(a.Shares) > 0, Held: r.PodsHeld}
		out[i].Gang.Launch = state.Token(f.uid, f.number)
	}
	return out
}

// restart has the list made again.
func (u *upcomingNodes) restart() effect {
	u.list, u.of = nil, nil
	return changed
}

// until is how long the list holds if nothing changes; zero is for ever.
func (u *upcomingNodes) until() (until time.Time) {
	if u.list != nil {
		until = u.list.Until()
	}
	return until
}
