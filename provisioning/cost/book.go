package cost

import (
	"maps"
	"time"

	"github.com/muster-dev/muster/provisioning/spend"
)

// Line is what a payer pays for on a day: machines of a group, for a purpose.
type Line struct {
	// Day begins at midnight UTC.
	Day time.Time
	Post
	Payer
}

// Entry is the amount of a line since it was last taken.
type Entry struct {
	// Milliseconds of machines: those of a machine that several pay are divided among them.
	Milliseconds, MicroUSD int64
}

// book adds up the spend by day, purpose and payer. The ledger's posts have the same sums. The time in which a machine joins is entered at
// its end, on that day.
type book struct {
	// day ends at next.
	day, next time.Time
	open      map[string]chapter
	lines     map[Line]Entry
}

// chapter is the purpose of a machine, with a part for each payer. Joined is what payers had paid before others took over while it still
// joined.
type chapter struct {
	Post
	parts  []part
	joined map[Payer]Entry
}

// part is what a payer pays for a machine; taken is the part of it that is on a line already.
type part struct {
	Payer
	since time.Time
	// among is the number of payers that share the machine's time.
	among int64
	meter spend.Meter
	taken Entry
}

// until returns the amount of the part that was not taken, and marks it as taken.
func (p *part) until(now time.Time) Entry {
	before := p.taken
	p.meter = p.meter.Until(now)
	p.taken = Entry{p.meter.At.Sub(p.since).Milliseconds() / p.among, p.meter.MicroUSD}
	return Entry{p.taken.Milliseconds - before.Milliseconds, p.taken.MicroUSD - before.MicroUSD}
}

func (e Entry) plus(o Entry) Entry {
	return Entry{e.Milliseconds + o.Milliseconds, e.MicroUSD + o.MicroUSD}
}

func newBook(now time.Time) *book {
	b := &book{open: map[string]chapter{}, lines: map[Line]Entry{}}
	b.begin(now)
	return b
}

func (b *book) begin(now time.Time) {
	b.day = now.UTC().Truncate(24 * time.Hour)
	b.next = b.day.Add(24 * time.Hour)
}

// turn enters the spend until midnight, if that is over. After it, clocks that are set back add to the new day.
func (b *book) turn(now time.Time) {
	for !now.Before(b.next) {
		b.enterAll(b.next)
		b.begin(b.next)
	}
}

// put sets the shares of a machine from now on. A machine without shares is gone.
func (b *book) put(machine string, u *Use, now time.Time) {
	b.turn(now)
	c, known := b.open[machine]
	gone := len(u.Shares) == 0
	next := chapter{Post: Post{u.Group, u.Purpose}}
	switch joins := known && c.Purpose == PurposeJoining; {
	case joins && !gone && u.Purpose == PurposeJoining:
		next.joined = map[Payer]Entry{}
		maps.Copy(next.joined, c.joined)
		for i := range c.parts {
			p := &c.parts[i]
			next.joined[p.Payer] = next.joined[p.Payer].plus(p.until(now))
		}
	case known:
		if joins && (gone || u.Purpose == PurposeWasted) {
			c.Purpose = PurposeWasted
		}
		b.enter(&c, now)
	}
	if gone {
		delete(b.open, machine)
		return
	}
	for _, s := range u.Shares {
		next.parts = append(next.parts, part{
			Payer: s.payer(), since: now, among: int64(len(u.Shares)), meter: spend.Meter{At: now, MicroUSDPerHour: s.MicroUSDPerHour},
		})
	}
	b.open[machine] = next
}

// enter adds the amount of a chapter to the lines of the day.
func (b *book) enter(c *chapter, now time.Time) {
	for payer, e := range c.joined {
		line := Line{b.day, c.Post, payer}
		b.lines[line] = b.lines[line].plus(e)
	}
	for i := range c.parts {
		line := Line{b.day, c.Post, c.parts[i].Payer}
		b.lines[line] = b.lines[line].plus(c.parts[i].until(now))
	}
}

func (b *book) enterAll(now time.Time) {
	for machine := range b.open {
		if c := b.open[machine]; c.Purpose != PurposeJoining {
			b.enter(&c, now)
		}
	}
}

// take returns the spend since its last call.
func (b *book) take(now time.Time) map[Line]Entry {
	b.turn(now)
	b.enterAll(now)
	out := b.lines
	b.lines = map[Line]Entry{}
	return out
}
