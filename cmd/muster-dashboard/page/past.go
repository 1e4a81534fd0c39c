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

// kept is the length of the history: 2,880 samples, about 10 MB with 200 groups.
const kept = 24 * time.Hour

// past is the history since the page started. It is safe for concurrent use.
type past struct {
	mu      sync.Mutex
	samples []sample // the oldest first
	bill    map[purpose]bill
}

// sample is the state at one time.
type sample struct {
	at     time.Time
	groups map[string]groupSample
	// spend of all machines in USD per hour, if known.
	spend float64
	seen  bool
}

// groupSample is the state of a group at one time.
type groupSample struct {
	chance   int8    // of a launch of one machine, in percent
	evidence float32 // in launches
	price    float64 // of a machine, in USD an hour
}

// bill is the accumulated time and cost of one purpose.
type bill struct{ seconds, usd float64 }

// add records the state, and the cost of machines since the last sample.
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
	return groupSample{chance: int8(read.Chance(1, "", now) / 10), evidence: float32(evidenceOf(read.Ledger, now)), price: price}
}

// halfLife of evidence is what NodeGroup.status.ledger promises.
const halfLife = 30 * time.Minute

// evidenceOf returns the number of launches behind a chance, weighted by their age.
func evidenceOf(l *v1alpha1.Ledger, now time.Time) (sum float64) {
	if l == nil {
		return 0
	}
	for _, e := range l.Sizes {
		sum += float64(e.Got+e.Failed) / 1e6
	}
	return sum * math.Exp2(-max(0, now.Sub(l.At.Time).Hours()/halfLife.Hours()))
}

// billed returns the cost until now, if machines have had their present purpose since the
// last sample. A gap in the samples is not filled.
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

// bills returns the recorded cost by purpose.
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
