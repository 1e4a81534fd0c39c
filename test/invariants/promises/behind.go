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

// Behind tells how much of the time until then the cluster did not have, since its machine was busy with other things: all bounds are
// longer by what of it falls into them. It never shrinks.
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
