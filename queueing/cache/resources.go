package cache

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// counted is what of a pod's requests counts against quota: without the prefixes
// that the configuration excludes, and with its transformations.
func (s *Settings) counted(pod nodegroups.Resources) nodegroups.Resources {
	c := s.Config.Resources
	if c == nil {
		return pod
	}
	out := nodegroups.Resources{}
	add := func(name corev1.ResourceName, v int64) { out[name] = nodegroups.Plus(out[name], v) }
	for _, name := range pod.Names() {
		v := pod[name]
		if slices.ContainsFunc(c.ExcludeResourcePrefixes, func(p string) bool { return strings.HasPrefix(string(name), p) }) {
			continue
		}
		i := slices.IndexFunc(c.Transformations, func(t kueueconfig.ResourceTransformation) bool { return t.Input == name })
		if i < 0 {
			add(name, v)
			continue
		}
		t := &c.Transformations[i]
		for output, factor := range nodegroups.ResourcesFrom(t.Outputs) {
			add(output, transformed(t, v, factor, pod))
		}
		if t.Strategy == nil || *t.Strategy == kueueconfig.Retain {
			add(name, v)
		}
	}
	return out
}

// transformed is how much of an output a request for the input is worth: as many
// times the output as there are units of the input, and of the resource that it is
// multiplied by.
func transformed(t *kueueconfig.ResourceTransformation, v, factor int64, pod nodegroups.Resources) int64 {
	amount := product(factor, v, unitOf(t.Input))
	if t.MultiplyBy != "" {
		amount = product(amount, pod[t.MultiplyBy], unitOf(t.MultiplyBy))
	}
	return amount
}

// unitOf is how many of the units that amounts are counted in are one.
func unitOf(name corev1.ResourceName) int64 {
	if name == corev1.ResourceCPU {
		return 1000
	}
	return 1
}

// product is a * b / unit, or the largest int64.
func product(a, b, unit int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(unit) {
		return math.MaxInt64
	}
	out, _ := bits.Div64(high, low, uint64(unit))
	return int64(min(out, math.MaxInt64))
}

// IgnoresUndeclared says that resources without quota do not keep a Workload from
// being admitted.
func (s *Settings) IgnoresUndeclared() bool {
	c := s.Config.Resources
	return c != nil && c.QuotaCheckStrategy != nil && *c.QuotaCheckStrategy == kueueconfig.QuotaCheckIgnoreUndeclared
}
