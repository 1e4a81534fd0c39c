package lifecycle

import (
	"time"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
)

// Rules decide on one Workload at the time now.
type Rules struct {
	cache  *cache.Cache
	checks checks.Evaluator
	now    time.Time
	// answering is since when the control plane responds; zero if no outage was observed.
	answering time.Time
}

// NewRules returns the rules at the time now. Answering is since when the control plane answers.
func NewRules(c *cache.Cache, now, answering time.Time) Rules {
	return Rules{c, checks.NewEvaluator(c, now), now, answering}
}
