package cache

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// counted returns the part of a pod's requests that counts against quota: without the excluded prefixes, and with the
// transformations. An excluded resource does not count itself, but its outputs do and it can multiply others. Otherwise
// it would be a way around their quota.
func (s *Settings) counted(pod nodegroups.Resources) nodegroups.Resources {
	c := s.Config.Resources
	if c == nil {
		return pod
	}
	out := pod.Clone()
	maps.DeleteFunc(out, func(name corev1.ResourceName, _ int64) bool {
		return slices.ContainsFunc(c.ExcludeResourcePrefixes, func(p string) bool { return strings.HasPrefix(string(name), p) })
	})
	outputs := map[corev1.ResourceName]*big.Rat{}
	for i := range c.Transformations {
		t := &c.Transformations[i]
		if _, ok := pod[t.Input]; !ok {
			continue
		}
		if t.Strategy != nil && *t.Strategy == kueueconfig.Replace {
			delete(out, t.Input)
		}
		for name, factor := range t.Outputs {
			if outputs[name] == nil {
				outputs[name] = new(big.Rat)
			}
			outputs[name].Add(outputs[name], transformed(t, pod, exact(factor)))
		}
	}
	for name, v := range outputs {
		// A negative output only offsets other outputs of the same name; it does not reduce requests.
		out[name] = nodegroups.Plus(out[name], max(0, roundedUp(v.Mul(v, unitOf(name)))))
	}
	return out
}

// transformed returns the output for a pod's request: the factor times the units of the input, and times those of the
// resource that multiplies it if the pod requests that.
func transformed(t *kueueconfig.ResourceTransformation, pod nodegroups.Resources, factor *big.Rat) *big.Rat {
	for _, name := range []corev1.ResourceName{t.Input, t.MultiplyBy} {
		if v, ok := pod[name]; ok {
			factor.Mul(factor, new(big.Rat).Quo(new(big.Rat).SetInt64(v), unitOf(name)))
		}
	}
	return factor
}

// exact returns a quantity as a fraction. It has at most nine decimals, because a Quantity has no more.
func exact(q resource.Quantity) *big.Rat {
	d := q.AsDec()
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(d.Scale(), -d.Scale()))), nil)
	if d.Scale() < 0 {
		return new(big.Rat).SetInt(ten.Mul(ten, d.UnscaledBig()))
	}
	return new(big.Rat).SetFrac(d.UnscaledBig(), ten)
}

// unitOf returns how many counted units one unit of the resource has.
func unitOf(name corev1.ResourceName) *big.Rat {
	if name == corev1.ResourceCPU {
		return big.NewRat(1000, 1)
	}
	return big.NewRat(1, 1)
}

// roundedUp returns the next integer, or the nearest int64.
func roundedUp(v *big.Rat) int64 {
	whole, rest := new(big.Int).DivMod(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	switch {
	case whole.IsInt64():
		return whole.Int64()
	case whole.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// IgnoresUndeclared reports whether resources without quota are ignored.
func (s *Settings) IgnoresUndeclared() bool {
	c := s.Config.Resources
	return c != nil && c.QuotaCheckStrategy != nil && *c.QuotaCheckStrategy == kueueconfig.QuotaCheckIgnoreUndeclared
}
