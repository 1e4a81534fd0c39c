package page

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// kept is how long the past is remembered: 2,880 samples, some 10 MB with 200 groups.
const kept = 24 * time.Hour

// past is what the page has seen since it began. It is safe for concurrent use.
type past struct {
	mu      sync.Mutex
	samples []sample // the oldest first
	bill    map[purpose]bill
}

// sample is how things stood at one time.
type sample struct {
	at     time.Time
	groups map[string]groupSample
	// spend of all machines in USD an hour, if it was seen.
	spend float64
	seen  bool
}

// groupSample is what is remembered of a group.
type groupSample struct {
	chance   int8    // of a launch of one machine, in percent
	evidence float32 // in launches
	price    float64 // of a machine, in USD an hour
}

// bill is what machines of one purpose have come to.
type bill struct{ seconds, usd float64 }

// add writes down how things stand, and what machines have cost since the last time.
func (p *past) add(now time.Time, d *decision) {
	s := sample{at: now, groups: make(map[string]groupSample, len(d.picture.Groups)), spend: d.fleet.spend, seen: true}
	for name, g := range d.picture.Groups {
		s.groups[name] = groupSampleOf(g, now, d.fleet.prices[name])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bill = p.billed(now, &d.fleet)
	p.samples = append(p.samples, s)
	old := slices.IndexFunc(p.samples, func(s sample) bool { return now.Sub(s.at) <= kept })
	p.samples = slices.Delete(p.samples, 0, max(0, old))
}

func groupSampleOf(g *v1alpha1.NodeGroup, now time.Time, price float64) groupSample {
	read := nodegroups.GroupFrom(g, g.Status, int(g.Status.Machines))
	return groupSample{chance: int8(read.Chance(1, now) / 10), evidence: float32(evidenceOf(read.Ledger, now)), price: price}
}

// halfLife of evidence is what NodeGroup.status.ledger promises.
const halfLife = 30 * time.Minute

// evidenceOf is how many launches a chance is estimated from, the older ones counting
// less.
func evidenceOf(l *v1alpha1.Ledger, now time.Time) (sum float64) {
	if l == nil {
		return 0
	}
	for _, e := range l.Sizes {
		sum += float64(e.Got+e.Failed) / 1e6
	}
	return sum * math.Exp2(-max(0, now.Sub(l.At.Time).Hours()/halfLife.Hours()))
}

// billed is what has been paid until now, if machines were since the last sample for what
// they are for now. A page that could not see for a while does not guess what was then.
func (p *past) billed(now time.Time, f *fleet) map[purpose]bill {
	out := map[purpose]bill{}
	maps.Copy(out, p.bill)
	if len(p.samples) == 0 {
		return out
	}
	took := min(now.Sub(p.samples[len(p.samples)-1].at), 4*sampleEvery).Seconds()
	for group, counts := range f.purposes {
		for what, machines := range counts {
			b := out[what]
			b.seconds += took * float64(machines)
			b.usd += took * float64(machines) * f.prices[group] / time.Hour.Seconds()
			out[what] = b
		}
	}
	return out
}

// bills are what has been seen to be paid, by purpose.
func (p *past) bills(now time.Time, f *fleet) map[purpose]bill {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.billed(now, f)
}

// since returns the samples from a time on.
func (p *past) since(at time.Time) []sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, _ := slices.BinarySearchFunc(p.samples, at, func(s sample, at time.Time) int { return s.at.Compare(at) })
	return slices.Clone(p.samples[i:])
}
