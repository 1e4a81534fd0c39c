package promises

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// waiting is how something that waits explains itself.
type waiting struct {
	// silent is since when it waits without saying why; zero if it does not.
	silent time.Time
	// explained: it has reported a reason since it became pending.
	explained bool
}

func (c *Checker) noteWaiting(w *waiting, waits, explained bool, check Check) {
	switch {
	case !waits:
		*w = waiting{}
	case explained:
		if !w.explained {
			c.judged(check)
		}
		*w = waiting{explained: true}
	case w.silent.IsZero():
		w.silent = c.now
	}
}

// sweepWaiting: whatever waits says why (P7).
func (c *Checker) sweepWaiting() {
	blame := func(key string, w *waiting, check Check, object, format string) {
		if w.silent.IsZero() || !c.overdue(w.silent, c.config.ExplainBound) {
			return
		}
		if !w.explained {
			c.judged(check)
			w.explained = true
		}
		c.accuse(key, Explained, object, format, w.silent.UTC().Format("15:04:05.000"), c.config.ExplainBound)
	}
	for uid, w := range c.workloads {
		blame("pending|"+string(uid), &w.pending, PendingWorkloads, w.String(),
			"has been pending since %s without a condition QuotaReserved=False that has a known reason and a message (bound %s)")
		blame("reserved|"+string(uid), &w.reserved, ReservedWorkloads, w.String(),
			"has held quota without being Admitted since %s, and neither a check that is not Ready nor its conditions say what it waits for "+
				"(bound %s)")
	}
	for uid, j := range c.jobs {
		c.noteWaiting(&j.waits, j.held && j.queue != "" && !j.prebuilt, c.isQueued(uid, j), HeldJobs)
		blame("held|"+string(uid), &j.waits, HeldJobs, "Job "+j.namespace+"/"+j.name,
			"has been suspended since %s without a Workload, and is not part of a Job that is held (bound %s)")
	}
	for uid, r := range c.requests {
		blame("request|"+string(uid), &r.waiting, PendingRequests, r.String(),
			"has waited since %s without a condition Provisioned that has a reason and a message (bound %s)")
	}
}

// isQueued says that something is there which a held Job of a queue may wait for. What an operator
// has made is held and started by that.
func (c *Checker) isQueued(uid types.UID, j *job) bool {
	if w := c.queued[uid]; w != nil && !w.deleted || j.controller == nil {
		return w != nil && !w.deleted
	}
	owner := c.jobs[j.controller.UID]
	return j.controller.Kind != string(Jobs) || owner == nil || owner.controller != nil || owner.gone || owner.over || owner.held
}
