// Package usage counts what LocalQueues have used lately, so that those that used
// less may go first: Kueue's admission fair sharing. What is used now counts fully
// in the end, what was used a half-life ago by half.
//
// The figures come once in a sampling interval. A Workload that gets quota in
// between would not be seen in them until then, and a LocalQueue could start a
// thousand at once; so each brings an entry penalty at once, as much as one interval
// of it will count.
package usage

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// defaultInterval is how often samples are taken where the administrator does not
// say, as in Kueue.
const defaultInterval = 5 * time.Minute

// Amounts are thousandths of bytes, and millionths of cores and pieces. With a half-life of a month, one core adds
// 16 millionths in each minute: a coarser unit would round that to zero for ever.
type Amounts map[corev1.ResourceName]int64

// scaleOf is the unit that a resource is counted in. Memory in millionths of bytes would pass the largest int64 at 8Ti.
func scaleOf(name corev1.ResourceName) resource.Scale {
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return resource.Milli
	}
	return resource.Micro
}

// FromList reads an API list. What is zero is left out.
func FromList(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list))
	for name, q := range list {
		if v := nodegroups.Scaled(q, scaleOf(name)); v != 0 {
			a[name] = v
		}
	}
	return a
}

// List is what the status of a LocalQueue has.
func (a Amounts) List() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a))
	for name, v := range a {
		list[name] = *resource.NewScaledQuantity(v, scaleOf(name))
	}
	return list
}

// Add adds o, up to the largest int64.
func (a Amounts) Add(o Amounts) {
	for name, v := range o {
		a[name] = nodegroups.Plus(a[name], v)
	}
}

// Sub takes o away, down to zero, and forgets what becomes zero.
func (a Amounts) Sub(o Amounts) {
	for name, v := range o {
		if a[name] > v {
			a[name] -= v
		} else {
			delete(a, name)
		}
	}
}

// Record is what one LocalQueue has used lately.
type Record struct {
	Consumed Amounts
	// At is when it was so. The zero time is that of a LocalQueue of which nothing is
	// known: its count begins with the next sample.
	At time.Time
}

// Rules say how what was used is weighed.
type Rules struct {
	// HalfLife is after what time usage counts half. Zero forgets at once.
	HalfLife time.Duration
	// Interval is how often samples are taken; it is never zero.
	Interval time.Duration
	// Weights of resources; one that is missing has 1 for each core, byte or piece.
	Weights map[corev1.ResourceName]float64
}

// RulesFrom reads the configuration.
func RulesFrom(c *kueueconfig.AdmissionFairSharing) Rules {
	r := Rules{HalfLife: c.UsageHalfLifeTime.Duration, Interval: c.UsageSamplingInterval.Duration, Weights: c.ResourceWeights}
	if r.Interval == 0 {
		r.Interval = defaultInterval
	}
	return r
}

// fresh is how much the last so long counts, from 0 to 1; all before counts the
// rest.
func (r Rules) fresh(elapsed time.Duration) float64 {
	return 1 - math.Exp2(-elapsed.Seconds()/r.HalfLife.Seconds())
}

// Sample is the record at a later time, when so much has been used since. A time
// that is not later changes nothing: clocks of two leaders differ.
func (r Rules) Sample(old Record, running Amounts, now time.Time) Record {
	switch {
	case r.HalfLife == 0:
		return Record{Consumed: Amounts{}, At: now}
	case old.At.IsZero():
		return Record{Consumed: maps.Clone(old.Consumed), At: now}
	case !now.After(old.At):
		return old
	}
	fresh := r.fresh(now.Sub(old.At))
	out := Record{Consumed: Amounts{}, At: now}
	for name, v := range old.Consumed {
		out.Consumed[name] = mix(v, running[name], fresh)
	}
	for name, v := range running {
		out.Consumed[name] = mix(old.Consumed[name], v, fresh)
	}
	maps.DeleteFunc(out.Consumed, func(_ corev1.ResourceName, v int64) bool { return v == 0 })
	return out
}

// mix is so much of the new and the rest of the old, rounded.
func mix(old, now int64, fresh float64) int64 {
	return whole(float64(old)*(1-fresh) + float64(now)*fresh)
}

// whole is an amount that is not negative, or the largest int64.
func whole(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Round(v))
}

// Penalty is what a Workload counts from the moment it gets its quota until the
// next sample.
func (r Rules) Penalty(requests Amounts) Amounts {
	out := Amounts{}
	if r.HalfLife == 0 {
		return out
	}
	for name, v := range requests {
		out[name] = whole(float64(v) * r.fresh(r.Interval))
	}
	return out
}

// Usage of a LocalQueue is one figure to order by: what it has consumed and the
// penalties that wait for a sample, each resource by its weight, divided by that of
// the LocalQueue, in thousandths. Without weight it is endless, so that such a
// LocalQueue comes last.
func (r Rules) Usage(weight int64, parts ...Amounts) float64 {
	if weight <= 0 {
		return math.Inf(1)
	}
	var sum float64
	for _, part := range parts {
		// In a fixed order, since sums of floats depend on it.
		for _, name := range slices.Sorted(maps.Keys(part)) {
			each, ok := r.Weights[name]
			if !ok {
				each = 1
			}
			sum += each * float64(part[name]) / math.Pow10(int(resource.Milli-scaleOf(name)))
		}
	}
	return sum / float64(weight)
}
