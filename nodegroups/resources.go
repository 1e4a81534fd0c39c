package nodegroups

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources are amounts by resource name: cpu in thousandths of a core, memory
// and storage in bytes, everything else in pieces. A name that is missing is 0.
// An amount that is too large for an int64 is the largest one: sums and products
// of amounts go through Plus and Times, so that none ever wraps around.
type Resources map[corev1.ResourceName]int64

// ResourcesFrom reads an API list, rounding up what has no whole unit.
func ResourcesFrom(list corev1.ResourceList) Resources {
	r := make(Resources, len(list))
	for name, q := range list {
		r[name] = Amount(name, q)
	}
	return r
}

// Amount is a quantity in the unit of its resource.
func Amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return Scaled(q, resource.Milli)
	}
	return Scaled(q, 0)
}

// Scaled is q in units of the scale, rounded up, or the nearest int64 where that is
// too large for one. Quantity's own methods would return any number there, 0 included.
func Scaled(q resource.Quantity, scale resource.Scale) int64 {
	const near, far = 1 << 62, 1 << 64
	switch rough := q.AsApproximateFloat64() / math.Pow10(int(scale)); {
	case rough > -near && rough < near:
		return q.ScaledValue(scale)
	case rough >= far || rough > 0 && q.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0:
		return math.MaxInt64
	case rough <= -far || rough < 0 && q.Cmp(*resource.NewScaledQuantity(math.MinInt64, scale)) <= 0:
		return math.MinInt64
	}
	return q.ScaledValue(scale)
}

// Plus is a + b, or the nearest int64.
func Plus(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Times is a * b, or the nearest int64.
func Times(a, b int64) int64 {
	high, low := bits.Mul64(magnitude(a), magnitude(b))
	negative := (a < 0) != (b < 0)
	switch {
	case high == 0 && low <= math.MaxInt64 && negative:
		return -int64(low)
	case high == 0 && low <= math.MaxInt64:
		return int64(low)
	case negative:
		return math.MinInt64
	}
	return math.MaxInt64
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// quantity is an amount of a resource in the form that people write it in.
func quantity(name corev1.ResourceName, v int64) *resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(v, resource.DecimalSI)
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return resource.NewQuantity(v, resource.BinarySI)
	default:
		return resource.NewQuantity(v, resource.DecimalSI)
	}
}

// Quantity is an amount of a resource as people write it.
func Quantity(name corev1.ResourceName, v int64) string {
	if v == math.MaxInt64 {
		return largest(name) + " or more"
	}
	return quantity(name, v).String()
}

// largest is the largest amount that counts, rounded.
func largest(name corev1.ResourceName) string {
	switch name {
	case corev1.ResourceCPU:
		return "9P"
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return "8Ei"
	default:
		return "9E"
	}
}

// Clone returns a copy.
func (r Resources) Clone() Resources { return maps.Clone(r) }

// Add adds n times o.
func (r Resources) Add(o Resources, n int) {
	for name, v := range o {
		r[name] = Plus(r[name], Times(v, int64(n)))
	}
}

// Sub takes n times o away. Amounts may become negative: what slipped onto a
// node stays visible.
func (r Resources) Sub(o Resources, n int) { r.Add(o, -n) }

// Names returns the resources in the order of their names.
func (r Resources) Names() []corev1.ResourceName { return slices.Sorted(maps.Keys(r)) }

// Times says how often need fits into r, at most limit.
func (r Resources) Times(need Resources, limit int) int {
	n := int64(limit)
	for name, v := range need {
		if v > 0 {
			n = min(n, max(0, r[name])/v)
		}
	}
	return int(n)
}

// Short returns the first resource, by name, of which r has less than need, and
// by how much; ok is false when need fits.
func (r Resources) Short(need Resources) (name corev1.ResourceName, by int64, ok bool) {
	for _, name := range need.Names() {
		if v := need[name]; v > 0 && r[name] < v {
			return name, v - r[name], true
		}
	}
	return "", 0, false
}

// MicroUSD reads an amount of money in millionths of a USD, rounded up; amounts
// over a billion USD count as that.
func MicroUSD(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	if q.CmpInt64(MaxUSD) > 0 {
		return MaxUSD * 1e6
	}
	return q.ScaledValue(resource.Micro)
}

// MaxUSD is the largest amount of money that counts: more is as good as without
// bound, and sums of many stay far from overflowing.
const MaxUSD = 1_000_000_000

// PodsQuantity is a number of pods as an API quantity.
func PodsQuantity(n int64) resource.Quantity {
	return *resource.NewQuantity(n, resource.DecimalSI)
}

// List is r as an API list.
func (r Resources) List() corev1.ResourceList {
	list := make(corev1.ResourceList, len(r))
	for name, v := range r {
		list[name] = *quantity(name, v)
	}
	return list
}

// Extended says whether the resource is counted in devices, such as nvidia.com/gpu: nodes get it from a device plugin or a
// DRA driver, not from the kubelet.
func Extended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.HasPrefix(s, resourcev1.ResourceDeviceClassPrefix) || strings.Contains(s, "/") && !strings.Contains(s, "kubernetes.io/")
}
