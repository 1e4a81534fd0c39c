package model

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning"
)

// spending follows who pays what for machines. It costs by what changes.
type spending struct {
	// stale machines may be paid for by somebody else now.
	stale map[machineKey]span
	bills map[machineKey]bill
	rates map[payer]rate
	// prices of groups, in millionths of a USD per hour, also of those that have been
	// deleted: their machines cost on.
	prices map[string]int64
	// changed says that charges are out of date.
	changed bool
	charges []provisioning.Charge
	// meters count for each payer what was spent since that was last taken; nil while
	// nobody keeps accounts.
	meters map[payer]provisioning.Meter
}

// bill says who pays for a machine.
type bill struct {
	// launched by Muster: only such machines count for budgets.
	launched bool
	shares   []provisioning.Share
}

// payer is a request with its tenant; the zero value is nobody.
type payer struct {
	request types.UID
	provisioning.Tenant
}

// rate is what a payer pays, in millionths of a USD per hour.
type rate struct {
	// shares of so many machines.
	shares int
	// all that they cost, and that part of it for which Muster has launched them.
	all, launched int64
}

func newSpending() spending {
	return spending{stale: map[machineKey]span{}, bills: map[machineKey]bill{}, rates: map[payer]rate{}, prices: map[string]int64{}}
}

// repriced notes what a machine of the group costs from now on.
func (m *Model) repriced(group string, microUSDPerHour int64) {
	if before, known := m.spending.prices[group]; known && before == microUSDPerHour {
		return
	}
	m.spending.prices[group] = microUSDPerHour
	for key := range m.groups.machines {
		if key.group == group {
			m.machineStale(key)
		}
	}
}

// flushSpending brings the bills of machines up to date that have changed.
func (m *Model) flushSpending() {
	s := &m.spending
	byTime := func(a, b machineKey) int { return s.stale[a].first.Compare(s.stale[b].first) }
	for _, key := range slices.SortedFunc(maps.Keys(s.stale), byTime) {
		before, now, at := s.bills[key], m.billOf(key), s.stale[key].first
		if before.launched == now.launched && slices.Equal(before.shares, now.shares) {
			continue
		}
		if s.bills[key] = now; len(now.shares) == 0 {
			delete(s.bills, key)
			at = s.stale[key].last
		}
		s.charge(before, -1, at)
		s.charge(now, +1, at)
		s.changed = true
		if before.launched && len(m.budgets.list) > 0 {
			m.wakeAll() // there may be room in a budget
		}
	}
	clear(s.stale)
}

// charge adds a bill to the rates of those who pay it, or takes it off.
func (s *spending) charge(b bill, sign int, now time.Time) {
	for _, share := range b.shares {
		p := payer{share.Request, share.Tenant}
		r := s.rates[p]
		r.shares += sign
		r.all += int64(sign) * share.MicroUSDPerHour
		if b.launched {
			r.launched += int64(sign) * share.MicroUSDPerHour
		}
		if s.rates[p] = r; r.shares == 0 {
			delete(s.rates, p)
		}
		if s.meters != nil {
			meter, metered := s.meters[p]
			if !metered {
				meter.At = now
			}
			s.meters[p] = meter.Rated(r.all, now)
		}
	}
}

// billOf a machine; without shares where it costs nothing any more.
func (m *Model) billOf(key machineKey) bill {
	c, listed := m.groups.machines[key]
	if !listed || !c.Counts() {
		return bill{}
	}
	var bookings []provisioning.Booking
	owner, a, owned := m.owner(c.Launch)
	inFlight := owned && a.InFlight()
	if n := m.nodes.set.Find(m.links.nodes[c.ProviderID]); n != nil {
		bookings = n.Labelled
		inFlight = inFlight || n.InFlight
	}
	out := bill{c.Launch != "", provisioning.Shares(c.Launch, bookings, inFlight, m.spending.prices[key.group])}
	for i := range out.shares {
		if share := &out.shares[i]; share.Namespace == "" && owner != nil && share.Request == owner.object.UID {
			share.Tenant = owner.tenant()
		}
	}
	return out
}

// paidSince is from when on the request has paid for the machine.
func (m *Model) paidSince(key machineKey, request types.UID) time.Time {
	c := m.groups.machines[key]
	if n := m.nodes.set.Find(m.links.nodes[c.ProviderID]); n != nil {
		for i := range n.Labelled {
			if b := &n.Labelled[i]; b.UID == request {
				return b.Since
			}
		}
	}
	_, a, _ := m.owner(c.Launch)
	return a.Started
}

// chargesNow are what requests pay for machines that Muster has launched or been asked
// to launch for them, by namespace, queue and request.
func (m *Model) chargesNow() []provisioning.Charge {
	s := &m.spending
	if !s.changed {
		return s.charges
	}
	s.changed = false
	perHour := map[payer]int64{}
	for p, r := range s.rates {
		if r.launched > 0 && p.Namespace != "" {
			perHour[p] += r.launched
		}
	}
	for uid := range m.requests.launching {
		e := m.requests.byUID[uid]
		for group, count := range m.missing(e) {
			perHour[payer{uid, e.tenant()}] += int64(count) * s.prices[group]
		}
		for _, l := range m.attempt(e).Shares {
			perHour[payer{uid, e.tenant()}] += int64(l.Count) * provisioning.SharedPrice(s.prices[l.Group])
		}
	}
	s.charges = make([]provisioning.Charge, 0, len(perHour))
	for p, rate := range perHour {
		c := provisioning.Charge{Request: p.request, Tenant: p.Tenant, MicroUSDPerHour: rate}
		if e := m.requests.byUID[p.request]; e != nil {
			c.Runs, c.Since = m.runsOf(e), provisionedAt(e)
		}
		s.charges = append(s.charges, c)
	}
	provisioning.SortCharges(s.charges)
	return s.charges
}

// Spent is what a request has spent since this was last asked, while an account is
// open; requests that are gone included. It is nobody's where the request is empty.
type Spent struct {
	Request   types.UID
	Namespace string
	MicroUSD  int64
}

// TakeSpent tells, once, what was spent.
func (m *Model) TakeSpent(now time.Time) (out []Spent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	for p, meter := range m.spending.meters {
		meter = meter.Until(now)
		out = append(out, Spent{p.request, p.Namespace, meter.MicroUSD})
		meter.MicroUSD = 0
		if m.spending.meters[p] = meter; m.spending.rates[p].shares == 0 {
			delete(m.spending.meters, p)
		}
	}
	return out
}

// meterAll begins to count what payers spend.
func (s *spending) meterAll(now time.Time) {
	s.meters = map[payer]provisioning.Meter{}
	for p, r := range s.rates {
		s.meters[p] = provisioning.Meter{At: now, MicroUSDPerHour: r.all}
	}
}
