package lifecycle

import (
	"time"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
)

// Rules decide on Workloads one by one at a time.
type Rules struct {
	cache  *cache.Cache
	checks checks.Evaluator
	now    time.Time
}

// NewRules returns those for a time.
func NewRules(c *cache.Cache, now time.Time) Rules { return Rules{c, checks.NewEvaluator(c, now), now} }
