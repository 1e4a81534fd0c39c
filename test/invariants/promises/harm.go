package promises

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// judgeHarm: Muster terminates no machine on which a pod runs, whether it belongs to a gang or not (P9). Pods of DaemonSets and static
// pods end with their node. Pods that are being deleted do not count either.
func (c *Checker) judgeHarm(e Event, m *machine, n *node) {
	if c.unsure(e.Revision, Pods) {
		c.unjudged(Terminated)
		return
	}
	c.judged(Terminated)
	var runs []string
	for _, p := range n.pods {
		if !p.finished && !p.daemon && !p.leaving && e.Time.Sub(p.boundAt) > c.config.Unseen {
			runs = append(runs, fmt.Sprintf("%s for %s", p, e.Time.Sub(p.boundAt).Round(time.Millisecond)))
		}
	}
	if len(runs) > 0 {
		slices.Sort(runs)
		c.suspect("harm|"+string(m.uid), e, NoHarm, "Machine "+m.name,
			"was terminated, and not by its cloud, while pods were bound to its node: %s", strings.Join(runs, "; "))
	}
}
