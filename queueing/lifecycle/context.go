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
	// answering is since when the control plane answers; zero where it was never silent, as far as that is known.
	answering time.Time
}

// NewRules returns those for a time, and a control plane that answers since another.
func NewRules(c *cache.Cache, now, answering time.Time) Rules {
	return Rules{c, checks.NewEvaluator(c, now), now, answering}
}
