package cost

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
)

// Use is the purpose of a machine, and the requests that pay for it.
type Use struct {
	Group   string
	Purpose Purpose
	// Launched by Muster: only such machines count for budgets.
	Launched bool
	// Shares make up the price; a machine without any costs nothing any more.
	Shares []Share
}

// price in millionths of a USD per hour.
func (u *Use) price() (perHour int64) {
	for _, s := range u.Shares {
		perHour += s.MicroUSDPerHour
	}
	return perHour
}

// Payer is a request with its tenant; the zero value is for costs that no request pays. LeftBy is the tenant whose gang was the last on a
// machine that no request pays for: it caused the cost.
type Payer struct {
	Request types.UID
	state.Tenant
	LeftBy state.Tenant
}

// Cause is the tenant that pays, or else the one that left the machine.
func (p Payer) Cause() state.Tenant {
	if p.Tenant != (state.Tenant{}) || p.Request != "" {
		return p.Tenant
	}
	return p.LeftBy
}

// Rate is what a payer pays, in millionths of a USD per hour.
type Rate struct {
	// shares of so many machines.
	shares int
	// All that they cost, and that part of it for which Muster has launched them.
	All, Launched int64
}

// Spent is what a request has spent; Request is empty for costs that no request pays.
type Spent struct {
	Request types.UID
	// Tenant caused the cost. Its namespace is empty if only the request identifies the tenant.
	state.Tenant
	MicroUSD int64
}

// Ledger has the purpose and the payers of each machine. While its account is open, it adds up the costs by purpose and by payer. Each
// stay of a machine, from one change of its purpose to the next, is counted once, each part of it at the price of that time.
//
// The time in which a machine joins is counted by purpose at its end, since only then its purpose is known: none, if the attempt fails.
type Ledger struct {
	uses  map[string]Use
	rates map[Payer]Rate
	// The account: current and past stays of machines, and the spend of payers. They are nil while it is closed.
	stays  map[string]stay
	past   map[Post]Amount
	meters map[Payer]spend.Meter
	book   *book
	// trials are the machines that have not served a gang yet. vain is what those of each tenant have cost before it turned out that they
	// never will, since it was last taken. They count whether the account is open or not.
	trials map[string]trial
	vain   map[state.Tenant]int64
}

// trial is what a machine has cost since it was launched for a gang of the tenant. It is in vain if its attempt was given up.
type trial struct {
	state.Tenant
	cost   spend.Meter
	inVain bool
}

// stay is the time that a machine spends on a post.
type stay struct {
	Post
	since time.Time
	cost  spend.Meter
}

// NewLedger has no machines, and no open account.
func NewLedger() *Ledger {
	return &Ledger{uses: map[string]Use{}, rates: map[Payer]Rate{}, trials: map[string]trial{}, vain: map[state.Tenant]int64{}}
}

// Open begins to add up, from nothing.
func (l *Ledger) Open(now time.Time) {
	l.stays, l.past, l.meters, l.book = map[string]stay{}, map[Post]Amount{}, map[Payer]spend.Meter{}, newBook(now)
	for machine, u := range l.uses {
		l.stays[machine] = l.begin(u, now)
		l.book.put(machine, &u, now)
	}
	for p, r := range l.rates {
		l.meters[p] = spend.Meter{At: now, MicroUSDPerHour: r.All}
	}
}

// Close drops the account.
func (l *Ledger) Close() { l.stays, l.past, l.meters, l.book = nil, nil, nil, nil }

// Of returns the use of a machine; without shares if it is unknown.
func (l *Ledger) Of(machine string) Use { return l.uses[machine] }

// Uses of all machines.
func (l *Ledger) Uses() map[string]Use { return l.uses }

// Rates of all payers.
func (l *Ledger) Rates() map[Payer]Rate { return l.rates }

// Put sets the purpose and the payers of a machine from now on, and reports whether they are new. A machine without shares is gone.
func (l *Ledger) Put(machine string, u Use, now time.Time) bool {
	before := l.uses[machine]
	same := before.Launched == u.Launched && slices.Equal(before.Shares, u.Shares)
	if same && before.Purpose == u.Purpose {
		return false
	}
	if l.uses[machine] = u; len(u.Shares) == 0 {
		delete(l.uses, machine)
	}
	if !same {
		l.charge(&before, -1, now)
		l.charge(&u, +1, now)
	}
	l.try(machine, &u, now)
	if l.stays != nil {
		l.move(machine, u, now)
		l.book.put(machine, &u, now)
	}
	return true
}

// try follows a machine that Muster has launched until it serves a gang or ends.
func (l *Ledger) try(machine string, u *Use, now time.Time) {
	t, trying := l.trials[machine]
	gone, before := len(u.Shares) == 0, t.inVain
	switch {
	case gone || u.Purpose == PurposeBooked || u.Purpose == PurposeUsed:
		t.inVain = t.inVain || gone && trying
		delete(l.trials, machine)
	case u.Launched && (trying || u.Purpose == PurposeJoining || u.Purpose == PurposeWasted):
		if !trying {
			t.cost.At = now
		}
		if s := &u.Shares[0]; s.Namespace != "" {
			t.Tenant = s.Tenant
		}
		t.inVain = t.inVain || u.Purpose == PurposeWasted
		l.trials[machine] = trial{t.Tenant, t.cost.Rated(u.price(), now), t.inVain}
	}
	if t.inVain && !before {
		l.vain[t.Tenant] += t.cost.Until(now).MicroUSD
	}
}

// TakeVain returns, since its last call, what machines have cost each tenant before their launch turned out to be in vain. VainRates are
// the current costs of such machines that still exist, in millionths of a USD per hour.
func (l *Ledger) TakeVain() map[state.Tenant]int64 {
	out := l.vain
	l.vain = map[state.Tenant]int64{}
	return out
}

func (l *Ledger) VainRates() map[state.Tenant]int64 {
	out := map[state.Tenant]int64{}
	for _, t := range l.trials {
		if t.inVain {
			out[t.Tenant] += t.cost.MicroUSDPerHour
		}
	}
	return out
}

// charge adds the price of a machine to the rates of its payers, or takes it off.
func (l *Ledger) charge(u *Use, sign int, now time.Time) {
	for _, share := range u.Shares {
		p := share.payer()
		r := l.rates[p]
		r.shares += sign
		r.All += int64(sign) * share.MicroUSDPerHour
		if u.Launched {
			r.Launched += int64(sign) * share.MicroUSDPerHour
		}
		if l.rates[p] = r; r.shares == 0 {
			delete(l.rates, p)
		}
		if l.meters != nil {
			meter, metered := l.meters[p]
			if !metered {
				meter.At = now
			}
			l.meters[p] = meter.Rated(r.All, now)
		}
	}
}

// move changes the post or the price of a machine. One that ends while it still joins never served.
func (l *Ledger) move(machine string, u Use, now time.Time) {
	s, known := l.stays[machine]
	gone := len(u.Shares) == 0
	switch {
	case known && !gone && s.Purpose == u.Purpose:
		s.cost = s.cost.Rated(u.price(), now)
		l.stays[machine] = s
		return
	case known:
		if s.Purpose == PurposeJoining && (gone || u.Purpose == PurposeWasted) {
			s.Purpose = PurposeWasted
		}
		l.end(s, u.Purpose == PurposeUsed && !gone, now)
		delete(l.stays, machine)
	}
	if !gone {
		l.stays[machine] = l.begin(u, now)
	}
}

func (l *Ledger) begin(u Use, now time.Time) stay {
	return stay{Post{u.Group, u.Purpose}, now, spend.Meter{At: now, MicroUSDPerHour: u.price()}}
}

// end puts down a stay, which the machine's use follows or not.
func (l *Ledger) end(s stay, used bool, now time.Time) {
	amount := l.past[s.Post].plus(s, now)
	if s.Purpose == PurposeBooked && !used {
		spent := Amount{}.plus(s, now)
		amount.UnusedMilliseconds += spent.Milliseconds
		amount.UnusedMicroUSD += spent.MicroUSD
	}
	l.past[s.Post] = amount
}

// Amounts are all posts as they stand; nil while the account is closed. It costs by the
// number of machines.
func (l *Ledger) Amounts(now time.Time) map[Post]Amount {
	out := maps.Clone(l.past)
	for _, s := range l.stays {
		amount := out[s.Post]
		amount.Machines++
		if s.Purpose != PurposeJoining {
			amount = amount.plus(s, now)
		}
		out[s.Post] = amount
	}
	return out
}

// plus returns the amount with the stay until now. A clock that was set back adds nothing.
func (a Amount) plus(s stay, now time.Time) Amount {
	a.Milliseconds += max(0, now.Sub(s.since).Milliseconds())
	a.MicroUSD += s.cost.Until(now).MicroUSD
	return a
}

// TakeSpent returns the spend of payers since its last call, including payers that are gone; nil while the account is closed.
func (l *Ledger) TakeSpent(now time.Time) (out []Spent) {
	for p, meter := range l.meters {
		meter = meter.Until(now)
		out = append(out, Spent{p.Request, p.Cause(), meter.MicroUSD})
		meter.MicroUSD = 0
		if l.meters[p] = meter; l.rates[p].shares == 0 {
			delete(l.meters, p)
		}
	}
	return out
}

// TakeLines returns the costs since its last call, by day, purpose and payer; nil while the account is closed.
func (l *Ledger) TakeLines(now time.Time) map[Line]Entry {
	if l.book == nil {
		return nil
	}
	return l.book.take(now)
}
