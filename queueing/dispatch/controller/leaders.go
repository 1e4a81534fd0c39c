package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// leadersEvery is how often the leader election Leases of a worker are read. A leader renews its Lease several times in between.
	leadersEvery = 20 * time.Second
	// leaderless is how long a worker may be without a leader before it counts as idle. An upgrade of its Muster or Kueue is shorter.
	leaderless = time.Minute
)

// leaders is the state of the leader election in a worker. It uses only the clock of this process, since that of the worker may be wrong.
type leaders struct {
	// read is when the Leases were last read, and seen has the renewTime of each.
	read time.Time
	seen map[types.NamespacedName]metav1.MicroTime
	// renewed is when a Lease was last observed to be renewed. It is zero if none was: the Lease may be left over from a process that
	// elects no leader any more.
	renewed time.Time
	idle    string
}

// idle returns why nothing queues in a worker: none of its Leases is renewed any more. It returns "" if the Leases cannot be read. One
// renewed Lease is enough, because Kueue's may be left over where Muster has replaced it.
func (s *workers) idle(ctx context.Context, c *connection) string {
	l, now := &c.leaders, s.clock.Now()
	if now.Sub(l.read) < leadersEvery {
		return l.idle
	}
	l.read = now
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if l.seen == nil {
		l.seen = map[types.NamespacedName]metav1.MicroTime{}
	}
	limit, there := leaderless, []string(nil)
	for _, key := range s.leases {
		lease := &coordinationv1.Lease{}
		switch err := c.client.Get(ctx, key, lease); {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			continue
		case err != nil:
			return l.idle
		}
		there = append(there, key.String())
		limit = max(limit, time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second)
		before, known := l.seen[key]
		renewed := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
		if known && !before.Equal(&renewed) {
			l.renewed = now
		}
		l.seen[key] = renewed
	}
	l.idle = ""
	if len(there) > 0 && !l.renewed.IsZero() && now.Sub(l.renewed) >= limit {
		l.idle = fmt.Sprintf("no process there has renewed the Lease %s for %s: its Muster or Kueue may be down", strings.Join(there, " or "),
			limit)
	}
	return l.idle
}
