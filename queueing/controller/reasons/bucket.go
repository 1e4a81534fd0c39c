package reasons

import "time"

const (
	// leastRate and mostRate bound how many writes a second the API server is taken to have
	// time for; initialRate is where that begins.
	leastRate   = 10
	initialRate = 50
	mostRate    = 200
	// quickWrite and slowWrite are how long a write takes that raises the rate, and one
	// that halves it.
	quickWrite = 20 * time.Millisecond
	slowWrite  = 50 * time.Millisecond
	// actsPerReason is how many acts there are to a reason while acts take all that the API
	// server has time for.
	actsPerReason = 10
	// mostDebt is how many first reasons are written on credit while there are other writes, because users read them after some seconds.
	// It is meant for many Workloads that arrive at once, so the debt is cancelled when all of them have a reason. mostOnCredit is how
	// many of these writes may be under way at a time, so that writers are left for verdicts.
	mostDebt     = 1000
	mostOnCredit = 12
	// refillEvery is how often the bucket is refilled at least while a reason is due.
	refillEvery = 50 * time.Millisecond

	// token is one write; amounts are in thousandths of it.
	token = 1000
)

// bucket has the writes that reasons may take. An act is a write that takes a Workload
// further.
type bucket struct {
	// rate is for how many writes a second the API server has time, acts included.
	rate int64
	// tokens are what has gathered by the time at; below zero is the debt of first reasons.
	tokens int64
	at     time.Time
	// acts is how many there were in the last second, smoothed.
	acts int64
	// underWay is how many reasons are being written.
	underWay int
	// slowed is when the rate was halved last.
	slowed time.Time
}

func newBucket() bucket { return bucket{rate: initialRate} }

// Acted counts an act.
func (b *bucket) Acted() { b.acts += token }

// spare is how many thousandths of a write reasons get a second: what acts leave of the
// rate. A Workload that is admitted before its turn to have a reason needs none.
func (b *bucket) spare() int64 {
	return max(b.rate*token-b.acts, b.acts/actsPerReason, leastRate*token)
}

func (b *bucket) refill(now time.Time) {
	since := min(now.Sub(b.at), time.Second)
	b.at = now
	// A pause gathers no more than two refills.
	spare, most := b.spare(), 2*refillEvery
	b.tokens = min(b.tokens+perSecond(spare, min(since, most)), max(token, perSecond(spare, most)))
	b.acts -= perSecond(b.acts, since)
}

// perSecond is how much of an amount a second falls into a part of it.
func perSecond(amount int64, part time.Duration) int64 {
	return amount * part.Microseconds() / time.Second.Microseconds()
}

// has reports whether there is a token for a reason.
func (b *bucket) has(u urgency) bool {
	credit := u == first && b.tokens > -mostDebt*token && b.underWay < mostOnCredit
	return b.tokens >= token || credit
}

// settleDebt waives the debt.
func (b *bucket) settleDebt() { b.tokens = max(b.tokens, 0) }

// Spend takes the token for a reason whose write begins.
func (b *bucket) Spend() {
	b.tokens -= token
	b.underWay++
}

// Done says that the write of a reason is over.
func (b *bucket) Done() { b.underWay-- }

// Took follows how long the API server takes for a write.
func (b *bucket) Took(d time.Duration, now time.Time) {
	switch {
	case now.Sub(b.slowed) < time.Second:
		// Writes under way at once are slow together, so they count once; and that there
		// are quick ones among them says nothing.
	case d < quickWrite:
		b.rate = min(b.rate+1, mostRate)
	case d > slowWrite:
		b.rate, b.slowed = max(b.rate/2, leastRate), now
	}
}
