package pool

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"
)

// wholePool stands where the index of a fault would, in draws for no fault.
const wholePool = -1

// draw is a uniform random number that depends only on its purpose.
type draw uint64

func (p Pool) draw(ordinal int64, fault int, purpose string) draw {
	input := make([]byte, 0, 64)
	input = binary.BigEndian.AppendUint64(input, uint64(p.Script.Seed))
	input = binary.BigEndian.AppendUint64(input, uint64(ordinal))
	input = binary.BigEndian.AppendUint64(input, uint64(fault))
	input = append(input, purpose...)
	sum := sha256.Sum256(input)
	return draw(binary.BigEndian.Uint64(sum[:]))
}

// below is the draw scaled to 0..n-1. n must not be 0.
func (d draw) below(n uint64) uint64 {
	scaled, _ := bits.Mul64(uint64(d), n)
	return scaled
}

// percent is 0..99.
func (d draw) percent() int { return int(d.below(100)) }

// upTo is a share of the whole between none and all; none of what is negative.
func (d draw) upTo(whole time.Duration) time.Duration {
	if whole <= 0 {
		return 0
	}
	return time.Duration(d.below(uint64(whole) + 1))
}
