package nodegroups

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestMicroUSD(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "98.32": 98_320_000, "0.0000001": 1, "1k": 1_000_000_000,
		"20000000000000": MaxUSD * 1e6, "10T": MaxUSD * 1e6, "1Ei": MaxUSD * 1e6,
	} {
		q := resource.MustParse(text)
		if got := MicroUSD(&q); got != want {
			t.Errorf("MicroUSD(%s) = %d, want %d", text, got, want)
		}
	}
}

// TestAmountsDoNotWrap compares what is read, added and multiplied with numbers that
// have no end.
func TestAmountsDoNotWrap(t *testing.T) {
	nearest := func(v *big.Int) int64 {
		switch {
		case v.IsInt64():
			return v.Int64()
		case v.Sign() < 0:
			return math.MinInt64
		}
		return math.MaxInt64
	}
	for seed := range uint64(50_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		number := func() int64 {
			return (math.MaxInt64 - r.Int64N(1<<r.IntN(63))) >> (r.IntN(2) * r.IntN(63)) * int64(1-2*r.IntN(2))
		}
		a, b := number(), number()
		if got, want := Plus(a, b), nearest(new(big.Int).Add(big.NewInt(a), big.NewInt(b))); got != want {
			t.Fatalf("seed %d: %d + %d: got %d, want %d", seed, a, b, got, want)
		}
		if got, want := Times(a, b), nearest(new(big.Int).Mul(big.NewInt(a), big.NewInt(b))); got != want {
			t.Fatalf("seed %d: %d * %d: got %d, want %d", seed, a, b, got, want)
		}
		// Of up to three terms, some of which are beyond int64 already.
		sum, exact := resource.Quantity{}, new(big.Int)
		for range 1 + r.IntN(3) {
			v, scale := number(), r.IntN(8)
			sum.Add(*resource.NewScaledQuantity(v, resource.Scale(scale)))
			exact.Add(exact, new(big.Int).Mul(big.NewInt(v), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
		}
		if got, want := Amount("memory", sum), nearest(exact); got != want {
			t.Fatalf("seed %d: memory of %s: got %d, want %d", seed, &sum, got, want)
		}
		if got, want := Amount("cpu", sum), nearest(exact.Mul(exact, big.NewInt(1000))); got != want {
			t.Fatalf("seed %d: cpu of %s: got %d, want %d", seed, &sum, got, want)
		}
	}
}

func TestAmountsOfTexts(t *testing.T) {
	for _, tc := range []struct {
		name corev1.ResourceName
		text string
		want int64
		tell string
	}{
		{"cpu", "1500m", 1500, "1500m"},
		{"cpu", "1n", 1, "1m"},
		{"cpu", "9P", 9e18, "9P"},
		{"cpu", "1E", math.MaxInt64, "9P or more"},
		{"cpu", "9223372036854775807m", math.MaxInt64, "9P or more"},
		{"cpu", "9223372036854775806m", math.MaxInt64 - 1, "9223372036854775806m"},
		{"cpu", "1e300", math.MaxInt64, "9P or more"},
		{"memory", "8Ei", math.MaxInt64, "8Ei or more"},
		{"memory", "1000E", math.MaxInt64, "8Ei or more"},
		{"memory", "7Ei", 7 << 60, "7Ei"},
		{"nvidia.com/gpu", "99E", math.MaxInt64, "9E or more"},
	} {
		got := Amount(tc.name, resource.MustParse(tc.text))
		if got != tc.want || Quantity(tc.name, got) != tc.tell {
			t.Errorf("%s of %s: got %d (%s), want %d (%s)", tc.text, tc.name, got, Quantity(tc.name, got), tc.want, tc.tell)
		}
		again := Resources{tc.name: got}.List()
		if back := ResourcesFrom(again)[tc.name]; back != got {
			t.Errorf("%s of %s: %d is read as %d once it was written", tc.text, tc.name, got, back)
		}
	}
}

func TestExtended(t *testing.T) {
	for name, want := range map[corev1.ResourceName]bool{
		"cpu": false, "memory": false, "pods": false, "hugepages-2Mi": false, "ephemeral-storage": false,
		"nvidia.com/gpu": true, "example.com/fpga": true, "attachable-volumes.kubernetes.io/disk": false,
	} {
		if got := Extended(name); got != want {
			t.Errorf("Extended(%s) = %t, want %t", name, got, want)
		}
	}
}

func TestTimesAndShort(t *testing.T) {
	room := Resources{"cpu": 8000, "nvidia.com/gpu": 4}
	for _, tc := range []struct {
		need  Resources
		times int
		short corev1.ResourceName
	}{
		{Resources{"cpu": 1000}, 8, ""},
		{Resources{"cpu": 1000, "nvidia.com/gpu": 1}, 4, ""},
		{Resources{"cpu": 9000}, 0, "cpu"},
		{Resources{"memory": 1}, 0, "memory"},
		{Resources{}, 100, ""},
	} {
		if got := room.Times(tc.need, 100); got != tc.times {
			t.Errorf("%v fits %d times, want %d", tc.need, got, tc.times)
		}
		if name, _, _ := room.Short(tc.need); name != tc.short {
			t.Errorf("%v is short of %q, want %q", tc.need, name, tc.short)
		}
	}
}
