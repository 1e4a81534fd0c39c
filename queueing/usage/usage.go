// Package usage tracks the recent usage of LocalQueues, so that those with less usage come first:
// Kueue's admission fair sharing. Current usage approaches its full weight over time; usage of one
// half-life ago counts half.
//
// Usage is sampled in an interval. A Workload that gets quota between two samples would not count
// until the next one, and a LocalQueue could start a thousand Workloads at once. So each Workload
// adds an entry penalty when it gets quota: what one interval of its usage will count.
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

// defaultInterval is the default sampling interval, as in Kueue.
const defaultInterval = 5 * time.Minute

// Amounts are in thousandths of bytes, and in millionths of cores and of other units. With a half-life of a month, one
// core adds 16 millionths per minute, which a coarser unit would always round to zero.
type Amounts map[corev1.ResourceName]int64

// scaleOf returns the unit of a resource. Memory in millionths of bytes would exceed an int64 at 8Ti.
func scaleOf(name corev1.ResourceName) resource.Scale {
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return resource.Milli
	}
	return resource.Micro
}

// FromList converts an API list. It leaves out zeros.
func FromList(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list))
	for name, q := range list {
		if v := nodegroups.Scaled(q, scaleOf(name)); v != 0 {
			a[name] = v
		}
	}
	return a
}

// List converts the amounts for the status of a LocalQueue.
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

// Sub subtracts o, down to zero, and deletes zeros.
func (a Amounts) Sub(o Amounts) {
	for name, v := range o {
		if a[name] > v {
			a[name] -= v
		} else {
			delete(a, name)
		}
	}
}

// Record is the recent usage of one LocalQueue.
type Record struct {
	Consumed Amounts
	// At is the time of the sample. Zero means that nothing was sampled yet; counting begins with the next sample.
	At time.Time
}

// Rules are how usage is weighted.
type Rules struct {
	// HalfLife is the age at which usage counts half. Zero ignores past usage.
	HalfLife time.Duration
	// Interval is the sampling interval; it is never zero.
	Interval time.Duration
	// Weights of resources; the default is 1 per core, byte or other unit.
	Weights map[corev1.ResourceName]float64
}

// RulesFrom converts the configuration.
func RulesFrom(c *kueueconfig.AdmissionFairSharing) Rules {
	r := Rules{HalfLife: c.UsageHalfLifeTime.Duration, Interval: c.UsageSamplingInterval.Duration, Weights: c.ResourceWeights}
	if r.Interval == 0 {
		r.Interval = defaultInterval
	}
	return r
}

// fresh is the weight of the last elapsed time, from 0 to 1; earlier usage has the rest.
func (r Rules) fresh(elapsed time.Duration) float64 {
	return 1 - math.Exp2(-elapsed.Seconds()/r.HalfLife.Seconds())
}

// Sample returns the record at a later time with the usage since then. An earlier time changes nothing, because the
// clocks of two leaders differ.
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

// mix returns the weighted mean of the old and the new amount, rounded.
func mix(old, now int64, fresh float64) int64 {
	return whole(float64(old)*(1-fresh) + float64(now)*fresh)
}

// whole returns the amount rounded, or the largest int64.
func whole(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Round(v))
}

// Penalty is what a Workload counts from getting its quota until the next sample.
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

// Usage returns the number that orders LocalQueues: the consumed amounts plus the penalties that are in no sample yet,
// weighted by resource and divided by the weight of the LocalQueue, in thousandths. With weight zero it is infinite, so
// the LocalQueue comes last.
func (r Rules) Usage(weight int64, parts ...Amounts) float64 {
	if weight <= 0 {
		return math.Inf(1)
	}
	var sum float64
	for _, part := range parts {
		// In a fixed order, because sums of floats depend on it.
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
