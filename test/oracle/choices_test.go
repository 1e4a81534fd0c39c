package oracle

import "math/rand/v2"

// choices makes up a world, one choice after the other.
type choices interface {
	// pick returns a number from 0 to n-1. By convention 0 is the plainest.
	pick(n int) int
}

// seeded choices follow from a number.
type seeded struct{ *rand.Rand }

func newSeeded(seed uint64) seeded { return seeded{rand.New(rand.NewPCG(seed, 36))} }

func (s seeded) pick(n int) int { return s.IntN(n) }

// recorded choices are read from bytes, one a choice, so that a fuzzer which changes
// a byte changes one thing; after the last byte all is plain.
type recorded struct{ left []byte }

func (r *recorded) pick(n int) int {
	if len(r.left) == 0 {
		return 0
	}
	b := r.left[0]
	r.left = r.left[1:]
	return int(b) % n
}

// rarely is true once in n times.
func rarely(c choices, n int) bool { return c.pick(n) == n-1 }

func oneOf[T any](c choices, of ...T) T { return of[c.pick(len(of))] }
