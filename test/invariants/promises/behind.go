package promises

import (
	"sort"
	"time"
)

// behind is by how much the cluster was behind at a time.
type behind struct {
	at    time.Time
	total time.Duration
}

// Behind records how much of the time until at the cluster lacked because its machine was busy. All bounds are extended by the part of it
// that falls into them. total never shrinks.
func (c *Checker) Behind(at time.Time, total time.Duration) {
	if total > c.stats.Behind {
		c.behind = append(c.behind, behind{at, total})
		c.stats.Behind = total
	}
}

// behindSince is how much of the time since then the cluster did not have.
func (c *Checker) behindSince(t time.Time) time.Duration {
	before := sort.Search(len(c.behind), func(i int) bool { return c.behind[i].at.After(t) })
	if before == 0 {
		return c.stats.Behind
	}
	return c.stats.Behind - c.behind[before-1].total
}
