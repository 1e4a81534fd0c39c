package nodegroups

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// The chance that a launch succeeds as a whole is a Beta estimate: successes over all
// observations, with a prior of some of each. Observations lose half of their weight every
// halfLife, so that a group without recent launches returns to the prior.
//
// Amounts are integers, in millionths of an observation, and so are the factors of
// the decay: the same history gives the same chance on every machine.
const (
	observation = 1_000_000
	halfLife    = 30 * time.Minute

	// A fresh group has a chance of 950 in 1000, whichever it is: among fresh
	// groups price alone decides. The prior weighs as much as two launches, so that
	// one stockout makes the group look half as dear again (a chance of 633), and
	// an hour later an eighth dearer (844).
	priorGot    = 19 * observation / 10
	priorFailed = observation / 10

	// mostObserved limits the weight of many equal outcomes in a row: after a thousand successes, an empty pool must not be trusted for
	// hours.
	mostObserved = 10 * observation

	// adviceWeight gives weight to a cloud's advice of no chance (a chance of 317), while a few own outcomes outweigh it.
	adviceWeight = 4 * observation
)

// NoChance is the chance of a launch in a group whose failure only a person can fix: no forecast counts on it.
const NoChance = 1

// unknownChance is the chance of a launch in a group without evidence.
const unknownChance = 1000 * priorGot / (priorGot + priorFailed)

// Chance is the chance that a launch of n machines succeeds now as a whole, within one domain of the level if there is one, in parts per
// thousand: from 1 to 1000, since the prior leaves nothing impossible. If the last launch failed for what only a person can fix, it is
// NoChance until a launch succeeds or the person has acted.
func (g *Group) Chance(n int, level string, now time.Time) int {
	if slices.ContainsFunc(g.Backoffs, func(b v1alpha1.Backoff) bool {
		return isBroken(&b) && int(b.AtLeast) <= max(n, 1) && (b.Level == "" || b.Level == level)
	}) {
		return NoChance
	}
	return chance(g.Ledger, n, level, now)
}

// chance weighs the evidence of every size for a launch of n machines. What came
// for more machines comes for n, and what failed for fewer fails for n: such
// evidence counts in full. In the other direction it counts half for each doubling
// between the sizes. So the chance never rises with n. What came within one domain could
// have come anywhere, and what did not come at all did not come within one; the converse is
// not known.
func chance(l *v1alpha1.Ledger, n int, level string, now time.Time) int {
	if l == nil {
		return unknownChance
	}
	size := sizeClass(n)
	var got, failed int64
	for _, e := range l.Sizes {
		if level != "" && e.Level != level {
			e.Got = 0
		}
		if e.Level != "" && e.Level != level {
			e.Failed = 0
		}
		if larger := sizeClass(int(e.AtLeast)) - size; larger >= 0 {
			got += e.Got
			failed += e.Failed >> larger
		} else {
			got += e.Got >> -larger
			failed += e.Failed
		}
	}
	// Over one denominator, so that the result moves one way only as time passes.
	// The sums stay below 17 × 10 observations: the products fit with room to spare.
	left := remaining(now.Sub(l.At.Time))
	came := priorGot*whole + got*left
	all := came + priorFailed*whole + failed*left
	return int((1000*came + all/2) / all)
}

// ExpectedCost is a price in millionths of a USD, divided by the chance to get what it buys in parts per thousand: the cost of a try that
// is repeated until it succeeds. A result that exceeds int64 is its largest value.
func ExpectedCost(microUSD int64, chance int) int64 {
	const thousand = 1000
	divisor := uint64(min(max(chance, 1), thousand))
	hi, lo := bits.Mul64(uint64(max(microUSD, 0)), thousand)
	if hi >= divisor {
		return math.MaxInt64
	}
	cost, _ := bits.Div64(hi, lo, divisor)
	return int64(min(cost, math.MaxInt64))
}

// withAdvice returns the ledger with the advice, beside the observations. Advice ages as outcomes do. The result is for plans; it is never
// stored, since the same advice would count again each time.
func withAdvice(l *v1alpha1.Ledger, a *v1alpha1.Advice) *v1alpha1.Ledger {
	if a == nil {
		return l
	}
	got := adviceWeight / 1000 * int64(min(max(a.Chance, 0), 1000))
	return observe(l, int(a.Machines), "", got, adviceWeight-got, a.At.Time)
}

// mostEvidence bounds the entries of a ledger.
const mostEvidence = 64

// observe returns the ledger with one more observation of launches of n machines, within one domain of the level if there is one.
func observe(l *v1alpha1.Ledger, n int, level string, got, failed int64, at time.Time) *v1alpha1.Ledger {
	next := &v1alpha1.Ledger{At: metav1.NewTime(at)}
	if l != nil {
		if next.At.Before(&l.At) {
			next.At = l.At
		}
		left := remaining(next.At.Sub(l.At.Time))
		for _, e := range l.Sizes {
			e.Got, e.Failed = part(e.Got, left), part(e.Failed, left)
			next.Sizes = append(next.Sizes, e)
		}
	}
	left := remaining(next.At.Sub(at))
	of := v1alpha1.Evidence{AtLeast: smallest(n), Level: level}
	i, known := slices.BinarySearchFunc(next.Sizes, of, func(a, b v1alpha1.Evidence) int {
		return cmp.Or(cmp.Compare(a.AtLeast, b.AtLeast), cmp.Compare(a.Level, b.Level))
	})
	if !known {
		next.Sizes = slices.Insert(next.Sizes, i, of)
	}
	e := &next.Sizes[i]
	e.Got = min(e.Got+part(got, left), mostObserved)
	e.Failed = min(e.Failed+part(failed, left), mostObserved)
	next.Sizes = slices.DeleteFunc(next.Sizes, func(e v1alpha1.Evidence) bool { return e.Got == 0 && e.Failed == 0 })
	if len(next.Sizes) > mostEvidence { // of more levels than a group can have
		i := slices.IndexFunc(next.Sizes, func(e v1alpha1.Evidence) bool { return e.Level != "" && e.Level != level })
		next.Sizes = slices.Delete(next.Sizes, max(i, 0), max(i, 0)+1)
	}
	next.Chance = int32(chance(next, n, level, next.At.Time))
	return next
}

// sizeClasses is the number of size classes: 1, 2–3, 4–7, 8–15 machines and so on.
// The last begins at 65536; no group has more than 100000 machines.
const sizeClasses = 17

// sizeClass counts from 0. Launches of one class are taken to be alike.
func sizeClass(n int) int { return min(bits.Len(uint(max(n, 1))), sizeClasses) - 1 }

// smallest returns the smallest launch in the size class of n machines.
func smallest(n int) int32 { return 1 << sizeClass(n) }

// whole is all of an amount, in the unit of remaining.
const whole = 1_000_000

// halvings are 2^(-i/16) in millionths, i from 0 to 16.
var halvings = [...]int64{
	1_000_000, 957_603, 917_004, 878_126, 840_896, 805_245, 771_105, 738_413, 707_107,
	677_128, 648_420, 620_929, 594_604, 569_394, 545_254, 522_137, 500_000,
}

// remaining is what is left of an observation at that age, in millionths: 2^(-age/halfLife), interpolated from a table with an error of at
// most 240 millionths. It never grows with age. Clocks differ: an observation from the future is new.
func remaining(age time.Duration) int64 {
	if age <= 0 {
		return whole
	}
	const step = halfLife / 16
	halves, rest := age/halfLife, age%halfLife
	i, into := rest/step, int64(rest%step)
	return (halvings[i] - (halvings[i]-halvings[i+1])*into/int64(step)) >> halves
}

// part returns so many millionths of an amount.
func part(amount, millionths int64) int64 { return amount * millionths / whole }

// CompareBools orders false before true.
func CompareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
