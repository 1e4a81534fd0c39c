package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Purchases are the machines that were launched. Their cost counts until their own end, which
// is after that of the last Job; their utilisation is over the makespan.
type Purchases struct {
	Usage `json:",inline"`
	// Needed is the most that ran at once, rounded up to machines.
	Needed          int     `json:"needed"`
	BoughtPerNeeded float64 `json:"boughtPerNeeded"`
	// Left is how many existed at the end of the observation, beyond the minimum of their groups.
	Left int `json:"left"`
	// MachineSeconds were paid for. Wasted are those, from the launch to the end, in which
	// no pod ran that succeeded. IdleShare is the part without a pod after the node was
	// ready; LostMilliUSD the cost of the time in which only pods ran that were lost.
	MachineSeconds int64   `json:"machineSeconds"`
	Wasted         int64   `json:"wastedMachineSeconds"`
	IdleShare      float64 `json:"idleShare"`
	MilliUSD       int64   `json:"milliUSD"`
	WastedMilliUSD int64   `json:"wastedMilliUSD"`
	LostMilliUSD   int64   `json:"lostMilliUSD"`
	// Groups in the order of their names.
	Groups []Group `json:"groups,omitempty"`
}

// Group is what was bought of one.
type Group struct {
	Name           string `json:"name"`
	Machines       int    `json:"machines"`
	MachineSeconds int64  `json:"machineSeconds"`
	MilliUSD       int64  `json:"milliUSD"`
}

// gone is when a machine was no longer paid for, or the end of the observation.
func (r Record) gone(m Machine) time.Duration {
	if m.Gone == Never {
		return r.End
	}
	return min(m.Gone, r.End)
}

// bill is what machines cost, in times of the wall and in milli-USD of scenario time.
type bill struct {
	machines                       int
	paid, wasted, idle             time.Duration
	cost, costOfWasted, costOfLost float64
}

func (b *bill) add(r Record, m Machine, spans []span) {
	gone := r.gone(m)
	life, work := gone-m.Launched, busy(spans)
	wasted := life - busy(useful(spans))
	lost := wasted - (life - work)
	b.machines++
	b.paid += life
	b.wasted += wasted
	if m.Ready != Never && m.Ready < gone {
		b.idle += gone - m.Ready - work
	}
	perHour := float64(m.MilliUSDPerHour) * float64(r.Speed)
	b.cost += perHour * life.Hours()
	b.costOfWasted += perHour * wasted.Hours()
	b.costOfLost += perHour * lost.Hours()
}

func bought(r Record) Purchases {
	byNode, end := runs(r), r.last()
	var all bill
	groups := map[string]*bill{}
	var use, had float64
	for _, m := range r.Machines {
		spans := byNode[m.Name]
		if groups[m.Group] == nil {
			groups[m.Group] = &bill{}
		}
		groups[m.Group].add(r, m, spans)
		all.add(r, m, spans)
		use += used(useful(spans))
		had += float64(m.Amount) * float64(max(min(r.gone(m), end)-m.Launched, 0))
	}
	seconds := func(d time.Duration) int64 { return int64(r.scaled(d).Round(time.Second) / time.Second) }
	milli := func(f float64) int64 { return int64(math.Round(f)) }
	out := Purchases{
		Usage:  Usage{Machines: all.machines, Share: ratio(use, had)},
		Needed: int(needed(r, byNode)), Left: r.Left,
		MachineSeconds: seconds(all.paid), Wasted: seconds(all.wasted),
		IdleShare: ratio(float64(all.idle), float64(all.paid)),
		MilliUSD:  milli(all.cost), WastedMilliUSD: milli(all.costOfWasted), LostMilliUSD: milli(all.costOfLost),
	}
	out.BoughtPerNeeded = ratio(float64(out.Machines), float64(out.Needed))
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		out.Groups = append(out.Groups, Group{Name: name, Machines: g.machines, MachineSeconds: seconds(g.paid), MilliUSD: milli(g.cost)})
	}
	return out
}

// needed is the most machines that pods running at the same time would fill: those of a
// group fill its machines, where those of more than half a machine have one each. What
// one group is done with when another begins is not needed twice.
func needed(r Record, byNode map[string][]span) (most int64) {
	type change struct {
		step
		group string
		large int64 // pods of more than half a machine
	}
	var changes []change
	size := map[string]int64{}
	for _, m := range r.Machines {
		size[m.Group] = m.Amount
		for _, s := range byNode[m.Name] {
			var large int64
			if 2*s.amount > m.Amount {
				large = 1
			}
			changes = append(changes, change{step{s.from, s.amount}, m.Group, large}, change{step{s.to, -s.amount}, m.Group, -large})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return compareSteps(a.step, b.step) })
	amount, large, machines := map[string]int64{}, map[string]int64{}, map[string]int64{}
	var now int64
	for _, c := range changes {
		g := c.group
		if size[g] == 0 {
			continue
		}
		amount[g] += c.delta
		large[g] += c.large
		now -= machines[g]
		machines[g] = max((amount[g]+size[g]-1)/size[g], large[g])
		now += machines[g]
		most = max(most, now)
	}
	return most
}

// step is a change of an amount.
type step struct {
	at    time.Duration
	delta int64
}

// compareSteps orders them by time; at one time ends come before beginnings.
func compareSteps(a, b step) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
}
